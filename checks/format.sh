#!/usr/bin/env bash
# clang-format 14 has nothing to change. Usage: format.sh ROOT [FILE...]
set -u
cd "$1" || exit 2
shift
[ $# -gt 0 ] || set -- $(find rnic weir tools sim include examples fuzz test bench -name '*.[ch]')
if ! clang-format-14 --dry-run -Werror "$@" 2>/tmp/format.$$; then
    grep -E 'error:' /tmp/format.$$ | cut -d: -f1 | sort | uniq -c
    rm -f /tmp/format.$$
    exit 1
fi
rm -f /tmp/format.$$
echo "format: $# files"
