#!/usr/bin/env bash
# Every planted bug still applies, and what it changes compiles: a change that moves the lines it stands
# in is told so at once, and not at the end of CI. Usage: planted.sh ROOT [PATCH...]
set -u
cd "$1" || exit 2
shift
[ $# -gt 0 ] || set -- sim/planted/*.patch
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r rnic weir include "$copy"
bad=0
for planted in "$@"; do
    if ! patch -d "$copy" -p1 -s -f --no-backup-if-mismatch <"$planted" >"$copy/log" 2>&1; then
        echo "planted: $planted does not apply"
        bad=1
        rm -rf "$copy/rnic" "$copy/weir"
        cp -r rnic weir "$copy"
        continue
    fi
    for file in $(sed -n 's|^+++ b/\(.*\.c\)$|\1|p' "$planted"); do
        (cd "$copy" && ${CC:-cc} -std=c11 -D_GNU_SOURCE -Wall -Werror=implicit-function-declaration \
            -fsyntax-only -Iinclude -I. "$file" 2>log) ||
            { echo "planted: $file does not compile with $planted"; head -3 "$copy/log"; bad=1; }
    done
    patch -d "$copy" -p1 -s -f -R --no-backup-if-mismatch <"$planted"
done
[ $bad = 0 ] && echo "planted: $# apply"
exit $bad
