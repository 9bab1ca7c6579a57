#!/usr/bin/env bash
# Containers on one machine, made of namespaces: what a network and a /dev/shm of their own, or shared ones, make of them.
# Each sees its own processes only, unless it shares those, too. Usage: containers_test.sh BUILD_DIR      exit status 77: namespaces are not to be had
set -u
build=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
if [ "${CONTAINERS_INSIDE:-}" = "" ]; then
    user=()
    [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
    CONTAINERS_INSIDE=1 exec unshare "${user[@]}" --net --mount --pid --fork --mount-proc --kill-child \
        "$here/containers_test.sh" "$build" || { echo "skipped: no namespaces here"; exit 77; }
fi

# The first host is this namespace, the second $second; what is shared lies in this /dev/shm, which is no other test's.
mount -t tmpfs none /dev/shm || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unshare --net sleep infinity &
second=$!
while [ "$(readlink /proc/$second/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link set lo up
ip link add name one type veth peer name two netns "$second" || exit 77
ip addr add 10.79.0.1/24 dev one && ip link set one up
nsenter -t "$second" -n sh -c 'ip link set lo up; ip addr add 10.79.0.2/24 dev two; ip link set two up'

. "$here/expect.sh"
container() { # HOST own|shared|all COMMAND...  HOST is a process in its network, own or shared is its /dev/shm; all: and its processes
    local host=$1 memory=$2 processes=(--pid --fork --mount-proc --kill-child)
    shift 2
    [ "$memory" != all ] || processes=()
    # shellcheck disable=SC2016
    nsenter -t "$host" -n -- unshare --mount "${processes[@]}" sh -c '
        [ "$0" != own ] || mount -t tmpfs none /dev/shm || exit 77
        exec "$@"' "$memory" env LD_LIBRARY_PATH="$build/dropin" "$@"
}
serve() { # HOST own|shared|all NAME: listens until forget
    container "$1" "$2" "$build/test/many" 7801 "$3" 0 serve >"$work/$3" 2>"$work/$3.err" </dev/null &
    server=$!
    within grep -q listening "$work/$3"
}
forget() {
    kill -KILL "$(pgrep -f "^$build/test/many 7801 ")"
    wait "$server" 2>/dev/null
}
registries() { # PORT: in the /dev/shm of who has it
    ls "/proc/$(pgrep -f "^$build/test/many $1 ")/root/dev/shm" | grep "^weir-"
}
talk() { # HOST own|shared|all ADDRESS: connects with who serves there, ends rounds, stops
    rm -f "$work/statistics"
    : >"$work/talk"
    (echo "connect $3 7801 2"; echo mark; within grep -q passed "$work/talk"; registries 7802 >"$work/registries"
        echo stop; within grep -q stopped "$work/talk") |
        container "$1" "$2" env WEIR_STATISTICS="$work/statistics" "$build/test/many" 7802 talk >"$work/talk" 2>"$work/talk.err"
    grep -q passed "$work/talk" && grep -q stopped "$work/talk"
}
counts() { grep -q "^$1 [1-9]" "$work/statistics"; } # NAME
counts_none() { [ -s "$work/statistics" ] && ! counts "$1"; }

expect "a container serves" serve $second own there
expect "one with another network and /dev/shm talks with it" talk $$ own 10.79.0.2
expect "as with another host, by UDP" counts udp_packets_sent
expect "and not through memory" counts_none same_host_packets_sent
registries 7801 >"$work/registries.there"
expect "each has a registry" test "$(cat "$work/registries" "$work/registries.there" | sort -u | wc -l)" = 2
forget

expect "a container serves again" serve $$ own here
container $$ own "$build/test/many" 7802 stranger </dev/null >"$work/stranger" 2>&1
cat "$work/stranger"
expect "one that shares its network only is refused" grep -q "Address already in use" "$work/stranger"
expect "for UDP port 4791" grep -q "UDP port 4791 is shared with" "$work/stranger"
expect "because of its /dev/shm" grep -q "another /dev/shm" "$work/stranger"
expect "who was first goes on" talk $second own 10.79.0.1
forget

expect "a container serves with the host's /dev/shm" serve $$ shared here
expect "one that shares both talks with it" talk $$ shared 10.79.0.1
expect "they have one registry" test "$(wc -l <"$work/registries")" = 1
expect "by UDP: neither sees the other's processes, nor their memory" counts_none same_host_packets_sent
forget

expect "a container serves with the host's /dev/shm and processes" serve $$ all here
expect "one that shares all three talks with it" talk $$ all 10.79.0.1
expect "through memory" counts same_host_packets_sent
rm /dev/shm/weir-*
expect "when the registry was removed the next one joins" talk $$ all 10.79.0.1
expect "and makes no other" test ! -s "$work/registries"
forget
expect "with the last it is gone" serve $$ all here
expect "and the next is where it was" test "$(registries 7801 | wc -l)" = 1
forget
exit $failed
