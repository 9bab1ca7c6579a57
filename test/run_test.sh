#!/usr/bin/env bash
# weir run, and what it shows besides the API: programs that look for the device in /sys and /dev, by both ways
# (the preloaded object, the mount namespace), and everything else left as it is.
# usage: run_test.sh BUILD_DIR [NAME...]     Programs that are not installed are skipped and named.
set -u
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
shift
only=$*

if [ -z "${RUN_TEST_INSIDE:-}" ]; then
    export RUN_TEST_INSIDE=1
    for enter in "unshare -n" "unshare -Urn"; do
        if $enter ip link set lo up 2>/dev/null; then
            exec $enter "$here/run_test.sh" "$build" $only
        fi
    done
    echo "no network namespace to be had"
    exit 77
fi
ip link set lo up

work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# A sanitized library needs its runtime first; programs' own leaks are not our matter.
sanitizer=
for runtime in asan tsan; do
    if readelf -d "$build/dropin/libibverbs.so.1" | grep -q "lib$runtime"; then
        sanitizer=$(gcc -print-file-name="lib$runtime.so"):$(gcc -print-file-name=libubsan.so)
        export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
    fi
done

# weir run, in a sanitized build with the runtime before all else: what it sets is set by hand.
weir_run() {
    if [ -z "$sanitizer" ]; then
        timeout 60 "$build/weir" run "$@"
        return
    fi
    local options=()
    while [ "${1:-}" != "${1#-}" ]; do options+=("$1"); shift; done
    [ -z "${options[*]}" ] || [ "${options[*]#--namespace}" = "${options[*]}" ] || return 77
    local variables
    mapfile -t variables < <("$build/weir" run "${options[@]}" --dry-run)
    timeout 60 env "${variables[@]/#LD_PRELOAD=/LD_PRELOAD=$sanitizer:}" "$@"
}

passed=0 failed=0 skipped=
# check NAME PROGRAM COMMAND...: COMMAND, a function below, must succeed; PROGRAM must be there.
check() {
    local name=$1 program=$2 status
    shift 2
    case " $only " in "  " | *" $name "*) ;; *) return ;; esac
    if ! command -v "$program" >/dev/null; then
        skipped="$skipped $name($program)"
        return
    fi
    "$@" >"$work/output" 2>&1
    status=$?
    if [ $status = 0 ]; then
        passed=$((passed + 1))
    elif [ $status = 77 ]; then
        skipped="$skipped $name"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        tail -n 30 "$work/output"
    fi
}

wants() { # PATTERN COMMAND...: its output holds PATTERN
    local pattern=$1 output status
    shift
    output=$("$@" 2>&1)
    status=$?
    [ $status != 77 ] || return 77
    [ $status = 0 ] || { echo "$output"; echo "ended with $status"; return 1; }
    echo "$output"
    grep -Eq -- "$pattern" <<<"$output" || { echo "wanted: $pattern"; return 1; }
}

exit_status() {
    weir_run sh -c 'exit 42'
    [ $? = 42 ] || return 1
    weir_run -- sh -c 'kill -TERM $$'
    [ $? = 143 ] || return 1
    "$build/weir" run /nonexistent/program
    [ $? = 127 ] || return 1
    "$build/weir" run /etc/passwd
    [ $? = 126 ] || return 1
    "$build/weir" run --devices 0 true
    [ $? = 2 ] || return 1
    "$build/weir" run --devices 2x true
    [ $? = 2 ] || return 1
    "$build/weir" run --link-layer token-ring true
    [ $? = 2 ]
}

# What a developer debugs with: his program built with a sanitizer, whose options stay as he set them.
sanitized_program() {
    [ -z "$sanitizer" ] || return 77 # two of them
    cat >"$work/sanitized.c" <<'EOF'
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words)
{
    char *buffer = malloc(8);
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;
    printf("%s %p\n", context != NULL ? ibv_get_device_name(context->device) : "no device", (void *)(buffer + count));
    ibv_free_device_list(list);
    buffer[7 + count - 1] = 1; /* one too far if there is an argument */
    free(buffer);
    return context == NULL || ibv_close_device(context) != 0;
}
EOF
    gcc -g -fsanitize=address "$work/sanitized.c" -o "$work/sanitized" -libverbs || return 77
    wants '^weir0' weir_run "$work/sanitized" || return 1
    wants '^weir0' weir_run sh -c "$work/sanitized" || return 1
    ASAN_OPTIONS=exitcode=33 weir_run "$work/sanitized" more >"$work/found" 2>&1
    [ $? = 33 ] && grep -q 'heap-buffer-overflow' "$work/found" || { cat "$work/found"; return 1; }
}

