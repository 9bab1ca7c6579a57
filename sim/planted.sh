#!/bin/sh
# Plants known bugs in a copy of the tree, one at a time, and asks the swarm to find each; or, for
# what the swarm does not do, where the patch says "Scenario: NAME", that scenario, and where it says
# "Program: sim_NAME --seeds FROM COUNT ...", that.
#
#   sim/planted.sh [--seeds COUNT] [NAME...]     COUNT is 10000, NAME one of sim/planted/NAME.patch
#
# Prints at which seed each was found, and by which oracle. Ends with 1 if one survives or its patch
# does not apply any more: then either the oracles or the patch need care.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
seeds=10000
if [ "${1:-}" = --seeds ]; then
    seeds=$2
    shift 2
fi
[ $# -gt 0 ] || set -- $(cd "$root/sim/planted" && ls ./*.patch | sed 's|^\./||; s|\.patch$||')

work=$(mktemp -d "${TMPDIR:-/tmp}/weir-planted.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM
tar -C "$root" --exclude=.git --exclude='./build*' --exclude=./.cache -cf - . | tar -C "$work" -xf -
meson setup "$work/build" "$work" >"$work/setup.log" 2>&1 || { cat "$work/setup.log"; exit 1; }
swarm="sim_swarm --seeds 0 $seeds"
build() {
    ninja -C "$work/build" "${1:-sim/sim_swarm}" >"$work/build.log" 2>&1 || { cat "$work/build.log"; return 1; }
}
build

run() { # PROGRAM ARGUMENT...
    program=$1
    shift
    "$work/build/sim/$program" "$@" --quiet --first >"$work/run.log" 2>&1
}

# What the sound tree fails proves nothing about a planted bug.
if ! run $swarm; then
    echo "the sound tree fails: $(grep -m 1 '^seed=' "$work/run.log")"
    exit 1
fi
planted=0
found=0
for name in "$@"; do
    planted=$((planted + 1))
    patch=$root/sim/planted/$name.patch
    if ! patch -d "$work" -p1 -s -f --no-backup-if-mismatch <"$patch" >"$work/patch.log" 2>&1; then
        echo "$name: the patch does not apply"
        cat "$work/patch.log"
        (cd "$root" && tar -cf - rnic weir) | tar -C "$work" -xmf - # newer than what was built of the bug before
        continue
    fi
    scenario=$(sed -n 's/^Scenario: //p' "$patch")
    command=$(sed -n 's/^Program: //p' "$patch")
    command=${command:-$swarm}
    target=${scenario:+scenario_$scenario}
    if ! build "sim/${target:-${command%% *}}"; then
        echo "$name: does not build"
    elif [ -n "$scenario" ]; then
        if "$work/build/sim/scenario_$scenario" >"$work/run.log" 2>&1; then
            echo "$name: SURVIVES scenario $scenario"
        else
            found=$((found + 1))
            echo "$name: $(grep -m 1 'FAILED' "$work/run.log") in scenario $scenario"
        fi
    elif run $command; then
        echo "$name: SURVIVES $command"
    else
        found=$((found + 1))
        echo "$name: $(grep -m 1 '^seed=' "$work/run.log" | cut -c 1-110)"
    fi
    patch -d "$work" -p1 -s -f -R --no-backup-if-mismatch <"$patch"
done
echo "$found of $planted planted bugs found"
[ "$found" -eq "$planted" ]
