/* Pseudo-random numbers from one seed: the same seed gives the same numbers everywhere, so a run
 * can be repeated. Who has seen some can compute the rest: what strangers must not guess is
 * secret.h's. */
#ifndef WEIR_BASE_RANDOM_H
#define WEIR_BASE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state[4];
};

void random_seed(struct random *random, uint64_t seed);
uint64_t random_u64(struct random *random);

/* Uniform in 0 .. bound - 1; `bound` is not 0. */
uint64_t random_below(struct random *random, uint64_t bound);

#endif
