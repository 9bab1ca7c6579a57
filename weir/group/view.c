/* A digest is the exclusive or of a hash of each rank's standing; of alive at first it is nothing.
 */
#include "weir/group/view.h"

#include <stdlib.h>

#include "weir/group/shuffle.h"

bool view_init(struct view *view, uint32_t size)
{
    *view = (struct view){.size = size};
    view->standings = calloc(size, sizeof(*view->standings));
    view->digests = calloc(swim_blocks(size), sizeof(*view->digests));
    if (view->standings == NULL || view->digests == NULL) {
        view_fini(view);
        return false;
    }
    return true;
}

void view_fini(struct view *view)
{
    free(view->standings);
    free(view->digests);
    *view = (struct view){0};
}

static uint64_t hash(uint32_t rank, uint32_t standing)
{
    standing = swim_told(standing);
    uint64_t mixed = (uint64_t)rank << 32 | standing;
    return standing != 0 ? shuffle_mix(&mixed) : 0;
}

void view_set(struct view *view, uint32_t rank, uint32_t standing)
{
    view->absent -= view_is_absent(view, rank);
    view->digests[rank / SWIM_BLOCK] ^= hash(rank, view->standings[rank]) ^ hash(rank, standing);
    view->standings[rank] = standing;
    view->absent += view_is_absent(view, rank);
}

uint16_t view_digest(const struct view *view, uint32_t block, uint32_t salt)
{
    uint64_t mixed = view->digests[block] ^ ((uint64_t)salt << 32 | salt);
    return (uint16_t)shuffle_mix(&mixed);
}

uint64_t view_version(const struct view *view)
{
    uint64_t version = 0;
    for (uint32_t block = 0; block < swim_blocks(view->size); block++) {
        version ^= view->digests[block];
    }
    return version;
}
