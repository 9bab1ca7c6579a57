#!/bin/sh
# Unmodified programs of the distribution against each other over our libraries, in two processes
# each; what they print is checked. Runs in a network namespace of its own where that is allowed.
# usage: programs_test.sh DROPIN_FOLDER [NAME...]      NAME: run only the lines whose name matches
# Programs that are not installed are skipped and named; 77 if none is.
set -u
dropin=$(cd "$1" && pwd)
shift
limit=60 # seconds for one program

if [ -z "${PROGRAMS_TEST_INSIDE:-}" ]; then
    export PROGRAMS_TEST_INSIDE=1
    for enter in "unshare -n" "unshare -Urn"; do
        if $enter ip link set lo up 2>/dev/null; then
            exec $enter "$0" "$dropin" "$@"
        fi
    done
fi
if [ -x /sbin/ip ] || command -v ip >/dev/null; then
    ip link set lo up 2>/dev/null
fi

work=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# A sanitized library needs its runtime loaded first; the programs' own leaks are not our matter.
sanitizer=
for runtime in asan tsan; do
    if readelf -d "$dropin/libibverbs.so.1" | grep -q "lib$runtime"; then
        sanitizer=$(gcc -print-file-name="lib$runtime.so"):$(gcc -print-file-name=libubsan.so):
        export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
    fi
done

weir() {
    LD_PRELOAD="$sanitizer$dropin/libibverbs.so.1:$dropin/librdmacm.so.1" exec timeout "$limit" "$@"
}

# True once something listens on TCP port $1, or the server has ended.
listens() {
    hex=$(printf ':%04X' "$1")
    tries=0
    while [ $tries -lt 200 ] && kill -0 "$server" 2>/dev/null; do
        if awk -v port="$hex" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 }
                               END { exit !found }' /proc/net/tcp /proc/net/tcp6; then
            return 0
        fi
        sleep 0.02
        tries=$((tries + 1))
    done
    return 1
}

port=21000
passed=0
failed=0
skipped=

fail() {
    failed=$((failed + 1))
    echo "FAIL $name: $1"
    echo "--- server: $2"
    tail -n 15 "$work/server"
    echo "--- client: $3"
    tail -n 15 "$work/client"
}

# pair NAME HOW PATTERN SERVER CLIENT
# HOW: tcp (the server listens on TCP port PORT first) or cm (it listens by rdma_cm). PORT stands
# for a fresh port in both commands. PATTERN must be in the client's output.
only=$*
pair() {
    name=$1
    if [ -n "$only" ]; then
        case " $only " in *" $name "*) ;; *) return ;; esac
    fi
    program=${4%% *}
    if ! command -v "$program" >/dev/null; then
        skipped="$skipped $name"
        return
    fi
    port=$((port + 1))
    server_command=$(echo "$4" | sed "s/PORT/$port/g")
    client_command=$(echo "$5" | sed "s/PORT/$port/g")
    # shellcheck disable=SC2086
    (weir $server_command) >"$work/server" 2>&1 </dev/null &
    server=$!
    [ "$2" != tcp ] || listens $port || true
    tries=0
    while :; do
        # shellcheck disable=SC2086
        (weir $client_command) >"$work/client" 2>&1 </dev/null
        client_status=$?
        # By rdma_cm there is no telling from outside when the server listens.
        if [ "$2" = cm ] && [ $tries -lt 50 ] && kill -0 "$server" 2>/dev/null &&
            grep -qE "REJECTED, error 8|REJECTED, error: 8|UNREACHABLE, error: 1$|CM event bl blka 8|Connection refused" \
                "$work/client"; then
            tries=$((tries + 1))
            sleep 0.05
            continue
        fi
        break
    done
    if [ $client_status -ne 0 ]; then
        kill "$server" 2>/dev/null
    fi
    wait "$server"
    server_status=$?
    server=
    if [ $client_status -ne 0 ] || [ $server_status -ne 0 ]; then
        fail "client ended with $client_status, server with $server_status" "$server_command" \
            "$client_command"
    elif ! grep -qE -e "$3" "$work/client"; then
        fail "no '$3' in the client's output" "$server_command" "$client_command"
    else
        passed=$((passed + 1))
    fi
}

