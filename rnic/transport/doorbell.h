/* How application threads tell the engine which queue pairs have new work: a stack that any thread
 * pushes to without a lock and that the engine takes whole, so that no ABA can be. */
#ifndef WEIR_TRANSPORT_DOORBELL_H
#define WEIR_TRANSPORT_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Embedded in the queue pair. Zeroed: not rung. Else DOORBELL_RUNG and the address of the link
 * behind it. */
struct doorbell_link {
    _Atomic uintptr_t word;
};

#define DOORBELL_RUNG ((uintptr_t)1)

struct doorbell {
    _Atomic(struct doorbell_link *) top;
};

static inline struct doorbell_link *doorbell_behind(struct doorbell_link *link)
{
    uintptr_t word = atomic_load_explicit(&link->word, memory_order_relaxed);
    return (struct doorbell_link *)(word & ~DOORBELL_RUNG);
}

static inline void doorbell_put(struct doorbell_link *link, struct doorbell_link *behind)
{
    atomic_store_explicit(&link->word, (uintptr_t)behind | DOORBELL_RUNG, memory_order_relaxed);
}

/* Any thread. True if the link was not rung already. */
static inline bool doorbell_ring(struct doorbell *doorbell, struct doorbell_link *link)
{
    /* A full exchange, also when it is rung already: it orders the posted work before the word
     * that doorbell_answer clears before looking at the queue. */
    if ((atomic_fetch_or(&link->word, DOORBELL_RUNG) & DOORBELL_RUNG) != 0) {
        return false;
    }
    struct doorbell_link *top = atomic_load_explicit(&doorbell->top, memory_order_relaxed);
    do {
        doorbell_put(link, top);
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
        struct doorbell_link *next = doorbell_behind(link);
        doorbell_put(link, reversed);
        reversed = link;
        link = next;
    }
    return reversed;
}

/* Makes the link ringable again and returns the one behind it. Work posted before a ring that this
 * answers is visible afterwards. */
static inline struct doorbell_link *doorbell_answer(struct doorbell_link *link)
{
    struct doorbell_link *next = doorbell_behind(link);
    atomic_exchange(&link->word, 0);
    return next;
}

#endif
