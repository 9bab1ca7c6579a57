/* The memory behind transport/direct.h: what a process shows to those of its host, and how one of
 * them touches its memory by a system call of its own.
 *
 * Who is in the right process: it has been read once (pull.h), and the thread that holds its life
 * (life.h) has lived on since. What is compared at the very moment of the call (guarded.h) says so,
 * and that nothing was taken back since the table was looked at. */
#ifndef WEIR_IO_DIRECT_H
#define WEIR_IO_DIRECT_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/io/pull.h"
#include "rnic/transport/direct_turn.h"

#define DIRECT_QPS     16384u /* a process has no more */
#define DIRECT_KEYS    16384u
#define DIRECT_REFUSED 256u

/* Written by the owner alone. */
struct direct_shown {
    struct pull_identity identity;                    /* of the owner, before the guard's life */
    _Alignas(64) struct direct_guard guard;           /* its life: see life.h */
    _Alignas(64) struct direct_entry qps[DIRECT_QPS]; /* a table, */
    struct direct_entry keys[DIRECT_KEYS];            /* see direct_table.h */
};

/* The table in `shown`, for its owner or, without changing it, for others. */
struct direct_table direct_table_of(const struct direct_shown *shown);

/* Another's view of an owner. Stays where it is. */
struct direct_reach {
    struct direct_mover mover; /* first */
    struct direct_turn turn;
    struct direct_table table;
    const struct direct_shown *shown;
    uint32_t process; /* of the owner, as the registry says */
    uint32_t own_process;
    bool proven;   /* it is that one */
    bool hopeless; /* the kernel refuses */
    /* By number: keys of memory that the kernel does not let others touch (a device's, or what is
     * not there), found out once for each. */
    uint32_t refused[DIRECT_REFUSED];
};

/* Whether this process can touch another's memory so at all, and is not told not to (WEIR_DIRECT).
 */
bool direct_is_on(void);
void direct_reach_init(struct direct_reach *reach, const struct direct_shown *shown,
                       struct direct_announcement *announcement, uint32_t process);
/* See struct direct_link. */
uint32_t direct_reach_access(struct direct_reach *reach, const struct direct_access *accesses,
                             uint32_t count);

/* The owner's: waits for all who may be at what was hidden before the call. Asks at once about him
 * at `index`, and then each millisecond. */
enum direct_patience {
    DIRECT_WAIT,
    DIRECT_PASS, /* he is not at it any more, whatever his word says */
    DIRECT_GIVE_UP,
};
struct direct_waiter {
    /* False: he need not be waited for at all. */
    bool (*is_concerned)(struct direct_waiter *waiter, uint32_t index);
    enum direct_patience (*ask)(struct direct_waiter *waiter, uint32_t index, uint32_t thread,
                                uint64_t waited_ns);
};
/* `end` as for direct_wait_begin, but not to be believed beyond `most`. False: given up. */
bool direct_settle(struct direct_shown *shown, const struct direct_announcement *announcements,
                   const _Atomic uint32_t *end, uint32_t most, struct direct_waiter *waiter);

#endif
