/* The clocks that pace and measure a copy. */
#ifndef TOOLS_TRANSFER_CLOCK_H
#define TOOLS_TRANSFER_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since a moment that stays the same while the host is up. */
static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nanoseconds that the calling thread has had a processor for. */
static inline uint64_t worked_ns(void)
{
    struct timespec worked;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &worked);
    return (uint64_t)worked.tv_sec * 1000000000u + (uint64_t)worked.tv_nsec;
}

#endif
