#!/bin/sh
# A group is joined on an interface that comes while a queue pair is attached, and left on one that loses
# its address. Runs in a network namespace of its own; 77 where that is not allowed or a program is missing.
# usage: multicast_interfaces_test.sh GROUP_MEMBER
set -u
member=$1
if [ -z "${MULTICAST_INTERFACES_INSIDE:-}" ]; then
    for program in ip unshare mkfifo; do
        PATH=$PATH:/sbin command -v $program >/dev/null || exit 77
    done
    export MULTICAST_INTERFACES_INSIDE=1
    for enter in "unshare -n" "unshare -Urn"; do
        if $enter true 2>/dev/null; then
            exec $enter "$0" "$member"
        fi
    done
    exit 77
fi
PATH=$PATH:/sbin
work=$(mktemp -d)
ip link set lo multicast on up
mkfifo "$work/input"
"$member" <"$work/input" >"$work/said" 2>&1 &
process=$!
exec 3>"$work/input"
trap 'exec 3>&-; kill $process 2>/dev/null; rm -rf "$work"' EXIT

# Until the words hold, or thirty seconds are over.
expect() { # WHAT COMMAND...
    what=$1
    shift
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        if [ $tries = 600 ]; then
            echo "not seen: $what"
            cat "$work/said"
            ip maddr
            exit 1
        fi
        sleep 0.05
    done
    echo "seen: $what"
}
joined() { ip maddr show dev "$1" | grep -q 239.9.8.7; }
left() { ! joined "$1"; }
expect 'the member' grep -q joined "$work/said"
expect 'the group on lo' joined lo
ip link add weir0 type veth peer name weir1 || exit 77
ip link set weir0 up
left weir0 || exit 1
ip addr add 10.77.0.1/24 dev weir0
expect 'the group on the new interface' joined weir0
ip addr del 10.77.0.1/24 dev weir0
expect 'nothing where there is no address' left weir0
ip addr add 10.77.0.2/24 dev weir0
expect 'the group again' joined weir0
expect 'the group on lo, still' joined lo
exec 3>&-
wait $process || exit 1
