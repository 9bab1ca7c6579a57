/* Sets of ranks: ranges in ascending order, of which none touches the next.
 *
 * A set is taken apart from its front, and made by adding at its end. */
#ifndef WEIR_GROUP_RANKS_H
#define WEIR_GROUP_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rank_range {
    uint32_t first, count;
};

struct ranks {
    struct rank_range *ranges;
    size_t begin, end; /* those of them that are in it */
    size_t capacity;
    uint32_t total; /* ranks */
};

void ranks_fini(struct ranks *ranks);
/* Behind all that are there. False: no memory. */
bool ranks_add(struct ranks *ranks, uint32_t first, uint32_t count);
bool ranks_join(struct ranks *ranks, const struct ranks *others);
bool ranks_has(const struct ranks *ranks, uint32_t rank);
/* The set is not empty. */
uint32_t ranks_take_first(struct ranks *ranks);
/* Moves the first `count`, of at least so many, to the end of another set. False: no memory; then
 * some may have moved. */
bool ranks_move(struct ranks *ranks, uint32_t count, struct ranks *to);

/* On the wire: u32 ranges, then each as u32 first, u32 count. */
size_t ranks_packed_length(const struct ranks *ranks);
void ranks_pack(const struct ranks *ranks, uint8_t *ret_bytes);
/* NULL, or what is wrong. All ranks are below `bound`. `ret_length`: of what was read. Only after
 * NULL there is something to fini. */
const char *ranks_parse(const uint8_t *bytes, size_t length, uint32_t bound,
                        struct ranks *ret_ranks, size_t *ret_length);

#endif
