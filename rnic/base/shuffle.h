/* The numbers 0 .. count - 1 in an order that a key decides: each comes once, and who has seen some
 * knows of the next one only that it is none of them. Takes no memory, whatever the count. */
#ifndef WEIR_BASE_SHUFFLE_H
#define WEIR_BASE_SHUFFLE_H

#include "rnic/base/siphash.h"

struct shuffle {
    struct siphash_key key;
    uint32_t count;
    unsigned half_bits;
};

/* `count` is not 0. */
struct shuffle shuffle_init(const struct siphash_key *key, uint32_t count);
/* The number at `place`, which is below count. */
uint32_t shuffle_at(const struct shuffle *shuffle, uint32_t place);

#endif