# alone NAME PATTERN COMMAND
alone() {
    name=$1
    if [ -n "$only" ]; then
        case " $only " in *" $name "*) ;; *) return ;; esac
    fi
    if ! command -v "${3%% *}" >/dev/null; then
        skipped="$skipped $name"
        return
    fi
    : >"$work/server"
    # shellcheck disable=SC2086
    (weir $3) >"$work/client" 2>&1 </dev/null
    status=$?
    if [ $status -ne 0 ] || ! grep -qE -e "$2" "$work/client"; then
        fail "ended with $status, or no '$2'" none "$3"
    else
        passed=$((passed + 1))
    fi
}

pingpong() {
    pair "$1" tcp '^1000 iters in ' "$2 -p PORT" "$2 -p PORT 127.0.0.1"
}

# A bandwidth or latency test prints one row of results: bytes, iterations, numbers.
perf() {
    pair "$1" tcp "^ $2 +[0-9]+ +[0-9.]+ +[0-9.]+" "$3 -F -p PORT" "$3 -F -p PORT 127.0.0.1"
}

# The same where the two meet by rdma_cm.
perf_cm() {
    pair "$1" cm "^ $2 +[0-9]+ +[0-9.]+ +[0-9.]+" "$3 -R -F -p PORT" "$3 -R -F -p PORT 127.0.0.1"
}

alone devices '^ +weir0 ' ibv_devices
alone devinfo 'state:.*PORT_ACTIVE' 'ibv_devinfo -v'

pingpong rc_pingpong 'ibv_rc_pingpong -g 0 -c'
pingpong rc_pingpong_lid 'ibv_rc_pingpong'
pingpong rc_pingpong_events 'ibv_rc_pingpong -g 0 -e -c'
pingpong rc_pingpong_timestamps 'ibv_rc_pingpong -g 0 -t'
pingpong rc_pingpong_batch 'ibv_rc_pingpong -g 0 -N -c'
pingpong rc_pingpong_batch_events 'ibv_rc_pingpong -g 0 -N -e'
pair rc_pingpong_large tcp '^200 iters in ' 'ibv_rc_pingpong -g 0 -s 1048576 -n 200 -p PORT' \
    'ibv_rc_pingpong -g 0 -s 1048576 -n 200 -p PORT 127.0.0.1'
pingpong uc_pingpong 'ibv_uc_pingpong -g 0'
pingpong ud_pingpong 'ibv_ud_pingpong -g 0'
pingpong ud_pingpong_events 'ibv_ud_pingpong -g 0 -e'
pingpong srq_pingpong 'ibv_srq_pingpong -g 0'
pingpong srq_pingpong_events 'ibv_srq_pingpong -g 0 -e'

pair rping cm '^ping data: rdma-ping-2: CDEFG' 'rping -s -a 127.0.0.1 -p PORT -C 3' \
    'rping -c -a 127.0.0.1 -p PORT -C 3 -v'
pair rping_ipv6 cm '^ping data: rdma-ping-2: CDEFG' 'rping -s -a ::1 -p PORT -C 3' \
    'rping -c -a ::1 -p PORT -C 3 -v'
pair rping_any cm '^ping data: rdma-ping-2: CDEFG' 'rping -s -p PORT -C 3' \
    'rping -c -a 127.0.0.1 -p PORT -C 3 -v'
pair rping_own_qp cm '^ping data: rdma-ping-2: CDEFG' 'rping -s -q -a 127.0.0.1 -p PORT -C 3' \
    'rping -c -q -a 127.0.0.1 -p PORT -C 3 -v'
pair rping_thousand cm '^ping data: rdma-ping-999: ' \
    'rping -s -a 127.0.0.1 -p PORT -C 1000 -V -S 100' \
    'rping -c -a 127.0.0.1 -p PORT -C 1000 -V -S 100 -v'
