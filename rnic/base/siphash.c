#include "rnic/base/siphash.h"

#define ROUNDS_PER_WORD 2
#define ROUNDS_AT_END   4

static uint64_t rotate_left(uint64_t value, unsigned count)
{
    return value << count | value >> (64 - count);
}

static void mix(uint64_t *v, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate_left(v[1], 13) ^ v[0];
        v[3] = rotate_left(v[3], 16) ^ v[2];
        v[0] = rotate_left(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate_left(v[1], 17) ^ v[2];
        v[3] = rotate_left(v[3], 21) ^ v[0];
        v[2] = rotate_left(v[2], 32);
    }
}

static void absorb(uint64_t *v, uint64_t word)
{
    v[3] ^= word;
    mix(v, ROUNDS_PER_WORD);
    v[0] ^= word;
}

/* Of at most 8 bytes, the first one lowest. */
static uint64_t load(const uint8_t *bytes, size_t length)
{
    uint64_t word = 0;
    for (size_t i = 0; i < length; i++) {
        word |= (uint64_t)bytes[i] << 8 * i;
    }
    return word;
}

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    uint64_t v[4] = {
        key->halves[0] ^ UINT64_C(0x736f6d6570736575),
        key->halves[1] ^ UINT64_C(0x646f72616e646f6d),
        key->halves[0] ^ UINT64_C(0x6c7967656e657261),
        key->halves[1] ^ UINT64_C(0x7465646279746573),
    };
    size_t rest = length;
    for (; rest >= 8; rest -= 8, at += 8) {
        absorb(v, load(at, 8));
    }
    absorb(v, load(at, rest) | (uint64_t)length << 56);
    v[2] ^= 0xff;
    mix(v, ROUNDS_AT_END);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
