#!/usr/bin/env bash
# Two users on one host: what the second is told when the first holds the UDP port, and both side by side with an
# address each. Two user ids in a user namespace need a right that not everybody has: then it is skipped.
# Usage: two_users_test.sh BUILD_DIR
set -u
build=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
skip() { echo "skipped: $*"; exit 77; }

if [ "${TWO_USERS_INSIDE:-}" = "" ]; then
    [ "$(id -u)" = 0 ] || skip "two user ids are to be had as root only"
    TWO_USERS_INSIDE=1 exec unshare --net --pid --fork --mount-proc --kill-child "$here/two_users_test.sh" "$build" ||
        skip "no namespaces here"
fi
command -v setpriv >/dev/null || skip "no setpriv"
setpriv --reuid 4001 --regid 4001 --clear-groups test -x "$build/test/many" ||
    skip "user 4001 cannot read $build"
ip link set lo up || skip "no network namespace"
ip addr add 10.79.0.1/32 dev lo
ip addr add 10.79.0.2/32 dev lo
ip addr add 10.79.0.3/32 dev lo
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$work"' EXIT
. "$here/expect.sh"

user() { # NUMBER COMMAND...
    local number=$1
    shift
    setpriv --reuid "$number" --regid "$number" --clear-groups env LD_LIBRARY_PATH="$build/dropin" "$@"
}
start() { # USER PORT NAME [VARIABLE...]
    local number=$1 port=$2 name=$3
    shift 3
    user "$number" env "$@" "$build/test/many" "$port" "$name" 0 serve >"$work/$name" 2>"$work/$name.err" </dev/null &
    within listens_or_has_ended $! "$name"
    grep -q listening "$work/$name"
}
listens_or_has_ended() { # PROCESS NAME
    grep -q listening "$work/$2" || ! kill -0 "$1" 2>/dev/null
}

expect "the first user opens the port" start 4001 7801 first
first=$(pgrep -u 4001 many)
user 4002 "$build/test/many" 7802 second </dev/null >"$work/second" 2>&1
cat "$work/second"
expect "the second is refused, by name of the first" grep -q "held by user 4001" "$work/second"
start 0 7803 other 2>/dev/null & wait $!
expect "root is told the process, too" grep -q "held by user 4001, process $first (many)" "$work/other.err"
kill "$first"
within sh -c '! kill -0 '"$first"' 2>/dev/null'

expect "the first user has an address" start 4001 7801 left WEIR_BIND=10.79.0.1
expect "the second user another" start 4002 7801 right WEIR_BIND=10.79.0.2
talk() { # USER BIND PEER: connects, ends rounds, stops
    : >"$work/talk" # what the talk before printed is not this one's answer
    (echo "connect $3 7801 2"; echo mark; within grep -q passed "$work/talk"; echo stop
        within grep -q stopped "$work/talk") |
        user "$1" env WEIR_BIND="$2" "$build/test/many" 7810 talk >"$work/talk" 2>"$work/talk.err" &&
        grep -q passed "$work/talk" && grep -q stopped "$work/talk"
}
expect "one user's processes talk by their address" talk 4001 10.79.0.1 10.79.0.1
expect "two users talk with each other" talk 4001 10.79.0.1 10.79.0.2
expect "the registries are two" test "$(ls /dev/shm | grep -c "^weir-400[12]-$(stat -Lc %i /proc/self/ns/net)-")" = 2
user 4002 env WEIR_BIND=10.79.0.9 "$build/test/many" 7802 wrong </dev/null >"$work/wrong" 2>&1
expect "an address of nobody's is said" grep -q "an address that this host does not have" "$work/wrong"
for bound in 10.79.0.2,fe80::1 ::ffff:10.79.0.2; do
    user 4002 env WEIR_BIND=$bound "$build/test/many" 7802 wrong </dev/null >"$work/wrong" 2>&1
    expect "so is $bound, and nothing of it left out" grep -q "WEIR_BIND names an address that this host does not have" "$work/wrong"
done
for bound in 0.0.0.0 :: eth0; do
    user 4002 env WEIR_BIND=$bound "$build/test/many" 7802 wrong </dev/null >"$work/wrong" 2>&1
    expect "so is $bound, which is no address of a host" grep -q "WEIR_BIND does not read like" "$work/wrong"
done

unshare --mount sh -c 'mount -t tmpfs -o ro none /dev/shm && exec "$@"' sh env WEIR_BIND=10.79.0.3 \
    LD_LIBRARY_PATH="$build/dropin" "$build/test/many" 7803 unwritable </dev/null >"$work/unwritable" 2>&1
expect "a /dev/shm that cannot be written to is done without" grep -q listening "$work/unwritable"
kill $(pgrep -u 4001,4002 many)
wait
rm -f /dev/shm/weir-400[12]-"$(stat -Lc %i /proc/self/ns/net)"-* /tmp/weir-0-"$(stat -Lc %i /proc/self/ns/net)"-*
exit $failed
