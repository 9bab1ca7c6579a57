/* Asks for memory that will be needed soon, without waiting for it. */
#ifndef WEIR_BASE_PREFETCH_H
#define WEIR_BASE_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

static inline void prefetch(const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch((const uint8_t *)from + at, 1);
    }
}

#endif
