/* The clocks that pace and measure a copy. */
#ifndef TOOLS_TRANSFER_CLOCK_H
#define TOOLS_TRANSFER_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nanoseconds since a moment that stays the same while the host is up. */
static inline uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

/* Nanoseconds that the calling thread has had a processor for. */
static inline uint64_t worked_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

#endif
