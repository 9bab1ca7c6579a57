/* Things to do at a later time, ordered by it: a heap of timers that live in their owners. */
#ifndef WEIR_CHANNEL_TIMER_H
#define WEIR_CHANNEL_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define MILLISECOND_NS ((uint64_t)1000000)

/* The clock that deadlines are of. */
static inline uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#define TIMER_NEVER UINT64_MAX

struct timer {
    uint64_t deadline_ns;
    size_t place; /* in the heap, from 1; 0: not set */
    void (*fire)(struct timer *timer);
};

struct timers {
    struct timer **heap; /* heap[0] is not used */
    size_t count, capacity;
};

void timers_fini(struct timers *timers);
/* Sets it, or sets it anew. False: no memory. */
bool timers_set(struct timers *timers, struct timer *timer, uint64_t deadline_ns);
/* Not set is fine. */
void timers_cancel(struct timers *timers, struct timer *timer);
uint64_t timers_next_ns(const struct timers *timers);
/* Takes the first that is due at now_ns, unset; NULL if none. */
struct timer *timers_take(struct timers *timers, uint64_t now_ns);

#endif
