/* Timers of one device, intrusive, so that nothing is allocated and no capacity is needed. Equal
 * deadlines come due in the order in which they were set. Setting and cancelling one that was set
 * lately touches what was set lately, however many there are. */
#ifndef WEIR_BASE_TIMERS_H
#define WEIR_BASE_TIMERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/base/time.h"

/* Embedded in its owner (see CONTAINER_OF). Zeroed: not set. */
struct timer {
    struct instant deadline;
    uint64_t order; /* 0: not set */
    struct timer *child;
    struct timer *next;     /* sibling, or in line */
    struct timer *previous; /* the same; the parent of a first child */
};

struct timers {
    struct timer *root;         /* of a heap */
    struct timer *first, *last; /* in line, the earliest in front */
    uint64_t last_order;
};

void timers_init(struct timers *timers);

/* Sets a timer or moves one that is set; INSTANT_NEVER cancels it. */
void timers_set(struct timers *timers, struct timer *timer, struct instant deadline);

/* A timer that is not set is allowed. */
void timers_cancel(struct timers *timers, struct timer *timer);

static inline bool timer_is_set(const struct timer *timer)
{
    return timer->order != 0;
}

/* INSTANT_NEVER if none is set. */
static inline struct instant timers_earliest(const struct timers *timers)
{
    struct instant heap = timers->root == NULL ? INSTANT_NEVER : timers->root->deadline;
    return timers->first == NULL ? heap : instant_earlier(heap, timers->first->deadline);
}

/* No other is set. */
static inline bool timers_have_only(const struct timers *timers, const struct timer *timer)
{
    return (timers->root == NULL && timers->first == timer && timers->last == timer) ||
           (timers->first == NULL && timers->root == timer && timer->child == NULL);
}

/* Takes out the earliest timer whose deadline is `now` or before; NULL if none is due. It is no
 * longer set then. */
struct timer *timers_pop_due(struct timers *timers, struct instant now);

#endif
