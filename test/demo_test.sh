#!/usr/bin/env bash
# The demo, small, as a user who may not read all of the tree. Usage: demo_test.sh BUILD_DIR
set -u
build=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'chmod -R u+rwx "$work/tree"; rm -rf "$work"' EXIT
user=()
if [ "$(id -u)" = 0 ]; then
    chmod 711 "$work"
    user=(setpriv --reuid 61234 --regid 61234 --clear-groups)
    "${user[@]}" test -x "$build/weir" || { echo "another user does not reach $build"; exit 77; }
fi
"${user[@]}" "$here/namespaces.sh" true || { echo "namespaces are not allowed here"; exit 77; }

mkdir -p "$work/tree/open" "$work/tree/closed [1]" "$work/there"
echo one >"$work/tree/open/file"
echo two >"$work/tree/open/secret"
ln -s nowhere "$work/tree/link"
chmod 777 "$work/there"
chmod 000 "$work/tree/closed [1]" "$work/tree/open/secret"

said=$("${user[@]}" "$here/demo.sh" "$build" --tree "$work/tree/" --gib 0.001 --work "$work/there" 2>&1)
status=$?
failed=0
[ $status = 0 ] || { echo "FAIL status $status"; failed=1; }
for line in "Left out, for this user may not read it: $work/tree/closed [1]" \
    "Left out, for this user may not read it: $work/tree/open/secret" "  diff -r: 1 files are the same"; do
    grep -qxF -- "$line" <<<"$said" || { echo "FAIL no line '$line'"; failed=1; }
done
[ $failed = 0 ] || echo "$said"
exit $failed
