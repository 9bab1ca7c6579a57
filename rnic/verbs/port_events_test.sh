#!/bin/sh
# ibv_asyncwatch, unmodified, sees addresses come and the port go down and up again. Runs in a network
# namespace of its own; 77 where that is not allowed or a program is missing.
# usage: port_events_test.sh LIBIBVERBS
set -u
library=$1
if [ -z "${PORT_EVENTS_INSIDE:-}" ]; then
    for program in ibv_asyncwatch ip stdbuf unshare; do
        PATH=$PATH:/sbin command -v $program >/dev/null || exit 77
    done
    export PORT_EVENTS_INSIDE=1
    for enter in "unshare -n" "unshare -Urn"; do
        if $enter true 2>/dev/null; then
            exec $enter "$0" "$library"
        fi
    done
    exit 77
fi
PATH=$PATH:/sbin
readelf -d "$library" | grep -q 'lib[at]san' && exit 77 # its runtime would have to come first
work=$(mktemp -d)
trap 'kill "$watcher" 2>/dev/null; rm -rf "$work"' EXIT
ip link set lo up
ip addr add 10.77.0.1/32 dev lo
LD_PRELOAD=$library stdbuf -oL ibv_asyncwatch >"$work/seen" 2>&1 &
watcher=$!

# Until line $1 is seen, or thirty seconds are over.
expect() {
    tries=0
    until grep -q "$1" "$work/seen"; do
        tries=$((tries + 1))
        if [ $tries = 600 ]; then
            echo "not seen: $1"
            cat "$work/seen"
            exit 1
        fi
        sleep 0.05
    done
    echo "seen: $1"
}
expect 'async event FD'
ip addr add 10.77.0.2/32 dev lo
expect 'event_type IBV_EVENT_GID_CHANGE (18), port 1'
ip link set lo down
expect 'event_type IBV_EVENT_PORT_ERR (10), port 1'
ip link set lo up
expect 'event_type IBV_EVENT_PORT_ACTIVE (9), port 1'
