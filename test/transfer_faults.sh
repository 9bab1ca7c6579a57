#!/usr/bin/env bash
# Transfers through a bad network: with loss, reordering, duplication and corruption injected into
# both ends' links, a file and a tree go both ways between two namespaces and arrive whole.
# Usage: transfer_faults.sh BUILD_DIR [MIB]
set -eu
build=$(realpath "$1")
mib=${2:-64}
here=$(dirname "$(realpath "$0")")
if [ -z "${WEIR_TEST_FAR:-}" ]; then
    export WEIR_TEST_FAR=far WEIR_TEST_HOST=10.78.0.2
    "$here/namespaces.sh" "$here/transfer_faults.sh" "$build" "$mib" && exit 0 || status=$?
    [ $status = 77 ] || exit $status
    echo "network namespaces are not allowed here: over loopback instead"
    export WEIR_TEST_FAR=env WEIR_TEST_HOST=127.0.0.1
fi

dir=$(mktemp -d)
server=
stop_server() {
    [ -z "$server" ] || { kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; } || true
    server=
}
trap 'stop_server; rm -rf "$dir"' EXIT

head -c $((mib << 20)) /dev/urandom >"$dir/big"
mkdir -p "$dir/tree/deep/er" "$dir/back"
for i in $(seq 300); do
    head -c $((i * i % 70000)) /dev/urandom >"$dir/tree/deep/er/file $i"
done
ln -s "deep/er/file 1" "$dir/tree/link"

value() { # NAME FILE
    awk -v name="$1" '$1 == name || $1 == name ":" || index($0, name "=") == 1 {
        sub(/.*[ =]/, ""); print; found = 1; exit } END { if (!found) print 0 }' "$2"
}

one() { # FAULT
    local fault=$1 begin=$SECONDS
    rm -rf "$dir/root" "$dir/back" "$dir"/*.stat "$dir/server.log"
    mkdir "$dir/root" "$dir/back"
    $WEIR_TEST_FAR env WEIR_FAULT="$fault,seed=11" WEIR_STATISTICS="$dir/server.stat" "$build/weir" \
        serve --fabric soft --insecure --listen "$WEIR_TEST_HOST:7473" --root "$dir/root" \
        >"$dir/server.log" 2>&1 &
    server=$!
    local tries=0
    until grep -qs 7473 "$dir/server.log"; do
        tries=$((tries + 1))
        if ! kill -0 "$server" || [ "$tries" -gt 1200 ]; then cat "$dir/server.log"; exit 1; fi
        sleep 0.05
    done
    export WEIR_FAULT="$fault,seed=12"
    for args in "$dir/big weir://$WEIR_TEST_HOST:7473/big" \
        "-r $dir/tree weir://$WEIR_TEST_HOST:7473/tree" \
        "weir://$WEIR_TEST_HOST:7473/big $dir/back/big" \
        "-r weir://$WEIR_TEST_HOST:7473/tree $dir/back/tree"; do
        WEIR_STATISTICS="$dir/client.stat" timeout 120 "$build/weir" cp -q --fabric soft $args ||
            { echo "FAILED under $fault: weir cp $args (status $?)"; cat "$dir/server.log"; exit 1; }
    done
    unset WEIR_FAULT
    stop_server
    cmp "$dir/big" "$dir/root/big"
    cmp "$dir/big" "$dir/back/big"
    diff -r --no-dereference "$dir/tree" "$dir/root/tree"
    diff -r --no-dereference "$dir/tree" "$dir/back/tree"
    echo "whole under $fault: $mib MiB and 300 files both ways in $((SECONDS - begin)) s;" \
        "server re-sent $(value retransmitted_packets "$dir/server.stat") packets"
}

one loss=0.01
one reorder=0.01
one corrupt=0.001
one loss=0.01,reorder=0.01,duplicate=0.01,corrupt=0.001
