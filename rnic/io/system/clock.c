#include "rnic/io/system/clock.h"

#include <stdbool.h>
#include <time.h>

struct instant clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (struct instant){(uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec};
}

void clock_rest(uint64_t ns)
{
    struct instant began = clock_now();
    do {
#if defined __x86_64__
        __builtin_ia32_pause();
#elif defined __aarch64__
        __asm__ volatile("yield");
#endif
    } while (instant_elapsed_ns(began, clock_now()) < ns);
}

#define ASIDE_TICKS  4096u /* a reading that took longer does not say what a tick is worth */
#define SPAN_TICKS   (UINT64_C(1) << 15) /* for so long a reading is good, some microseconds */
#define LEARN_NS     1000000u
#define FORGET_NS    1000000000u
#define RATE_PER_NS  (UINT64_C(1) << 32) /* of one tick in a nanosecond */
#define TICKS_PER_NS 16u                 /* no counter is faster */

/* 0: there is no counter. */
static inline uint64_t ticks_now(void)
{
#if defined __x86_64__
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

static void learn(struct quick_clock *clock)
{
    uint64_t elapsed_ns = instant_elapsed_ns(clock->first, clock->read);
    uint64_t ticks = clock->ticks - clock->first_ticks;
    uint64_t before = clock->rate;
    bool starts = clock->first.ns == 0 || clock->ticks <= clock->first_ticks;
    if (!starts && elapsed_ns >= LEARN_NS && elapsed_ns <= FORGET_NS) {
        uint64_t rate = elapsed_ns * RATE_PER_NS / ticks;
        uint64_t change = rate > before ? rate - before : before - rate;
        bool is_sound = rate >= RATE_PER_NS / TICKS_PER_NS && rate <= RATE_PER_NS * TICKS_PER_NS &&
                        (before == 0 || change < before / 64);
        clock->rate = is_sound ? rate : 0;
        starts = !is_sound; /* it has jumped: another processor's, or another machine's */
    }
    if (starts || elapsed_ns > FORGET_NS) {
        clock->first = clock->read;
        clock->first_ticks = clock->ticks;
    }
}

static struct instant give(struct quick_clock *clock, uint64_t ns)
{
    if (clock->given.ns < ns) {
        clock->given.ns = ns;
    }
    return clock->given;
}

void quick_clock_set(struct quick_clock *clock, uint64_t before, struct instant read,
                     uint64_t after)
{
    clock->read = read;
    clock->ticks = before;
    if (after - before < ASIDE_TICKS) {
        learn(clock);
    } else {
        clock->ticks -= SPAN_TICKS; /* somewhere between: nothing goes on from there */
    }
}

struct instant quick_clock_now(struct quick_clock *clock)
{
    uint64_t ticks = ticks_now();
    uint64_t since = ticks - clock->ticks;
    if (since < SPAN_TICKS && clock->rate != 0) {
        return give(clock, clock->read.ns + (since * clock->rate >> 32));
    }
    struct instant read = clock_now();
    quick_clock_set(clock, ticks, read, ticks_now());
    return give(clock, read.ns);
}
