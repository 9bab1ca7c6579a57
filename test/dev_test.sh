#!/usr/bin/env bash
# What ./dev asks of meson where there is a build already, in a folder of its own with stand-ins for all that it calls.
# Usage: dev_test.sh
set -u
source=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/tree" && cd "$work/tree" || exit 1
cp "$source/dev" .
failed=0

stand_in() { # NAME SCRIPT
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
stand_in dpkg-query 'echo ii'
stand_in ninja 'exit 0'
# It writes down its options as the real one does.
stand_in meson '[ "$1" = setup ] || exit 1
echo "$@" >>../asked
for word; do case $word in -D*) word=${word#-D}; line="$line${word%%=*} = ${word#*=}\n" ;; build*) folder=$word ;; esac; done
mkdir -p $folder/meson-private; touch $folder/build.ninja; printf "[options]\n$line" >>$folder/meson-private/cmd_line.txt'
export PATH=$work/bin:$PATH TMPDIR=$work/tmp
mkdir "$TMPDIR"

expect() { # ASKED COMMAND: what meson was asked
    rm -f "$work/asked"
    ./dev "$2" >"$work/said" 2>&1
    local asked
    asked=$(cat "$work/asked" 2>/dev/null)
    [ "$asked" = "$1" ] || { echo "FAIL ./dev $2 asks '$asked', not '$1'"; cat "$work/said"; failed=1; }
}

expect "setup build" build
expect "" build
# The first build had no cmocka; the tests want it.
expect "setup --reconfigure build -Ddeveloper=true -Dtests=enabled" quick
expect "" quick
expect "" build

stand_in ninja 'echo why; exit 1'
./dev build >"$work/said" 2>&1 && { echo "FAIL a build that fails is none"; failed=1; }
grep -qx why "$work/said" || { echo "FAIL a build that fails does not say why"; failed=1; }
[ -z "$(ls "$TMPDIR")" ] || { echo "FAIL left: $(ls "$TMPDIR")"; failed=1; }
./dev --help >/dev/null 2>&1 || { echo "FAIL --help is no command"; failed=1; }

for seconds in 0 x; do
    ./dev fuzz $seconds 2>&1 | grep -q "takes seconds, not '$seconds'" || { echo "FAIL fuzz $seconds may have no end"; failed=1; }
done

# Packages of a later commit are a later version, or apt would not install them.
command -v git >/dev/null && command -v dpkg >/dev/null || exit $failed
mkdir -p packaging/debian
echo "    version: '0.1.0'," >meson.build
touch packaging/debian/control
stand_in dpkg-buildpackage 'exit 1'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@localhost
git init -q . && git add . && git commit -q -m one --date "2026-01-02T03:04:05Z"
version() { # OF A COMMIT'S DATE
    GIT_COMMITTER_DATE=$1 git commit -q --allow-empty -m "$1"
    ./dev package >"$work/said" 2>&1
    sed -n '1s/^weir (\(.*\)) .*/\1/p' build-package/weir-*/debian/changelog
}
first=$(version 2026-01-02T03:04:05+0100)
second=$(version 2026-01-02T03:04:05Z)
dpkg --compare-versions "0.1.0" lt "$first" && dpkg --compare-versions "$first" lt "$second" ||
    { echo "FAIL versions of packages: $first, then $second"; failed=1; }
exit $failed
