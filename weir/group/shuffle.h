/* All ranks in an order as if shuffled, then in another one, and so on, without a table: each round
 * is a keyed permutation. */
#ifndef WEIR_GROUP_SHUFFLE_H
#define WEIR_GROUP_SHUFFLE_H

#include <stdint.h>

struct shuffle {
    uint64_t key; /* of this round, and the seed of the next */
    uint32_t size, position;
    unsigned half; /* bits */
};

/* `size`: at least 1, at most 65536. */
void shuffle_init(struct shuffle *shuffle, uint32_t size, uint64_t seed);
uint32_t shuffle_next(struct shuffle *shuffle);
/* splitmix64: for who needs numbers that follow from a seed. */
uint64_t shuffle_mix(uint64_t *state);

#endif
