/* The memory behind transport/direct.h: what a process shows to those of its host, and how one of
 * them touches its memory: by a system call of its own, or, where that memory has been made common
 * (common.h), by stores and loads. Who makes calls for a region again and again wishes it so.
 *
 * Who is in the right process: it has been read once (pull.h), and the thread that holds its life
 * (life.h) has lived on since. What is compared at the very moment of the call (guarded.h) says so,
 * and that nothing was taken back since the table was looked at. Common memory is found through its
 * owner's descriptor, once, while that thread lives, and needs no right to make such calls. */
#ifndef WEIR_IO_DIRECT_H
#define WEIR_IO_DIRECT_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/io/direct/common_view.h"
#include "rnic/io/system/pull.h"
#include "rnic/transport/direct_turn.h"

#define DIRECT_QPS     16384u /* a process has no more */
#define DIRECT_KEYS    16384u
#define DIRECT_REFUSED 256u

/* Written by the owner alone. */
struct direct_shown {
    struct pull_identity identity;                    /* of the owner, before the guard's life, */
    int32_t common;                                   /* the descriptor of its common memory */
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
    struct direct_seen seen;
    const struct direct_shown *shown;
    uint32_t thread; /* of the owner, as the registry says */
    uint32_t own_process;
    enum direct_calls {
        DIRECT_CALLS_UNTRIED,
        DIRECT_CALLS_MADE,    /* it is that one */
        DIRECT_CALLS_REFUSED, /* by the kernel; or it is not */
    } calls;
    bool hopeless; /* nor do we map any of its memory */
    bool stores;   /* the latest access was made without a system call */
    bool wishes;   /* a wish has been left for the owner since this was looked at */
    struct common_view view;
    /* By number: keys of memory that the kernel does not let others touch (a device's, or what is
     * not there), found out once for each. */
    uint32_t refused[DIRECT_REFUSED];
    struct direct_heat {
        uint32_t key;
        uint32_t calls;     /* what they have cost since it was wished, in short ones */
        uint32_t wishes;    /* that were not granted */
    } heat[DIRECT_REFUSED]; /* likewise */
};

/* Whether this process can touch another's memory so at all, and is not told not to (WEIR_DIRECT).
 */
bool direct_is_on(void);
/* Whether memory is made common, and mapped, as it is unless WEIR_DIRECT is "calls". */
bool direct_makes_common(void);
void direct_reach_init(struct direct_reach *reach, const struct direct_shown *shown,
                       struct direct_announcement *announcement, uint32_t thread);
/* Not in a forked child, where nothing of it is mapped. */
void direct_reach_end(struct direct_reach *reach);
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
