/* Regions of this process that others of its host touch again and again: their memory is made
 * common (common.h), so that those touch it without system calls, as long as they are registered.
 *
 * Who touches wishes it (direct.h); the owner's background thread grants wishes. The first few are
 * common before anybody is at them. A region ends so when it is taken back, and when the process
 * forks, for a child is to have a copy: then it never is again, unless nobody had wished for it
 * yet. One that cannot be made common never will be. Under the engine's lock. */
#ifndef WEIR_IO_HOT_REGIONS_H
#define WEIR_IO_HOT_REGIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/status.h"
#include "rnic/io/direct/common.h"
#include "rnic/io/direct/direct.h"

#define HOT_REGIONS_MAX    256u
#define HOT_REGIONS_WISHES 2u           /* granted at once, under the lock */
#define HOT_REGIONS_BYTES  (256u << 20) /* of all together */
#define HOT_REGIONS_TRIALS 4u           /* of the kernel, which may be unwilling for a while */

/* Common without a wish: so many, of so many bytes together. */
#define HOT_REGIONS_FIRST       8u
#define HOT_REGIONS_FIRST_BYTES (64u << 10) /* long SENDs from them would be a twentieth slower */

struct hot_regions {
    struct direct_shown *shown; /* NULL: nothing is made common */
    struct common *common;      /* from the first wish on; NULL: not yet, */
    uint32_t trials;            /* HOT_REGIONS_TRIALS: nor ever */
    _Atomic bool forks;         /* now: nothing becomes common. Its owner's */
    _Atomic bool begins;        /* something becomes common just now */
    bool is_met;                /* others of the host may touch what is shown, and some of that */
    bool has_any;               /* could become common */
    bool has_begun;             /* the first have become so, if they could, or a wish came before */
    uint32_t place_end;         /* of the table: nothing was shown from here on */
    uint32_t count;
    uint64_t bytes; /* theirs, and those that a child may still need */
    uint64_t made;  /* common, so far */
    struct hot_region {
        struct memory_key key; /* 0: it has ended, but its memory cannot be turned back */
        struct common_range range;
        bool wished;
    } regions[HOT_REGIONS_MAX];
};

struct hot_settler {
    /* Waits until nobody is at what was hidden before the call, for as long as it likes; false:
     * somebody is. */
    bool (*settle)(struct hot_settler *settler);
    /* Others may just be reading it otherwise, of whom nothing is hidden. Who did so while it is
     * made common would wait for us, and for ever if we are stopped. */
    bool (*is_read)(struct hot_settler *settler, const uint8_t *bytes, uint64_t length);
};

/* `shown`: our own; NULL: nothing is ever made common. */
void hot_regions_init(struct hot_regions *hot, struct direct_shown *shown);
/* All must have ended. */
void hot_regions_destroy(struct hot_regions *hot);
/* Now and then: tries again to turn back what could not be when it ended. */
void hot_regions_tidy(struct hot_regions *hot);
/* In a forked child, which gets copies of what could not be turned back before. */
void hot_regions_abandon(struct hot_regions *hot);
/* A process of the host has been met that may touch what is shown. What the first wish takes, which
 * is half a millisecond's trial of the kernel, is done now, or with the first region: later it
 * would be in the way of those who have the wish, who are at our memory all the time. Not where
 * many threads and descriptors make it longer (common_is_quick). The first time that is done, what
 * is shown and short becomes common, as if it had been wished for: it takes less time than the
 * wish's way to us. One that cannot be yet can be wished for. */
void hot_regions_expect(struct hot_regions *hot, struct hot_settler *settler);
/* Makes the regions of some keys common, those that can be; one for which there is no room, or
 * where the kernel is at it, can be wished again. False: somebody is at one of them, later perhaps.
 */
bool hot_regions_grant(struct hot_regions *hot, const struct memory_key *keys, uint32_t count,
                       struct hot_settler *settler);
/* A region is about to be shown. False: it may not, for it overlaps a common one; it is reached by
 * packets only. */
bool hot_regions_let_show(struct hot_regions *hot, struct memory_key key, const uint8_t *bytes,
                          uint64_t length);
/* The key has been hidden, and nobody is at it: its memory is the process's alone again. */
void hot_regions_end(struct hot_regions *hot, struct memory_key key);
/* Any thread, without the lock: sets `forks`, and waits for what becomes common just now, for a
 * child would find its pages nowhere. */
void hot_regions_is_to_fork(struct hot_regions *hot);
/* All of them, for good, before a fork: `forks` is set. They are still registered; one that cannot
 * be turned back is reached by packets only. Who stays at one may find what he stores from now on
 * lost. */
void hot_regions_end_all(struct hot_regions *hot, struct hot_settler *settler);

#endif
