#!/bin/sh
# An archive in one object, whose hidden names are local. What link-time optimizers read is left out: it knows nothing of that.
# Usage: archive.sh IN OUT OBJCOPY AR CC...
set -eu
in=$1 out=$2 objcopy=$3 ar=$4
shift 4
object=$(dirname "$out")/libweir.o
"$@" -r -nostdlib -fno-lto -o "$object" -Wl,--whole-archive "$in" -Wl,--no-whole-archive
"$objcopy" --localize-hidden --remove-section='.gnu.lto_*' --remove-section='.gnu.debuglto_*' "$object"
rm -f "$out"
"$ar" rcsD "$out" "$object"
rm -f "$object"
