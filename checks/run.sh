#!/usr/bin/env bash
# All checks, and for each an input that must fail, so that a check that stops checking is noticed.
# Usage: checks/run.sh BUILD_DIR
set -u
build=$(realpath "${1:?build directory}")
cd "$(dirname "$0")/.." || exit 2
passed=0 failed=0

expect() { # WANTED_STATUS NAME COMMAND...
    local wanted=$1 name=$2 output status
    shift 2
    output=$("$@" 2>&1)
    status=$?
    if [ "$wanted" = pass ] && [ $status = 0 ]; then
        echo "ok   $output"
        passed=$((passed + 1))
    elif [ "$wanted" = fail ] && [ $status = 1 ]; then
        echo "ok   $name: the canary is caught"
        passed=$((passed + 1))
    else
        echo "FAIL $name (status $status, wanted to $wanted)"
        echo "$output" | sed 's/^/     /'
        failed=$((failed + 1))
    fi
}

documents_canary() { # fails as it must if all is told that is wrong with its pages
    local folder=checks/canary/documents said line
    said=$(checks/documents.py . "$folder"/*.md "$folder"/*.1) && return 0
    while IFS= read -r line; do
        grep -qF -- "$line" <<<"$said" || { echo "not told: $line"; return 0; }
    done <"$folder/told"
    return 1
}

object=$(mktemp --suffix=.o) point=$(mktemp --suffix=.o)
trap 'rm -f "$object" "$point"' EXIT
${CC:-cc} -c -o "$object" checks/canary/system_call.c
${CC:-cc} -c -o "$point" checks/canary/cancellation_point.c

expect pass includes checks/includes.py checks/layers.txt .
expect fail includes checks/includes.py checks/layers.txt checks/canary rnic/wire/upward.c
expect pass functions checks/functions.py checks/ratchet.txt .
expect fail functions checks/functions.py checks/ratchet.txt . checks/canary/long.c
expect pass symbols checks/symbols.sh "$build/rnic/libcore.a"
expect fail symbols checks/symbols.sh "$object"
expect pass cancellation checks/cancellation.sh "$build"/rnic/io/libio.a.p/*.o
expect fail cancellation checks/cancellation.sh "$point"
expect pass headers checks/headers.sh .
expect fail headers checks/headers.sh . checks/canary/needs_more.h
expect pass documents checks/documents.py .
expect fail documents documents_canary
expect pass planted checks/planted.sh .
expect fail planted checks/planted.sh . checks/canary/planted.patch
expect fail planted checks/planted.sh . checks/canary/moved.patch
expect pass format checks/format.sh .
expect fail format checks/format.sh . checks/canary/unformatted.c

echo "checks: $passed passed, $failed failed"
[ $failed = 0 ]