pair rping_large cm '^ping data: rdma-ping-99: ' 'rping -s -a 127.0.0.1 -p PORT -C 100 -V -S 65535' \
    'rping -c -a 127.0.0.1 -p PORT -C 100 -V -S 65535 -v'
pair ucmatose cm 'return status 0' 'ucmatose -p PORT -c 10 -C 50 -S 5000' \
    'ucmatose -s 127.0.0.1 -p PORT -c 10 -C 50 -S 5000'
pair ucmatose_hundred cm 'return status 0' 'ucmatose -p PORT -c 100 -t 8' \
    'ucmatose -s 127.0.0.1 -p PORT -c 100 -t 8'
pair ucmatose_ipv6 cm 'return status 0' 'ucmatose -f ip6 -b ::1 -p PORT' 'ucmatose -f ip6 -s ::1 -p PORT'
pair udaddy cm 'return status 0' 'udaddy -c 10 -C 50' 'udaddy -s 127.0.0.1 -c 10 -C 50'
pair udaddy_ipv6 cm 'return status 0' 'udaddy -b ::1' 'udaddy -s ::1'
pair udaddy_ipoib cm 'return status 0' 'udaddy -p 0x0002' 'udaddy -s 127.0.0.1 -p 0x0002'
pair rdma_client cm 'rdma_client: end 0' 'rdma_server -p PORT' 'rdma_client -s 127.0.0.1 -p PORT'
pair ucmatose_migrate cm 'return status 0' 'ucmatose -p PORT -m -c 4' \
    'ucmatose -s 127.0.0.1 -p PORT -m -c 4'
pair rdma_server cm 'rdma_client: end 0' 'rdma_server -p PORT' 'rdma_client -s 127.0.0.1 -p PORT'

perf ib_write_bw 65536 'ib_write_bw -n 300'
perf_cm ib_write_bw_cm 65536 'ib_write_bw -n 300'
perf ib_write_bw_old_post 65536 'ib_write_bw -n 300 --use_old_post_send'
perf ib_write_bw_both_ways 65536 'ib_write_bw -n 300 -b'
perf ib_write_bw_four 65536 'ib_write_bw -n 300 -q 4'
perf ib_write_bw_uc 65536 'ib_write_bw -n 300 -c UC'
perf ib_write_bw_large 8388608 'ib_write_bw -s 8388608 -n 20'
perf ib_read_bw 65536 'ib_read_bw -n 300'
perf_cm ib_read_bw_cm_events 65536 'ib_read_bw -n 300 -e'
perf ib_send_bw 65536 'ib_send_bw -n 300'
perf ib_send_bw_events 65536 'ib_send_bw -n 300 -e'
perf_cm ib_send_bw_cm 65536 'ib_send_bw -n 300'
perf ib_send_bw_ud 1024 'ib_send_bw -n 300 -c UD -s 1024'
perf ib_send_bw_srq 65536 'ib_send_bw -n 300 --use-srq'
perf ib_send_lat 2 'ib_send_lat -n 300'
perf ib_send_lat_events 2 'ib_send_lat -n 300 -e'
perf ib_send_lat_inline 64 'ib_send_lat -n 300 -s 64 -I 64'
perf ib_write_lat 2 'ib_write_lat -n 300'
perf_cm ib_write_lat_cm 2 'ib_write_lat -n 300'
perf ib_read_lat 2 'ib_read_lat -n 300'
perf ib_atomic_bw 8 'ib_atomic_bw -n 300'
perf ib_atomic_bw_compare 8 'ib_atomic_bw -n 300 -A CMP_AND_SWAP'
perf_cm ib_atomic_bw_cm_events 8 'ib_atomic_bw -n 300 -e'
perf ib_atomic_lat 8 'ib_atomic_lat -n 300'

echo "passed $passed, failed $failed${skipped:+, not installed:$skipped}"
[ $failed -eq 0 ] || exit 1
[ $passed -gt 0 ] || exit 77
