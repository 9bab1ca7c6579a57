#!/usr/bin/env bash
# What the core leaves undefined must be nothing but string.h, the CHECK handler, ISA-L's CRC and libgcc's picture of the processor:
# proof that it makes no system call, reads no clock, takes no lock, allocates nothing.
# Usage: symbols.sh ARCHIVE|OBJECT
set -eu
allowed='^(memcpy|memmove|memset|memcmp|check_failed|crc32_gzip_refl|__cpu_model|_GLOBAL_OFFSET_TABLE_|__(asan|ubsan|tsan|sanitizer|stack_chk).*)$'
defined=$(nm --defined-only -g "$1" 2>/dev/null | awk 'NF == 3 {print $3}' | sort -u)
bad=$(nm -u "$1" 2>/dev/null | awk '$1 == "U" {print $2}' | sort -u | grep -Ev "$allowed" |
    comm -23 - <(echo "$defined") || true)
if [ -n "$bad" ]; then
    echo "symbols: the core needs what it must not:" $bad
    exit 1
fi
echo "symbols: the core needs only" $(nm -u "$1" 2>/dev/null | awk '$1 == "U" {print $2}' | sort -u |
    comm -23 - <(echo "$defined") | grep -Ev '^(__|_GLOBAL)')
