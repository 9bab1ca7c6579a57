/* Numbers that strangers must not guess: ids, keys' variants, queue pair numbers. Who knows the key
 * can repeat them all; who does not learns nothing of one from all others.
 *
 * The key is whoever's who creates what needs such numbers: of the kernel's random bytes in a
 * process, of the seed in a simulation. */
#ifndef WEIR_BASE_SECRET_H
#define WEIR_BASE_SECRET_H

#include "rnic/base/siphash.h"

struct secret {
    struct siphash_key key;
    uint64_t count; /* of those drawn */
};

struct secret secret_init(const struct siphash_key *key);
uint64_t secret_u64(struct secret *secret);
/* Uniform in 0 .. bound - 1; `bound` is not 0. */
uint64_t secret_below(struct secret *secret, uint64_t bound);
/* A key for another use, which tells nothing of this one's. */
struct siphash_key secret_key(struct secret *secret);

#endif
