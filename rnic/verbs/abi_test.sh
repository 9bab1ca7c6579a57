#!/bin/sh
# The exported names of a library, with their versions, are those of a list, and nothing else is.
# usage: abi_test.sh LIBRARY LIST [NODE]    names of node NODE are our own and not in the list
# A line of the list: NAME NODE, with "hidden" behind it where the linker must not choose it.
set -eu
library=$1
list=$2
own=${3:-none}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Defined symbols as "name version"; the nodes themselves are absolute symbols.
readelf -W --dyn-syms "$library" |
    awk '$7 != "UND" && $7 != "ABS" && $8 ~ /@/ { hidden = $8 ~ /@@/ ? "" : " hidden"; sub(/@+/, " ", $8)
         print $8 hidden }' |
    grep -v " $own\$" | LC_ALL=C sort >"$work/exported"
grep -v '^#' "$list" | LC_ALL=C sort >"$work/wanted"
[ -s "$work/exported" ] || { echo "no versioned symbols in $library"; exit 1; }
if ! diff -u "$work/wanted" "$work/exported"; then
    echo "exports of $library are not those of $list"
    exit 1
fi

# Nothing unversioned may be visible: it would stand before every other library's.
if readelf -W --dyn-syms "$library" |
    awk '$5 != "LOCAL" && $7 != "UND" && $7 != "ABS" && $8 != "" && $8 != "Name" && $8 !~ /@/ { print $8; bad = 1 }
         END { exit !bad }'; then
    echo "unversioned symbols of $library are visible"
    exit 1
fi

# No object of ours may depend on a vendor library or a system copy by another name.
readelf -d "$library" | awk '/NEEDED/ { print $5 }' |
    grep -vE '^\[(libibverbs\.so\.1|libisal\.so\.2|libc\.so\.6|libpthread\.so\.0|libm\.so\.6|libgcc_s\.so\.1|ld-linux.*|lib(a|t|ub)san\.so.*)\]$' &&
    { echo "$library needs more than it should"; exit 1; }
exit 0
