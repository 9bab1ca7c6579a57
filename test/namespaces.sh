#!/usr/bin/env bash
# Two hosts on one machine: runs COMMAND in a fresh network namespace (10.78.0.1, fd78::1) that is
# joined by veth to a second one (10.78.0.2, fd78::2). Both vanish with the command. `far COMMAND...`
# runs something on the second host: it is on PATH while COMMAND runs.
# Usage: namespaces.sh [--mtu N] COMMAND...        exit status 77: namespaces are not allowed here
set -u
mtu=1500
if [ "${1:-}" = --mtu ]; then
    mtu=$2
    shift 2
fi

if [ "${WEIR_NAMESPACE_STAGE:-}" != inside ]; then
    user=()
    [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
    unshare "${user[@]}" --net --pid --fork --mount-proc --kill-child true 2>/dev/null || exit 77
    WEIR_NAMESPACE_STAGE=inside exec unshare "${user[@]}" --net --pid --fork --mount-proc \
        --kill-child "$0" --mtu "$mtu" "$@"
fi

# Here we are PID 1 of a private PID namespace: whatever is left over dies with us.
unset WEIR_NAMESPACE_STAGE
unshare --net sleep infinity &
holder=$!
while [ "$(readlink /proc/$holder/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do
    sleep 0.01
done
ip link set lo up
ip link add weir0 mtu "$mtu" type veth peer name weir0 mtu "$mtu" netns "$holder" || exit 77
ip addr add 10.78.0.1/24 dev weir0
ip addr add fd78::1/64 dev weir0 nodad
ip link set weir0 up
nsenter -t "$holder" -n sh -c 'ip link set lo up; ip addr add 10.78.0.2/24 dev weir0
    ip addr add fd78::2/64 dev weir0 nodad; ip link set weir0 up'

bin=$(mktemp -d)
printf '#!/bin/sh\nexec nsenter -t %s -n -- "$@"\n' "$holder" >"$bin/far"
chmod +x "$bin/far"
PATH=$bin:$PATH "$@"
status=$?
rm -rf "$bin"
exit $status
