#!/usr/bin/env bash
# The models of what no test can try in all orders: spin explores them whole. Each mistake that is planted must be
# found, or the model says nothing. Skipped where there is no spin.
set -eu
here=$(dirname "$(realpath "$0")")
command -v spin >/dev/null || { echo "no spin here"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# explore MODEL: 0 if nothing is violated.
explore() {
    spin -a "$1" >spin.log && ${CC:-cc} -O2 -w -DSAFETY -o pan pan.c || { cat spin.log; exit 1; }
    ./pan -m1000000 >pan.log 2>&1
    grep -q "max search depth too small" pan.log && { echo "$1: not explored whole"; exit 1; }
    grep -q "errors: 0" pan.log
}

explore "$here/lock.pml" || { echo "lock: violated"; cat pan.log; exit 1; }
grep "states, stored" pan.log
plant() {
    sed "$2" "$here/lock.pml" >planted.pml
    ! cmp -s planted.pml "$here/lock.pml" || { echo "$1: not planted"; exit 1; }
    ! explore planted.pml || { echo "$1: not found"; exit 1; }
    echo "found: $1"
}
plant "no fence where a favour is ended" 's|heavy_fence(); /\* 1 \*/|skip;|'
plant "no fence where a try gives up" 's|heavy_fence(); /\* 2 \*/|skip;|'
plant "no second look" 's|if :: favour == FAVOURED -> has = 1; by_favour = 1 /\* 3 \*/|if :: has = 1; by_favour = 1|; s|:: else -> write(0)$||'
plant "who gives for another empties no place of that one's" 's|is_given_late = 1 /\* 4 \*/|state = 0|'
