#!/usr/bin/env bash
# weir cp whose connection is lost in the middle, between two namespaces: a server that is killed and started again,
# a link that is down for a while, an end of patience.
# usage: again_test.sh BUILD_DIR [CASE...]
set -u
build=$(realpath "$1")
script=$(realpath "$0")
if [ -z "${WEIR_TEST_FAR:-}" ]; then
    export WEIR_TEST_FAR=far WEIR_TEST_HOST=10.78.0.2
    "$(dirname "$script")/../test/namespaces.sh" "$script" "$@"
    status=$?
    [ $status = 77 ] || exit $status
    echo "network namespaces are not allowed here: over loopback instead"
    export WEIR_TEST_FAR=env WEIR_TEST_HOST=127.0.0.1
fi
shift
. "$(dirname "$script")/whole_program.sh"
url=weir://$WEIR_TEST_HOST:7473

serve() { # LOG [OPTION...]: of the folder root, always at the same address; sets $server
    local log=$1
    shift
    [ $# -gt 0 ] || set -- --insecure
    $WEIR_TEST_FAR "$weir" serve --fabric soft --listen "$WEIR_TEST_HOST:7473" --root root "$@" >"$log" 2>&1 &
    server=$!
    pids+=("$server")
    until_true says "$log" 7473 || fail "no server: $(cat "$log")"
}

kill_server() {
    kill -9 "$server"
    wait "$server" 2>/dev/null
}

begin() { # ARGUMENT...: a copy, with its output in c.log; sets $client
    timeout 100 "$weir" cp --fabric soft --bwlimit 4M "$@" >c.log 2>&1 &
    client=$!
    pids+=("$client")
}

has_records() { # FOLDER: two pieces of the large file have been noted there
    find "$1" -name '.weir-*.journal' -size +255c 2>/dev/null | grep -q .
}

in_the_middle() { # FOLDER
    until_true has_records "$1" || fail "nothing is under way: $(cat c.log)"
}

interrupt() { # the client, once: timeout would hand it on twice, and the second time ends it at once
    kill -INT "$(cat "/proc/$client/task/$client/children")"
}

ends() { # CODE: the client does
    wait "$client"
    local got=$?
    [ $got = "$1" ] || fail "exit status $got, not $1: $(cat c.log)"
}

expect_said() { # PATTERN
    grep -q -- "$1" c.log || fail "does not say '$1': $(cat c.log)"
}

expect_not_said() { # PATTERN
    ! grep -q -- "$1" c.log || fail "says '$1': $(cat c.log)"
}

nothing_beside() { # FOLDER
    [ -z "$(find "$1" -name '.weir-*')" ] || fail "left over: $(find "$1" -name '.weir-*')"
}

# 61 files, 16.0 MiB: small ones, a large one in their middle, names of one file, a link. The folders are in $order as
# they are read.
make_tree() { # FOLDER
    local i
    mkdir -p "$1/a" "$1/b" "$1/c"
    mapfile -t order < <(ls -U "$1")
    for i in $(seq 20); do
        echo "$i" >"$1/${order[0]}/$i"
        echo "$i" >"$1/${order[2]}/$i"
        ln "$1/${order[0]}/$i" "$1/${order[1]}/$i"
    done
    head -c 16M /dev/urandom >"$1/${order[1]}/large"
    ln -s large "$1/${order[1]}/link"
    touch -d '2001-02-03 04:05:06' "$1/a" "$1/b" "$1/c" "$1"
}

times() { # FOLDER
    (cd "$1" && find . -printf '%P %m %T@ %n %l\n' | LC_ALL=C sort)
}

is_whole() { # FOLDER
    diff -r --no-dereference tree "$1" >diff.txt || fail "not the same: $(head -3 diff.txt)"
    [ "$(times tree)" = "$(times "$1")" ] || fail "not the same: $(diff <(times tree) <(times "$1") | head -4)"
    nothing_beside "$1"
}

case_push() { # the server is killed and comes again: nothing is sent twice, and all is counted once
    mkdir root
    make_tree tree
    serve a.log
    begin -aHv tree "$url/new"
    in_the_middle root
    kill_server
    until_true says c.log 'trying again for 30 s' || fail "the loss is not said: $(cat c.log)"
    serve b.log
    ends 0
    is_whole root/new
    expect_said 'connected again after'
    expect_said '^61 files, 16.0 MiB in .*MiB of it had come before;.* connected again 1 time, '
    [ -z "$(grep '^new' c.log | grep -v '/$' | sort | uniq -d)" ] || fail "said twice: $(sort c.log | uniq -d)"
    kill_server
}

lost_twice() {
    [ "$(grep -c '"reconnecting"' c.log)" = 2 ]
}

case_pull() { # the same from there, twice, as events; what was there before is not counted as copied
    mkdir root here
    make_tree tree
    cp -a tree root/tree
    mkdir here/tree
    cp -a "tree/$(ls -U root/tree | head -1)" here/tree
    serve a.log
    begin -aH --json "$url/tree" here
    in_the_middle here
    kill_server
    until_true says c.log '"event":"reconnecting"' || fail "the loss is not told: $(cat c.log)"
    serve b.log
    until_true says c.log '"event":"reconnected"' || fail "not told: $(cat c.log)"
    kill_server
    until_true lost_twice || fail "the second loss is not told: $(cat c.log)"
    serve c2.log
    ends 0
    is_whole here/tree
    python3 - c.log <<'END' || fail "told wrongly: $(cat c.log)"
import json, sys
events = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
last = events[-1]
assert [e["event"] for e in events if e["event"].startswith("reconn")] == ["reconnecting", "reconnected"] * 2, events
assert last["event"] == "summary" and last["reconnections"] == 2 and last["seconds_disconnected"] > 0, last
assert (last["files"], last["same"], last["symlinks"], last["failed"]) == (41, 20, 1, 0), last
assert 16 << 20 <= last["bytes"] < 17 << 20 and last["kept"] >= 8 << 20, last
done = [e["bytes"] for e in events if e["event"] == "progress"]
assert done == sorted(done), done
END
    kill_server
}

case_problems() { # what cannot be read is said once and counted once; --delete waits for everything
    mkdir root
    make_tree tree
    mkfifo "tree/${order[0]}/fifo"
    cp -a tree root/
    rm "root/tree/${order[1]}/large"
    touch root/tree/c/more
    serve a.log
    begin -rt --verify --delete tree "$url/"
    in_the_middle root
    [ -e root/tree/c/more ] || fail "deleted too early"
    kill_server
    serve b.log
    ends 0
    [ ! -e root/tree/c/more ] || fail "not deleted"
    expect_said '^1 file, 16.0 MiB.*; read back from storage;.* 6[01] unchanged; 1 deleted;.* connected again 1 time'
    [ "$(grep -c 'warning: .*fifo: left out' c.log)" = 1 ] || fail "not said once: $(cat c.log)"
    kill_server
}

case_given_up() { # the time is over: status 4, and the same command goes on
    mkdir root
    make_tree tree
    serve a.log
    begin --timeout 5 -aH tree "$url/new"
    in_the_middle root
    kill_server
    ends 4
    expect_said 'given up after 5 s (--timeout); the same command with --resume goes on'
    has_records root || fail "nothing is left to go on with"
    serve b.log
    expect 0 'MiB of it had come before' "$weir" cp --resume -aH tree/ "$url/new"
    is_whole root/new
    kill_server
    expect 2 'timeout takes' "$weir" cp --timeout 1m tree "$url/"
}

half_there() { # FILE
    [ "$(stat -c %s "$1" 2>/dev/null || echo 0)" -gt 1000000 ]
}

# What would leave alone what the copy itself has made is not gone on with, and does not end as if all had come.
case_left_alone() {
    mkdir root
    make_tree tree
    serve a.log
    begin -u --inplace "tree/${order[1]}/large" "$url/new"
    until_true half_there root/new || fail "nothing is under way: $(cat c.log)"
    kill_server
    ends 4
    expect_not_said 'trying again'
    serve b.log
    begin -aH --ignore-existing --inplace tree "$url/"
    in_the_middle root # under another name: what is there is not written to, and what is not has no other names
    kill_server
    ends 4
    expect_not_said 'trying again'
    rm -r root/tree
    serve d.log
    begin --ignore-existing --inplace "tree/${order[1]}/large" "$url/other"
    in_the_middle root
    kill_server
    until_true says c.log 'trying again' || fail "the loss is not said: $(cat c.log)"
    serve e.log
    ends 0
    cmp root/other "tree/${order[1]}/large" || fail "not the same"
    kill_server
}

case_refused() { # who is told no does not ask again: another key, a path that is none any more
    mkdir root
    make_tree tree
    "$weir" key --name one one.key
    "$weir" key --name one other.key
    serve a.log --keys one.key
    begin --key one.key --timeout 90 -aH tree "$url/"
    in_the_middle root
    kill_server
    serve b.log --keys other.key
    ends 5
    expect_said 'does not know this key'
    kill_server
    serve c2.log --keys one.key
    begin --key one.key --timeout 90 -aHv tree "$url/"
    until_true says c.log 'over weir0' || fail "no connection: $(cat c.log)"
    kill_server
    serve d.log --keys one.key --read-only
    ends 5
    expect_said 'read-only'
    kill_server
}

case_interrupted() { # in the pause, too
    mkdir root
    make_tree tree
    serve a.log
    begin -aH tree "$url/"
    in_the_middle root
    kill_server
    until_true says c.log 'trying again' || fail "the loss is not said: $(cat c.log)"
    interrupt
    ends 130
    expect_said 'interrupted; the same command with --resume goes on'
    has_records root || fail "nothing is left to go on with"
}

case_stuck() { # a server that takes the connection, and never begins, is not waited for longer than --timeout
    mkdir root
    make_tree tree
    LD_PRELOAD=$build/tools/libstuck.so serve a.log
    begin --timeout 3 -r tree/ "$url/new/"
    ends 4
    expect_said 'it is there, but has not begun within 3 s'
    kill_server
}

is_under_way() { # FOLDER
    [ -n "$(find "$1" -name '.weir-*')" ]
}

case_held_up() { # a server whose disk keeps it waiting holds that against nobody
    mkdir -p root/links
    ln -s nowhere root/links/link
    head -c 5M /dev/urandom >slow
    WEIR_STUCK_S=3 LD_PRELOAD=$build/tools/libstuck.so serve a.log --insecure --idle-timeout 1
    begin --bwlimit 1M slow "$url/"
    until_true is_under_way root || fail "nothing is under way: $(cat c.log)"
    "$weir" cp --fabric soft -r "$url/links" . >d.log 2>&1 || fail "no link: $(cat d.log)"
    ends 0
    expect_not_said 'trying again'
    kill_server
}

case_crowded() { # where all places are taken for a while, it waits as for a connection
    mkdir root
    head -c 12M /dev/urandom >large
    "$weir" key --name one one.key || fail "no key"
    serve a.log --keys one.key --max-per-client 1
    begin --key one.key large "$url/"
    in_the_middle root
    kill_server
    until_true says c.log 'trying again' || fail "the loss is not said: $(cat c.log)"
    sleep 5 # then the pauses between two tries are seconds
    serve b.log --keys one.key --max-per-client 1 --json
    "$build/tools/weir_silent" one.key "$WEIR_TEST_HOST:7473" 9 >silent.log 2>&1 &
    pids+=($!)
    until_true says silent.log '^9 let in' || fail "they do not come: $(cat silent.log)"
    ends 0
    says b.log '"event":"stranger".*busy: this server runs 1' || echo '  it was there before them: this shows nothing'
    cmp -s large root/large || fail "not the same"
    kill_server
}

case_inplace() { # half of a file is older than its source: the same command goes on
    mkdir root
    make_tree tree
    cp -p "tree/${order[1]}/large" root/large
    serve a.log
    begin -u --inplace "$url/large" here
    until_true half_there here || fail "nothing is under way: $(cat c.log)"
    interrupt
    ends 130
    expect_said 'interrupted; the same command goes on'
    [ "$(stat -c %Y here)" = 0 ] || fail "it is of $(stat -c %y here)"
    expect 0 '1 file, 16.0 MiB' "$weir" cp -u --inplace "$url/large" here
    cmp root/large here || fail "not the same"
    touch -d @1000000000 root/large
    echo old >other
    begin -I --inplace "$url/large" other
    until_true half_there other || fail "nothing is under way: $(cat c.log)"
    kill -9 "$(cat "/proc/$client/task/$client/children")"
    wait "$client" 2>/dev/null
    if setfattr -n user.probe -v x root/large 2>/dev/null; then # what is half new is newer, and yet no reason to stay
        [ "$(stat -c %Y other)" -gt 1000000000 ] || fail "it is of $(stat -c %y other)"
        expect 0 '1 file, 16.0 MiB' "$weir" cp -u "$url/large" other
        cmp root/large other || fail "not the same"
    fi
    kill_server
}

case_link() { # is down: the server, which has not noticed, ends the old session for the new one
    mkdir root
    make_tree tree
    [ "$WEIR_TEST_FAR" = far ] || return
    serve a.log
    begin -aH tree "$url/"
    in_the_middle root
    ip link set weir0 down
    until_true says c.log 'trying again' || fail "the loss is not said: $(cat c.log)"
    ip link set weir0 up
    ip addr add fd78::1/64 dev weir0 nodad
    ends 0
    is_whole root/tree
    expect_said 'MiB of it had come before'
    expect_not_said 'another copy is writing it'
    until_true says a.log 'lost: .*is kept' || fail "the server does not say it: $(cat a.log)"
    grep -q 'its client has come again' a.log || echo "  the server had noticed by itself"
    kill_server
}

case_narrow() { # an interface that takes no packets as long as before is the reason that is told; the copy goes on in shorter ones
    mkdir root
    make_tree tree
    [ "$WEIR_TEST_FAR" = far ] || return
    ip link set weir0 mtu 9000
    far ip link set weir0 mtu 9000
    serve a.log
    begin -aH tree "$url/"
    in_the_middle root
    ip link set weir0 mtu 1500
    ends 0
    is_whole root/tree
    expect_said 'packets are longer than the 1500 bytes that the way to the peer takes now.*trying again'
    kill_server
    far ip link set weir0 mtu 1500
}

run_cases "$@"