# One report for one program: what shows the device has none of its own.
statistics() {
    WEIR_STATISTICS=$work/statistics weir_run ibv_devinfo >/dev/null || return 1
    [ "$(grep -c '^# weir statistics of process [0-9]* (ibv_devinfo)$' "$work/statistics")" = 1 ] &&
        [ "$(grep -c '^# weir statistics' "$work/statistics")" = 1 ] || { cat "$work/statistics"; return 1; }
}

# A word that is not understood is wrong usage; what is understood here is by the library, and what that knows, here.
strict_words() {
    local word names=$("$build/weir" run --strict=no-such true 2>&1)
    grep -q "'no-such' is not understood.* mlx5, .*, no- before\|'no-such' is not understood.* mlx5, .* late-receive, " <<<"$names" || { echo "$names"; return 1; }
    for word in no-such mlx no- memlock= memlock=12X memlock=1KK memlock=99999999K mlx5,,rxe irdma,memlock ""; do
        "$build/weir" run --strict="$word" true
        [ $? = 2 ] || { echo "not refused: '$word'"; return 1; }
    done
    local known=(1 0 yes on mlx5,memlock=64K,no-limit memlock=3 rxe,memlock=2g,
        $(sed -n 's/^ *\[PITFALL_[A-Z_]*\] = {"\([a-z-]*\)",.*/no-\1/p' "$here/../rnic/strict/pitfall.c")
        $(sed -n '/families\[\] = /s/[^"]*"\([a-z0-9]*\)"[^"]*/\1 /gp' "$here/../rnic/strict/settings.c"))
    [ "${#known[@]}" = 29 ] || { echo "not all that the library knows: ${known[*]}"; return 1; }
    for word in "${known[@]}" $(sed 's/.* one of //; s/, / no-/g; s/^/no-/; q' <<<"$names"); do
        [ -z "$(weir_run --strict="$word" true 2>&1)" ] || { weir_run --strict="$word" true; return 1; }
    done
}

# Under the preload everything else looks as it does without.
others_untouched() {
    local path
    for path in /sys/class/net /dev/null /proc/self/ns /etc/passwd; do
        [ "$(ls -ld "$path" | cut -c1-10)" = "$(weir_run ls -ld "$path" | cut -c1-10)" ] || return 1
    done
    [ "$(ls /sys/class)" = "$(weir_run ls /sys/class)" ]
}

no_paths() {
    ! weir_run --no-paths ls /sys/class/infiniband/weir0
}

paths() {
    wants '^weir0$' weir_run ls /sys/class/infiniband &&
        wants '^crw' weir_run ls -l /dev/infiniband/uverbs0 &&
        wants '^/sys/class/infiniband/weir0/device$' \
            weir_run realpath /sys/class/infiniband/weir0/device &&
        wants '^RoCE v2$' weir_run cat /sys/class/infiniband/weir0/ports/1/gid_attrs/types/0 &&
        wants '^-1$' weir_run cat /sys/class/infiniband/weir0/../../numa_node &&
        wants '^lo$' weir_run ls /sys/class/infiniband/weir0/device/net/
}

# What sysfs says is what the API says.
same_as_the_api() {
    local sysfs api
    sysfs=$(weir_run cat /sys/class/infiniband/weir0/node_guid)
    api=$(weir_run ibv_devinfo | awk '$1 == "node_guid:" { print $2 }')
    echo "node_guid: $sysfs in sysfs, $api by the API"
    [ -n "$api" ] && [ "$sysfs" = "$api" ]
}

children() { # through fork, exec and a shell in between
    wants '^4: ACTIVE$' weir_run sh -c 'sh -c "cat /sys/class/infiniband/weir0/ports/1/state"'
}

by_hand() { # no weir run: what LD_LIBRARY_PATH gives, also to who loads by the development name
    [ -z "$sanitizer" ] || return 77
    wants 'hca_id:.*weir0' env LD_LIBRARY_PATH="$build/dropin" ibv_devinfo &&
        wants 'weir0' env LD_LIBRARY_PATH="$build/dropin" python3 -c '
import ctypes
verbs = ctypes.CDLL("libibverbs.so")
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
print(verbs.ibv_get_device_name(verbs.ibv_get_device_list(None)[0]))'
}

several_devices() {
    local devices
    devices=$(weir_run --devices=3 ls /sys/class/infiniband | tr '\n' ' ')
    echo "$devices"
    [ "$devices" = "weir0 weir1 weir2 " ] || return 1
    devices=$(weir_run --devices=one ls /sys/class/infiniband)
    [ "$devices" = one ] || return 1
    wants '^InfiniBand$' weir_run --link-layer=infiniband \
        cat /sys/class/infiniband/weir0/ports/1/link_layer
}

