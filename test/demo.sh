#!/usr/bin/env bash
# The main job on real input: a tree and a file of over 5 GiB go from one process to another, in two
# network namespaces (or over loopback where those are not allowed), and are compared afterwards.
# What this user may not read is left out, as /usr/share/polkit-1/rules.d where that is installed.
# Usage: demo.sh BUILD_DIR [--tree DIR] [--gib N] [--work DIR]
set -eu
build=$(realpath "$1")
shift
tree=/usr/share gib=5.25 work=
while [ $# -gt 0 ]; do
    case $1 in
        --tree) tree=$2; shift 2 ;;
        --gib) gib=$2; shift 2 ;;
        --work) work=$2; shift 2 ;;
        *) echo "demo: unknown argument $1" >&2; exit 2 ;;
    esac
done
here=$(dirname "$(realpath "$0")")
tree=$(realpath -e "$tree")
[[ $gib =~ ^[0-9]+(\.[0-9]+)?$ ]] || { echo "demo: --gib takes a number, not $gib" >&2; exit 2; }

if [ -z "${WEIR_DEMO_PLACE:-}" ]; then
    export WEIR_DEMO_PLACE="two network namespaces joined by veth" WEIR_DEMO_FAR=far \
        WEIR_DEMO_HOST=10.78.0.2
    "$here/namespaces.sh" --mtu 9000 "$here/demo.sh" "$build" --tree "$tree" --gib "$gib" --work "$work" &&
        exit 0 || status=$?
    [ $status = 77 ] || exit $status
    export WEIR_DEMO_PLACE="loopback (network namespaces are not allowed here)" WEIR_DEMO_FAR= \
        WEIR_DEMO_HOST=127.0.0.1
fi

# Room for the source file, both copies and some.
need_kib=$(awk "BEGIN {printf \"%.0f\", $gib * 2 * 1048576 * 1.02}")
need_kib=$((need_kib + $(du -skL --apparent-size "$tree" 2>/dev/null | cut -f1) * 12 / 10))
if [ -z "$work" ]; then
    for candidate in "${TMPDIR:-/tmp}" /var/tmp "$HOME" .; do
        free=$(df -Pk "$candidate" 2>/dev/null | awk 'NR == 2 {print $4}')
        if [ "${free:-0}" -gt "$need_kib" ]; then work=$candidate; break; fi
    done
fi
[ -n "$work" ] || { echo "demo: no place with $((need_kib / 1048576)) GiB free; name one with --work" >&2; exit 1; }

dir=$(mktemp -d "$work/weir-demo.XXXXXX")
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT INT TERM

echo "Weir demo, on $WEIR_DEMO_PLACE"
echo "Making a file of $gib GiB of random bytes in $dir"
bytes=$(awk "BEGIN {printf \"%.0f\", $gib * 1073741824}")
# A keystream from a random key: random bytes at the speed of the disk.
if command -v openssl >/dev/null; then
    openssl enc -aes-128-ctr -nosalt -pass "pass:$RANDOM$RANDOM" -pbkdf2 </dev/zero 2>/dev/null |
        head -c "$bytes" >"$dir/big"
else
    head -c "$bytes" /dev/urandom >"$dir/big"
fi
mkdir "$dir/server"

unreadable=('(' ! -type l ! -readable -o -type d ! -executable ')' -prune)
find "$tree" "${unreadable[@]}" -print >"$dir/left-out"
options=(-r)
if [ -s "$dir/left-out" ]; then
    sed 's/^/Left out, for this user may not read it: /' "$dir/left-out"
    sed "s|^${tree%/*}||; s|[][*?\\]|\\\\&|g" "$dir/left-out" >"$dir/rules"
    options+=(--exclude-from "$dir/rules")
fi

${WEIR_DEMO_FAR:-} "$build/weir" serve --listen "$WEIR_DEMO_HOST:7471" --root "$dir/server" --insecure \
    >"$dir/server.log" 2>&1 &
server=$!
for _ in $(seq 100); do
    grep -q 7471 "$dir/server.log" && break
    kill -0 $server 2>/dev/null || { cat "$dir/server.log" >&2; exit 1; }
    sleep 0.1
done
cat "$dir/server.log"

echo
echo "\$ weir cp $dir/big weir://$WEIR_DEMO_HOST/big"
"$build/weir" cp "$dir/big" "weir://$WEIR_DEMO_HOST/big"
echo "\$ weir cp ${options[*]} $tree weir://$WEIR_DEMO_HOST/tree"
"$build/weir" cp "${options[@]}" "$tree" "weir://$WEIR_DEMO_HOST/tree"

echo
echo "Comparing what arrived with what was sent"
digest_there=$(sha256sum <"$dir/server/big")
digest_here=$(sha256sum <"$dir/big")
echo "  sha256 here  ${digest_here%% *}"
echo "  sha256 there ${digest_there%% *}"
[ "$digest_here" = "$digest_there" ] || { echo "demo: THE FILES DIFFER" >&2; exit 1; }
files=$(find "$tree" "${unreadable[@]}" -o -type f -print | wc -l)
sed 's|\(.*\)/|Only in \1: |' "$dir/left-out" >"$dir/only-here"
! LC_ALL=C diff -r --no-dereference "$tree" "$dir/server/tree" 2>&1 | grep -vxF -f "$dir/only-here" ||
    { echo "demo: THE TREES DIFFER" >&2; exit 1; }
[ "$files" = "$(find "$dir/server/tree" -type f | wc -l)" ]
echo "  diff -r: $files files are the same"
echo
echo "Done: $gib GiB in one file and $files files in a tree are whole on the other side."
