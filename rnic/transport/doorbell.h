/* How application threads tell the engine which queue pairs have new work: a stack that any thread
 * pushes to without a lock and that the engine takes whole, so that no ABA can be. */
#ifndef WEIR_TRANSPORT_DOORBELL_H
#define WEIR_TRANSPORT_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Embedded in the queue pair. Zeroed: not rung. */
struct doorbell_link {
    struct doorbell_link *next;
    atomic_bool rung;
};

struct doorbell {
    _Atomic(struct doorbell_link *) top;
};

/* Any thread. True if the link was not rung already. */
static inline bool doorbell_ring(struct doorbell *doorbell, struct doorbell_link *link)
{
    /* A full exchange, also when it is rung already: it orders the posted work before the flag
     * that doorbell_answer clears before looking at the queue. */
    if (atomic_exchange(&link->rung, true)) {
        return false;
    }
    struct doorbell_link *top = atomic_load_explicit(&doorbell->top, memory_order_relaxed);
    do {
        link->next = top;
    } while (!atomic_compare_exchange_weak(&doorbell->top, &top, link));
    return true;
}

static inline bool doorbell_is_rung(const struct doorbell *doorbell)
{
    return atomic_load(&doorbell->top) != NULL;
}

/* Engine: takes all links, the one that was rung first in front; NULL if there is none. Each is
 * then to be given to doorbell_answer once. */
static inline struct doorbell_link *doorbell_take(struct doorbell *doorbell)
{
    if (atomic_load_explicit(&doorbell->top, memory_order_relaxed) == NULL) {
        return NULL;
    }
    struct doorbell_link *link = atomic_exchange(&doorbell->top, NULL);
    struct doorbell_link *reversed = NULL;
    while (link != NULL) {
        struct doorbell_link *next = link->next;
        link->next = reversed;
        reversed = link;
        link = next;
    }
    return reversed;
}

/* Makes the link ringable again and returns the one behind it. Work posted before a ring that this
 * answers is visible afterwards. */
static inline struct doorbell_link *doorbell_answer(struct doorbell_link *link)
{
    struct doorbell_link *next = link->next;
    atomic_exchange(&link->rung, false);
    return next;
}

#endif
