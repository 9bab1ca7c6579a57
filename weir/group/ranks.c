/* Ranges. */
#include "weir/group/ranks.h"

#include <stdlib.h>

#include "weir/bytes.h"

#define CAPACITY_LEAST 4
#define RANGE_LENGTH   8u

void ranks_fini(struct ranks *ranks)
{
    free(ranks->ranges);
    *ranks = (struct ranks){0};
}

static bool make_room(struct ranks *ranks)
{
    if (ranks->end < ranks->capacity) {
        return true;
    }
    size_t capacity = ranks->capacity > 0 ? 2 * ranks->capacity : CAPACITY_LEAST;
    struct rank_range *ranges = realloc(ranks->ranges, capacity * sizeof(*ranges));
    if (ranges == NULL) {
        return false;
    }
    ranks->ranges = ranges;
    ranks->capacity = capacity;
    return true;
}

bool ranks_add(struct ranks *ranks, uint32_t first, uint32_t count)
{
    if (count == 0) {
        return true;
    }
    struct rank_range *last = ranks->end > ranks->begin ? &ranks->ranges[ranks->end - 1] : NULL;
    if (last != NULL && last->first + last->count == first) {
        last->count += count;
    } else if (!make_room(ranks)) {
        return false;
    } else {
        ranks->ranges[ranks->end++] = (struct rank_range){first, count};
    }
    ranks->total += count;
    return true;
}

bool ranks_join(struct ranks *ranks, const struct ranks *others)
{
    for (size_t i = others->begin; i < others->end; i++) {
        if (!ranks_add(ranks, others->ranges[i].first, others->ranges[i].count)) {
            return false;
        }
    }
    return true;
}

bool ranks_has(const struct ranks *ranks, uint32_t rank)
{
    size_t low = ranks->begin, high = ranks->end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct rank_range *range = &ranks->ranges[middle];
        if (rank < range->first) {
            high = middle;
        } else if (rank - range->first >= range->count) {
            low = middle + 1;
        } else {
            return true;
        }
    }
    return false;
}

/* Of the first range. */
static void drop(struct ranks *ranks, uint32_t count)
{
    struct rank_range *range = &ranks->ranges[ranks->begin];
    range->first += count;
    range->count -= count;
    ranks->begin += range->count == 0;
    ranks->total -= count;
}

uint32_t ranks_take_first(struct ranks *ranks)
{
    uint32_t rank = ranks->ranges[ranks->begin].first;
    drop(ranks, 1);
    return rank;
}

bool ranks_move(struct ranks *ranks, uint32_t count, struct ranks *to)
{
    while (count > 0) {
        const struct rank_range *range = &ranks->ranges[ranks->begin];
        uint32_t moved = range->count < count ? range->count : count;
        if (!ranks_add(to, range->first, moved)) {
            return false;
        }
        drop(ranks, moved);
        count -= moved;
    }
    return true;
}

size_t ranks_packed_length(const struct ranks *ranks)
{
    return 4 + (ranks->end - ranks->begin) * RANGE_LENGTH;
}

void ranks_pack(const struct ranks *ranks, uint8_t *ret_bytes)
{
    put_u32(ret_bytes, (uint32_t)(ranks->end - ranks->begin));
    ret_bytes += 4;
    for (size_t i = ranks->begin; i < ranks->end; i++, ret_bytes += RANGE_LENGTH) {
        put_u32(ret_bytes, ranks->ranges[i].first);
        put_u32(ret_bytes + 4, ranks->ranges[i].count);
    }
}

const char *ranks_parse(const uint8_t *bytes, size_t length, uint32_t bound,
                        struct ranks *ret_ranks, size_t *ret_length)
{
    struct ranks ranks = {0};
    uint32_t least = 0; /* of what may follow */
    if (length < 4 || get_u32(bytes) > (length - 4) / RANGE_LENGTH) {
        return "ranks shorter than their count";
    }
    uint32_t count = get_u32(bytes);
    const uint8_t *at = bytes + 4;
    for (uint32_t i = 0; i < count; i++, at += RANGE_LENGTH) {
        struct rank_range range = {get_u32(at), get_u32(at + 4)};
        const char *wrong = NULL;
        if (range.count == 0 || range.first >= bound || range.count > bound - range.first) {
            wrong = "ranks that there are not";
        } else if (i > 0 && range.first <= least) {
            wrong = "ranks out of order";
        } else if (!ranks_add(&ranks, range.first, range.count)) {
            wrong = "no memory for the ranks";
        }
        if (wrong != NULL) {
            ranks_fini(&ranks);
            return wrong;
        }
        least = range.first + range.count;
    }
    *ret_ranks = ranks;
    *ret_length = (size_t)(at - bytes);
    return NULL;
}
