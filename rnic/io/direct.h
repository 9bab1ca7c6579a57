/* The memory behind transport/direct.h: what a process shows to those of its host, and how one of
 * them touches its memory by a system call of its own.
 *
 * Who is about to touch says so in a word of his in the owner's inbox, and then looks at the table;
 * the owner hides, and then looks at those words. So either he finds nothing, or is waited for. He
 * is known to be in the right process: it has been read once (pull.h), and the thread that holds
 * its life has lived on since. Both are so at the very moment of the call (guarded.h): one who was
 * stopped before it makes it no more, and one who was stopped after it is done. */
#ifndef WEIR_IO_DIRECT_H
#define WEIR_IO_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rnic/io/pull.h"
#include "rnic/transport/direct_table.h"

#define DIRECT_QPS  16384u /* a process has no more */
#define DIRECT_KEYS 16384u

/* Written by the owner alone. */
struct direct_shown {
    struct pull_identity identity; /* of the owner, before `life` */
    union {
        _Alignas(64) _Atomic uint64_t guard; /* both of: */
        struct {
            _Atomic uint32_t life;   /* see life.h */
            _Atomic uint32_t hidden; /* how often the owner has waited after hiding something */
        };
    };
    struct direct_entry qps[DIRECT_QPS];   /* a table, */
    struct direct_entry keys[DIRECT_KEYS]; /* see direct_table.h */
};

/* One for each who may touch, written by him alone: odd while he is at it. */
struct direct_announcement {
    _Alignas(64) _Atomic uint32_t count;
};

/* The table in `shown`, for its owner or, without changing it, for others. */
struct direct_table direct_table_of(const struct direct_shown *shown);

/* Another's view of an owner. */
struct direct_reach {
    const struct direct_shown *shown;
    struct direct_announcement *announcement;
    uint32_t process; /* of the owner, as the registry says */
    bool proven;      /* it is that one */
    bool hopeless;    /* the kernel refuses */
};

void direct_reach_init(struct direct_reach *reach, const struct direct_shown *shown,
                       struct direct_announcement *announcement, uint32_t process);
/* See struct direct_link. */
bool direct_reach_access(struct direct_reach *reach, const struct direct_access *access);

/* The owner's: with what was hidden before the call nobody is at it any more. Asks from time to
 * time, after a millisecond, whether announcement `index` may still come to an end. */
struct direct_patience {
    bool (*goes_on)(struct direct_patience *patience, uint32_t index, uint64_t waited_ns);
};
void direct_settle(struct direct_shown *shown, const struct direct_announcement *announcements,
                   uint32_t count, struct direct_patience *patience);

#endif
