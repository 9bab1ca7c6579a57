#!/bin/sh
# Runs both ends of an example and checks what comes of it.
# Usage: run.sh FOLDER_OF_PROGRAMS NAME
set -eu
programs=$1
name=$2
host=${WEIR_TEST_ADDRESS:-127.0.0.1}
scratch=$(mktemp -d)
server=
trap 'status=$?; [ -z "$server" ] || kill "$server" 2>/dev/null || :; rm -rf "$scratch"; exit $status' EXIT
trap 'exit 143' TERM INT

# Starts the server and waits for the address that it prints.
start() {
    mkfifo "$scratch/pipe"
    "$@" >"$scratch/pipe" &
    server=$!
    exec 3<"$scratch/pipe"
    read -r address <&3
    rm "$scratch/pipe"
}

# The server must end well too, by itself.
finish() {
    outcome=0
    wait "$server" || outcome=$?
    server=
    exec 3<&-
    return $outcome
}

case $name in
file)
    mkdir "$scratch/in" "$scratch/out"
    for size in 0 1 262144 262145 9000001; do
        head -c $size /dev/urandom >"$scratch/in/data.$size"
        start "$programs/file" server "$scratch/out" "$host:0"
        "$programs/file" client "$address" "$scratch/in/data.$size"
        finish
        cmp "$scratch/in/data.$size" "$scratch/out/data.$size"
    done
    # Who comes while one is served is refused, and ends nothing.
    mkfifo "$scratch/in/slow"
    start "$programs/file" server "$scratch/out" "$host:0"
    "$programs/file" client "$address" "$scratch/in/slow" &
    client=$!
    exec 4>"$scratch/in/slow"
    while [ ! -e "$scratch/out/slow" ] && kill -0 $client; do sleep 0.02; done
    if "$programs/file" client "$address" "$scratch/in/data.1"; then
        echo "a second client was served" >&2
        exit 1
    fi
    echo whole >&4
    exec 4>&-
    wait $client
    finish
    [ "$(cat "$scratch/out/slow")" = whole ]
    # Nothing is overwritten.
    cp "$scratch/in/data.1" "$scratch/in/data.0"
    start "$programs/file" server "$scratch/out" "$host:0"
    if "$programs/file" client "$address" "$scratch/in/data.0"; then
        echo "an existing file was overwritten" >&2
        exit 1
    fi
    if finish; then
        echo "the server saw no error" >&2
        exit 1
    fi
    [ ! -s "$scratch/out/data.0" ]
    # Half a file does not stay: of a client that is killed, or where the disk takes no more.
    mkfifo "$scratch/in/half"
    start "$programs/file" server "$scratch/out" "$host:0"
    "$programs/file" client "$address" "$scratch/in/half" &
    client=$!
    exec 4>"$scratch/in/half"
    head -c 300000 /dev/zero >&4
    while [ ! -s "$scratch/out/half" ] && kill -0 $client; do sleep 0.02; done
    kill -9 $client
    exec 4>&-
    if finish; then
        echo "the server saw no error" >&2
        exit 1
    fi
    [ ! -e "$scratch/out/half" ]
    rm "$scratch/out/data.9000001"
    start sh -c 'ulimit -f 8000; trap "" XFSZ; exec "$@"' sh "$programs/file" server "$scratch/out" "$host:0"
    if "$programs/file" client "$address" "$scratch/in/data.9000001" >"$scratch/said" || finish; then
        echo "a file was whole on a full disk" >&2
        exit 1
    fi
    grep -q 'File too large' "$scratch/said"
    ;;
group)
    # Four members; then one is killed, and one leaves.
    members=
    trap 'status=$?; for member in $members; do kill -9 "$member" 2>/dev/null || :; done; rm -rf "$scratch"; exit $status' EXIT
    addresses=
    for rank in 0 1 2 3; do
        mkfifo "$scratch/in$rank" "$scratch/out$rank"
        "$programs/group" member <"$scratch/in$rank" >"$scratch/out$rank" 4>&- 5>&- 6>&- & # which has no others' inputs
        members="$members $!"
        eval "member$rank=$!"
        eval "exec $((4 + rank))>\"\$scratch/in$rank\""
        read -r address <"$scratch/out$rank"
        addresses="$addresses $address"
    done
    for rank in 0 1 2 3; do echo "$rank$addresses" >&$((4 + rank)); done
    "$programs/group" call $addresses | tee "$scratch/said"
    grep -qx '4 of 4 replied, and their ranks add up to 6' "$scratch/said"
    kill -9 $member1
    "$programs/group" call $addresses | tee "$scratch/said"
    grep -qx '3 of 4 replied, and their ranks add up to 5' "$scratch/said"
    grep -q '^1 from rank 1: ' "$scratch/said"
    exec 6>&-
    wait $member2
    "$programs/group" call $addresses | tee "$scratch/said"
    grep -qx '2 of 4 replied, and their ranks add up to 3' "$scratch/said"
    exec 4>&- 7>&-
    wait $member0
    wait $member3
    members=
    ;;
*)
    # What is no count is wrong usage, not another count.
    for count in 0 -1 many; do
        [ "$name" = echo ] || continue
        if "$programs/echo" client "$host:1" $count 2>"$scratch/said"; then exit 1; fi
        grep -q usage "$scratch/said"
    done
    start "$programs/$name" server "$host:0"
    "$programs/$name" client "$address"
    finish
    # Nobody listens there any more.
    if "$programs/$name" client "$address"; then
        echo "a connection to nobody" >&2
        exit 1
    fi
    ;;
esac
