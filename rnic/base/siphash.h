/* SipHash-2-4 of Aumasson and Bernstein: 64 bits of any bytes, which nobody without the key can
 * tell from random ones, whatever he has seen of others and whatever he chooses to have hashed. */
#ifndef WEIR_BASE_SIPHASH_H
#define WEIR_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

/* 128 secret bits. As bytes of the specification: each half from its lowest byte on. */
struct siphash_key {
    uint64_t halves[2];
};

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t length);

#endif
