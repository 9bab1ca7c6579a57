/* What a latency is taken with: the processor's counter, where the kernel tells time by it, for it
 * is read in 10 ns; else CLOCK_MONOTONIC, whose 23 ns are a tenth of the shortest round trip. */
#ifndef TOOLS_BENCH_STOPWATCH_H
#define TOOLS_BENCH_STOPWATCH_H

#include <stdint.h>

#include "tools/bench/clock.h"

struct stopwatch {
    double ns_per_tick; /* 0: ticks are nanoseconds, of the clock */
};

extern struct stopwatch stopwatch;

/* Learns how fast the counter is, in some 20 ms. Before that the clock is read. */
void stopwatch_init(void);
/* What is read, static. */
const char *stopwatch_name(void);

static inline uint64_t stopwatch_ticks(void)
{
#if defined __x86_64__
    if (stopwatch.ns_per_tick > 0) {
        return __builtin_ia32_rdtsc();
    }
#endif
    return clock_now_ns();
}

/* Of a difference. */
static inline uint64_t stopwatch_ns(uint64_t ticks)
{
    return stopwatch.ns_per_tick > 0 ? (uint64_t)((double)ticks * stopwatch.ns_per_tick) : ticks;
}

#endif
