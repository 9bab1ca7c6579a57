/* The SipHash of a count. */
#include "rnic/base/secret.h"

#include "rnic/base/check.h"

struct secret secret_init(const struct siphash_key *key)
{
    return (struct secret){.key = *key};
}

uint64_t secret_u64(struct secret *secret)
{
    uint64_t number = secret->count++;
    return siphash(&secret->key, &number, sizeof number);
}

uint64_t secret_below(struct secret *secret, uint64_t bound)
{
    CHECK(bound != 0);
    /* The first 2^64 mod bound values would make some results likelier than others. */
    uint64_t uneven = -bound % bound;
    uint64_t value;
    do {
        value = secret_u64(secret);
    } while (value < uneven);
    return value % bound;
}

struct siphash_key secret_key(struct secret *secret)
{
    uint64_t first = secret_u64(secret);
    return (struct siphash_key){{first, secret_u64(secret)}};
}
