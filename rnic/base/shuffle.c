/* A Feistel network over the least even number of bits that hold the count. What it maps beyond the
 * count it maps again [Black and Rogaway's cycle walking]: fewer than four times on average. */
#include "rnic/base/shuffle.h"

#include "rnic/base/check.h"

#define ROUNDS 10u /* more than theory asks for; the halves are small */

struct shuffle shuffle_init(const struct siphash_key *key, uint32_t count)
{
    CHECK(count != 0);
    struct shuffle shuffle = {.key = *key, .count = count, .half_bits = 1};
    while (shuffle.half_bits < 16 && (count - 1) >> 2 * shuffle.half_bits != 0) {
        shuffle.half_bits++;
    }
    return shuffle;
}

static uint32_t permute(const struct shuffle *shuffle, uint32_t value)
{
    uint32_t mask = (UINT32_C(1) << shuffle->half_bits) - 1;
    uint32_t left = value >> shuffle->half_bits, right = value & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint64_t asked = (uint64_t)round << 32 | right;
        uint32_t mixed = left ^ ((uint32_t)siphash(&shuffle->key, &asked, sizeof asked) & mask);
        left = right;
        right = mixed;
    }
    return left << shuffle->half_bits | right;
}

uint32_t shuffle_at(const struct shuffle *shuffle, uint32_t place)
{
    CHECK(place < shuffle->count);
    uint32_t value = place;
    do {
        value = permute(shuffle, value);
    } while (value >= shuffle->count);
    return value;
}
