/* What a member holds of each rank: a standing each, where the newer always wins. So views can be
 * merged in any order, any number of times, and those who have heard the same hold the same.
 *
 * Digests of blocks of ranks tell two views apart, suspicions aside, which come and go. */
#ifndef WEIR_GROUP_VIEW_H
#define WEIR_GROUP_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/group/swim_message.h"

struct view {
    uint32_t size;
    uint32_t *standings;
    uint64_t *digests; /* of blocks */
    uint32_t absent;   /* dead, or left */
};

/* All are alive, in their incarnation 0. False: no memory. */
bool view_init(struct view *view, uint32_t size);
void view_fini(struct view *view);
/* Of something newer. */
void view_set(struct view *view, uint32_t rank, uint32_t standing);
/* With another salt, others. */
uint16_t view_digest(const struct view *view, uint32_t block, uint32_t salt);
/* Of all ranks: equal where views are. */
uint64_t view_version(const struct view *view);

static inline bool view_is_absent(const struct view *view, uint32_t rank)
{
    return swim_state_of(view->standings[rank]) >= SWIM_DEAD;
}

#endif
