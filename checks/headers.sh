#!/usr/bin/env bash
# Every header compiles alone; the installed ones also as C++ and without the project's root.
# Usage: headers.sh ROOT [HEADER...]
set -u
cd "$1" || exit 2
shift
[ $# -gt 0 ] || set -- $(find rnic weir tools sim include test -name '*.h')
bad=0
for header in "$@"; do
    flags="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Werror -fsyntax-only -Iinclude"
    echo "#include \"$header\"" | ${CC:-cc} $flags -I. -x c - 2>/tmp/headers.$$ ||
        { echo "headers: $header does not compile alone"; head -3 /tmp/headers.$$; bad=1; }
    case $header in include/*)
        echo "#include <${header#include/}>" | c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only \
            -Iinclude -x c++ - 2>/tmp/headers.$$ ||
            { echo "headers: $header is not valid C++"; head -3 /tmp/headers.$$; bad=1; } ;;
    esac
done
rm -f /tmp/headers.$$
[ $bad = 0 ] && echo "headers: $# compile alone"
exit $bad
