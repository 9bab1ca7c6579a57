/* The READs and atomics that a responder remembers: those whose responses are on their way out, and
 * those answered already, in case the answer was lost. [IBA 9.4.5, C9-110]
 *
 * Memory is bounded: the storage is taken before the peer connects, as much as was agreed with it,
 * and the oldest entry gives way to the newest, or is forgotten when its PSN lies so far back that
 * it is one of the future. A READ remembers where, and reads again; an atomic remembers its result
 * and is never executed twice. Invariant: entries stand in the order of their PSNs; responses leave
 * in that order. */
#ifndef WEIR_TRANSPORT_REPLAY_H
#define WEIR_TRANSPORT_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"
#include "rnic/memory/memory.h"
#include "rnic/wire/psn.h"

struct replay_entry {
    struct psn first_psn;
    uint32_t packet_count;
    uint32_t msn;
    bool is_atomic;
    bool is_write;     /* an atomic write: nothing was brought */
    uint64_t address;  /* READ */
    uint64_t original; /* atomic: what was there */
    struct memory_key key;
    struct domain domain; /* READ: that the key must be of */
    uint32_t length;

    /* The response under way: packets `start` to before `end`, of which `next` is to be sent. None
     * is under way where next == end. */
    uint32_t start, next, end;
    bool answered; /* completely, at least once */
    bool repeated; /* some of it was asked for again */
};

struct replay {
    struct replay_entry *entries;
    uint32_t mask;
    uint32_t limit; /* entries that may be under way at once, and are remembered */
    uint64_t added; /* entries ever */
    uint64_t first; /* the oldest that is remembered, counted alike */
    uint64_t turn;  /* the first that may be under way, likewise */
};

/* Remembers nothing, and takes no memory. */
#define REPLAY_OF_NONE ((struct replay){.mask = UINT32_MAX})

enum status replay_init(struct replay *replay, struct allocator *allocator,
                        uint32_t capacity) MUST_USE;
/* Room for `capacity` entries; those that there are stay. */
enum status replay_reserve(struct replay *replay, struct allocator *allocator,
                           uint32_t capacity) MUST_USE;
void replay_fini(struct replay *replay, struct allocator *allocator);
/* Forgets everything. `limit` is at most the capacity. */
void replay_reset(struct replay *replay, uint32_t limit);
/* From now on; the oldest of more than so many are forgotten, though those under way are answered.
 */
void replay_set_limit(struct replay *replay, uint32_t limit);

/* A new entry, all zero; NULL where the peer has more unanswered than was agreed. The caller sets
 * `end` once the entry is to be answered. */
struct replay_entry *replay_add(struct replay *replay);
/* `expected` has moved on, by at most half the PSNs. A request with the PSN of what is forgotten
 * would be new. */
void replay_forget(struct replay *replay, struct psn expected);
static inline void replay_pass(struct replay *replay, struct psn expected)
{
    if (replay->first != replay->added) {
        replay_forget(replay, expected);
    }
}
/* The entry that `psn` belongs to; NULL if it is not remembered. */
struct replay_entry *replay_find(const struct replay *replay, struct psn psn);
/* Answers packets `start` to before `end` again, then, from their beginnings, all responses behind
 * that were under way. `keeps_due`: and what of this one has not left, as for a peer that repairs;
 * any other's ends where it asked for it to end. */
void replay_restart(struct replay *replay, struct replay_entry *entry, uint32_t start, uint32_t end,
                    bool keeps_due);
/* `count` more packets of the entry's response have left. */
void replay_sent(struct replay_entry *entry, uint32_t count);
/* No more of it leaves, though it was asked for again: that may be an echo, and who has had it may
 * have taken back what he had lent for it. [IBA 9.7.5.1.2: only what is expected is refused] */
void replay_drop(struct replay_entry *entry);
/* `psn`, or where responses end just there, the PSN before the first of them. */
struct psn replay_before(const struct replay *replay, struct psn psn);
/* False: replay_pending finds none. */
static inline bool replay_may_be_pending(const struct replay *replay)
{
    return replay->turn != replay->added;
}
/* The entry whose response is to be sent next; NULL if none is. */
struct replay_entry *replay_pending(struct replay *replay);

#endif
