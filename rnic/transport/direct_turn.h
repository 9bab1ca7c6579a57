/* What keeps an owner who takes memory back and those who touch it apart, without a lock.
 *
 * Who touches says so in a word of his own (odd), then looks at the owner's guard and table, and
 * moves. The owner hides what he takes back, raises the count in his guard, and then looks at those
 * words. So either the one who touches finds it hidden, or the owner finds him at it and waits. The
 * call that moves compares the guard once more: who was kept from running before it does not make
 * it, but begins again; so one who is known to be stopped outside of the call need not be waited
 * for.
 *
 * A turn is three steps, between which anything may happen: announce, look, move. Not here: how the
 * memory is reached, how long an owner waits. */
#ifndef WEIR_TRANSPORT_DIRECT_TURN_H
#define WEIR_TRANSPORT_DIRECT_TURN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rnic/transport/direct_table.h"

/* Two halves in one word, so that they are compared at once. The owner's; 0: nobody touches. */
struct direct_guard {
    union {
        _Alignas(8) _Atomic uint64_t word;
        struct {
            _Atomic uint32_t life;   /* not 0: the owner lives; whose it is, the link knows */
            _Atomic uint32_t hidden; /* how often something was taken back */
        };
    };
};

/* Of one who touches, written by him alone: odd while he is at it. */
struct direct_announcement {
    _Alignas(64) _Atomic uint32_t count;
    _Atomic uint32_t thread; /* by which; set before */
    _Atomic uint32_t wish;   /* a key whose region he would have made common; the owner clears it */
};

/* How the owner's memory is reached. */
struct direct_mover {
    /* Announced. False: nobody of that life is there. */
    bool (*is_there)(struct direct_mover *mover, uint32_t life);
    /* The parts, which lie at `there`, in order, if the guard is still `guard` when the first
     * begins; false: it has changed, and none was moved whole. Leaves how many were; of the next a
     * part may have been. A part of no bytes: whether any could be moved. */
    bool (*move)(struct direct_mover *mover, uint64_t guard, const struct direct_access *accesses,
                 uint32_t count, const struct direct_there *there, uint32_t *ret_moved);
};

/* One who touches, and an owner. */
struct direct_turn {
    const struct direct_table *table;
    const struct direct_guard *guard;
    struct direct_announcement *announcement;
    struct direct_mover *mover;
    struct direct_seen *seen; /* by him, of the table */
};

/* His word may have been another's, who is gone: nobody is at it now. */
void direct_turn_init(const struct direct_turn *turn);
/* See access in direct.h; `thread` is for who waits. */
uint32_t direct_turn_take(const struct direct_turn *turn, const struct direct_access *accesses,
                          uint32_t count, uint32_t thread);

/* The owner's: waits, in steps, for all who may be at what was hidden before it began. Any thread,
 * any number of them. */
struct direct_wait {
    const struct direct_announcement *announcements;
    uint32_t count;
    uint32_t index;  /* everybody before is not at it any more */
    uint32_t before; /* odd: what he at `index` says, who is waited for */
};

/* `end`: from here on no word was ever anybody's; raised before he announces anything. */
void direct_wait_begin(struct direct_wait *wait, struct direct_guard *guard,
                       const struct direct_announcement *announcements,
                       const _Atomic uint32_t *end);
/* False: not yet, for him at `index`. */
bool direct_wait_is_over(struct direct_wait *wait);
/* He at `index` is not to be waited for. */
void direct_wait_pass(struct direct_wait *wait);

#endif
