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

/* Only to be read. */
static inline void prefetch_to_read(const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch((const uint8_t *)from + at);
    }
}

/* The line is going to be written to, and another core has it. */
static inline void prefetch_to_write(const void *line)
{
#if defined __x86_64__
    __asm__ volatile("prefetchw %0" : : "m"(*(const uint8_t *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

#endif