with_host_verbs() { # LIBRARY
    local -x WEIR_HOST_VERBS=$1
    weir_run --host-devices ibv_devices
}

# Without a device of the machine ours is all there is; the distribution's library was loaded.
host_devices() {
    [ -n "$sanitizer" ] || wants '^WEIR_HOST_DEVICES=1$' weir_run --host-devices --dry-run || return 1
    wants weir0 weir_run --host-devices ibv_devices || return 1
    complaint=$(weir_run --host-devices ibv_devices 2>&1 >/dev/null)
    [ -z "$complaint" ] || { echo "$complaint"; return 1; }
    wants 'no-such: .*; only our own devices are offered' \
        with_host_verbs /no-such
}

# Whom the loader keeps our libraries from.
other_rights() {
    cp "$(command -v true)" "$work/other" && chgrp 1 "$work/other" && chmod 2755 "$work/other" || return 77
    wants 'other rights than yours.* ignores LD_PRELOAD' "$build/weir" run --no-paths "$work/other" &&
        wants 'other rights than yours' env PATH="/nowhere::$work:$PATH" "$build/weir" run --no-paths other || return 1
    [ -z "$("$build/weir" run --no-paths true 2>&1)" ]
}

verbose() {
    wants 'device: weir0 port 1, Ethernet, 4: ACTIVE' weir_run --verbose true &&
        wants 'is 127.0.0.1, on lo' weir_run --verbose true
}

namespace() {
    unshare -m true 2>/dev/null || unshare -Urm true 2>/dev/null || return 77
    wants '^weir0$' weir_run --namespace env -u LD_PRELOAD ls /sys/class/infiniband || return $?
    wants '^character special file$' weir_run --namespace env -u LD_PRELOAD \
        stat -c %F /dev/infiniband/uverbs0 || return 1
    wants '^lo$' weir_run --namespace ls /sys/class/net || return 1
    weir_run --namespace sh -c '[ "$(id -u)" = "$0" ] && echo x >/dev/null && exit 9' "$(id -u)"
    [ $? = 9 ] || return 1
    [ ! -e /sys/class/infiniband/weir0 ] # nothing of it got out
}

