/* A Feistel network of four rounds over the least even number of bits that has room; what it leads
 * beyond the size is led on until it is within. */
#include "weir/group/shuffle.h"

uint64_t shuffle_mix(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void shuffle_init(struct shuffle *shuffle, uint32_t size, uint64_t seed)
{
    *shuffle = (struct shuffle){.key = seed, .size = size, .half = 1};
    while ((UINT64_C(1) << (2 * shuffle->half)) < size) {
        shuffle->half++;
    }
}

static uint32_t permute(const struct shuffle *shuffle, uint32_t value)
{
    uint32_t mask = (UINT32_C(1) << shuffle->half) - 1;
    uint32_t left = value >> shuffle->half, right = value & mask;
    for (uint64_t round = 0; round < 4; round++) {
        uint64_t mixed = shuffle->key + round + ((uint64_t)right << 32);
        uint32_t other = left ^ ((uint32_t)shuffle_mix(&mixed) & mask);
        left = right;
        right = other;
    }
    return left << shuffle->half | right;
}

uint32_t shuffle_next(struct shuffle *shuffle)
{
    if (shuffle->position == shuffle->size) {
        shuffle->position = 0;
        shuffle->key = shuffle_mix(&shuffle->key);
    }
    uint32_t value = shuffle->position++;
    do {
        value = permute(shuffle, value);
    } while (value >= shuffle->size);
    return value;
}
