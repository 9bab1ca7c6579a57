/* The simulator's randomness: small seeded generators, one per concern, so that a change in one
 * part of the world leaves the choices of the others alone. */
#ifndef WEIR_SIM_DICE_H
#define WEIR_SIM_DICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct dice {
    uint64_t state;
};

#define DICE_MILLION 1000000u

static inline uint64_t dice_next(struct dice *dice)
{
    /* splitmix64 */
    uint64_t z = (dice->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* An independent generator for the concern `name`. */
static inline struct dice dice_split(uint64_t seed, uint64_t name)
{
    struct dice dice = {seed * UINT64_C(0xd1342543de82ef95) + name * UINT64_C(0xaf251af3b0f025b5)};
    dice_next(&dice);
    return dice;
}

/* 0 .. bound-1; 0 for a bound of 0. */
static inline uint32_t dice_below(struct dice *dice, uint32_t bound)
{
    return (uint32_t)(((dice_next(dice) >> 32) * bound) >> 32);
}

/* low .. high, both included. */
static inline uint32_t dice_range(struct dice *dice, uint32_t low, uint32_t high)
{
    return low + dice_below(dice, high - low + 1);
}

static inline bool dice_chance(struct dice *dice, uint32_t per_million)
{
    return per_million != 0 && dice_below(dice, DICE_MILLION) < per_million;
}

static inline bool dice_percent(struct dice *dice, uint32_t percent)
{
    return dice_below(dice, 100) < percent;
}

static inline void dice_fill(struct dice *dice, uint8_t *ret_bytes, size_t length)
{
    while (length > 0) {
        uint64_t word = dice_next(dice);
        size_t step = length < sizeof word ? length : sizeof word;
        memcpy(ret_bytes, &word, step);
        ret_bytes += step;
        length -= step;
    }
}

#endif