# A tree is shared, so root writes to it no more than to a read-only attribute of sysfs.
read_only() {
    local way
    for way in "" --namespace; do
        weir_run $way sh -c 'echo x >/sys/class/infiniband/weir0/node_desc' 2>/dev/null && return 1
        wants '^weir0$' weir_run $way cat /sys/class/infiniband/weir0/node_desc || return $?
        weir_run $way sh -c 'echo x >/dev/infiniband/uverbs0' || return $?
    done
}
# Somebody else was there first, in a folder that everybody may write to.
squatted() {
    unshare -Urm sh -c "mount -t tmpfs none /dev/shm && ln -s /etc /dev/shm/weir-0-paths &&
        mkdir -m 777 /dev/shm/weir-0-paths.1 && '$build/dropin/weir-tree'" >"$work/squatted" || return 1
    grep -q '^/dev/shm/weir-0-paths\.2/' "$work/squatted"
}
# Where processes find each other in /tmp, for there is no writing to /dev/shm, the tree is there as well.
read_only_shm() {
    case $build in /tmp/*) return 77 ;; esac
    unshare -Urm sh -c "mount -t tmpfs none /tmp && mount -t tmpfs -o ro none /dev/shm &&
        '$build/dropin/weir-tree'" >"$work/read_only_shm" || return 1
    grep -q '^/tmp/weir-0-paths/' "$work/read_only_shm"
}
# Without /proc the command does not know its place, and what somebody has put into the working directory is not run.
planted() (
    mkdir "$work/plant" "$work/plant/dropin" && cd "$work/plant" && touch dropin/libibverbs.so.1 dropin/librdmacm.so.1 || return 1
    printf '#!/bin/sh\necho planted >&2\necho /planted\n' >dropin/weir-tree && chmod +x dropin/weir-tree || return 1
    unshare -Urm sh -c "mount -t tmpfs none /proc" || return 77
    unshare -Urm sh -c "mount -t tmpfs none /proc && { '$build/weir' run --dry-run; '$build/weir' info; }" >said 2>&1
    cat said
    ! grep -q plant said && grep -q . said
)
# There the loader does not know the tree's maker by its place either, and would give it the system's library.
without_proc() {
    [ -z "$sanitizer" ] || return 77 # their runtimes read /proc
    unshare -Urm sh -c "mount -t tmpfs none /proc" || return 77
    wants weir0 env WEIR_LIBRARY_DIR="$build/dropin" unshare -Urm sh -c \
        "mount -t tmpfs none /proc && '$build/weir' run ls /sys/class/infiniband"
}
namespace_refused() {
    local limit=/proc/sys/user/max_mnt_namespaces
    unshare -Urm sh -c "echo 0 >$limit" 2>/dev/null || return 77
    wants 'refuses a user namespace' unshare -Urm sh -c \
        "echo 0 >$limit; '$build/weir' run --namespace true; [ \$? = 6 ]"
}

ibstatus_script() { wants '4: ACTIVE' weir_run --namespace ibstatus; }
ibstat_program() { wants 'State: Active' weir_run ibstat; }
devinfo() { wants 'PORT_ACTIVE' weir_run ibv_devinfo -v; }

ucx_devices() {
    weir_run ucx_info -d >"$work/ucx" 2>&1
    grep -A3 -E 'Transport: (rc|ud)_verbs' "$work/ucx"
    [ "$(grep -A1 -E 'Transport: (rc|ud)_verbs' "$work/ucx" | grep -c 'Device: weir0:1')" = 2 ]
}

ucx_pair() { # TRANSPORTS TEST
    local port=$((13500 + RANDOM % 1000)) status tries=0
    UCX_TLS=$1 weir_run ucx_perftest -p $port -t "$2" -n 500 >"$work/server" 2>&1 &
    server=$!
    until grep -q ":$(printf %04X $port) .* 0A " /proc/net/tcp* || [ $((tries += 1)) -gt 600 ]; do
        sleep 0.05
    done
    UCX_TLS=$1 wants '^Final: +500 ' weir_run ucx_perftest -p $port -t "$2" -n 500 127.0.0.1
    status=$?
    if [ $status != 0 ]; then cat "$work/server"; kill "$server"; fi
    wait "$server"
    server=
    return $status
}

# What a program prints that was started without a standard stream does not go into what the processes of the host share.
closed_streams() {
    local status
    weir_run stdbuf -oL ibv_rc_pingpong -g 0 -p 19790 >"$work/waits" 2>&1 & # so that no file is made anew
    server=$!
    for _ in $(seq 600); do
        [ ! -s "$work/waits" ] || break
        sleep 0.05
    done
    weir_run sh -c 'exec stdbuf -oL ibv_devinfo -v <&- >&-'
    wants 'iters in' weir_run ibv_rc_pingpong -g 0 -p 19790 127.0.0.1
    status=$?
    [ $status = 0 ] || kill "$server"
    wait "$server"
    server=
    return $status
}

# A token goes round both ranks of Open MPI, and each says that it was right.
mpi_ring() {
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        wants 'ring: 2 ranks, [0-9]+ bytes, right' weir_run mpirun -np 2 --oversubscribe \
        --mca pml ucx --mca osc ^ucx -x "UCX_TLS=rc_verbs,ud_verbs,self" "$work/ring"
}

check exit_status sh exit_status
check sanitized_program gcc sanitized_program
check strict_words sh strict_words
check statistics ibv_devinfo statistics
check others_untouched ls others_untouched
check paths ls paths
check no_paths ls no_paths
check same_as_the_api ibv_devinfo same_as_the_api
check children sh children
check other_rights true other_rights
check verbose true verbose
check by_hand ibv_devinfo by_hand
check several_devices ls several_devices
check host_devices ibv_devices host_devices
check namespace unshare namespace
check read_only sh read_only
check squatted unshare squatted
check planted unshare planted
check without_proc ibv_devinfo without_proc
check read_only_shm unshare read_only_shm
check namespace_refused unshare namespace_refused
check ibstatus ibstatus ibstatus_script
check ibstat ibstat ibstat_program
check devinfo ibv_devinfo devinfo
check closed_streams ibv_rc_pingpong closed_streams
check ucx_devices ucx_info ucx_devices
for transports in rc_verbs,ud_verbs,self ud_verbs,self; do
    for test in tag_lat ucp_put_bw; do
        check "${transports%%,*}:$test" ucx_perftest ucx_pair $transports $test
    done
done
if mpicc -o "$work/ring" "$here/mpi_ring.c" 2>/dev/null; then
    check mpi_ring mpirun mpi_ring
else
    skipped="$skipped mpi_ring(mpicc)"
fi

echo "run: $passed passed, $failed failed${skipped:+; skipped:$skipped}"
[ $failed = 0 ] || exit 1
[ $passed != 0 ] || exit 77
