/* The cryptography that is not TLS (tls.h), all of it OpenSSL's: random bytes, and AES-256-GCM for
 * chunks. What returns bool fails for want of memory, or where it says so. */
#ifndef TOOLS_TRUST_CRYPTO_H
#define TOOLS_TRUST_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_LENGTH 32
#define TAG_LENGTH 16 /* of AES-GCM */

bool crypto_random(void *ret_bytes, size_t length);
/* Zeros that no compiler leaves out. */
void crypto_wipe(void *bytes, size_t length);

/* One direction of sealed chunks: AES-256-GCM under a key of its own. The nonce is the chunk's
 * number, so none is used twice, and a chunk that is repeated, left out or moved does not open. */
struct seal;

/* NULL: no memory. */
struct seal *seal_create(const uint8_t key[KEY_LENGTH], bool is_sender);
void seal_destroy(struct seal *seal);
/* `from` and `to` are the same, or do not overlap. */
bool seal_close(struct seal *seal, const void *from, size_t length, void *to,
                uint8_t ret_tag[TAG_LENGTH]);
/* False: not what the peer has sealed next. Nothing in `to` may be used then. */
bool seal_open(struct seal *seal, const void *from, size_t length, void *to,
               const uint8_t tag[TAG_LENGTH]);

#endif
