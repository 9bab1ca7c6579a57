/* The cryptography there is, all of it OpenSSL's: random bytes, HMAC, HKDF, AES-256-GCM. No other
 * file calls libcrypto. What returns bool fails for want of memory, or where it says so. */
#ifndef TOOLS_TRUST_CRYPTO_H
#define TOOLS_TRUST_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEY_LENGTH 32
#define MAC_LENGTH 32
#define TAG_LENGTH 16 /* of AES-GCM */

struct piece {
    const void *bytes;
    size_t length;
};

bool crypto_random(void *ret_bytes, size_t length);
/* HMAC-SHA256 of the pieces, joined. */
bool crypto_mac(const uint8_t key[KEY_LENGTH], const struct piece *pieces, unsigned count,
                uint8_t ret_mac[MAC_LENGTH]);
/* HKDF-SHA256: a key for one purpose, which `label` names. */
bool crypto_derive(const uint8_t secret[KEY_LENGTH], const uint8_t salt[MAC_LENGTH],
                   const char *label, uint8_t ret_key[KEY_LENGTH]);
/* In a time that does not depend on the bytes. */
bool crypto_equal(const void *one, const void *other, size_t length);
/* Zeros that no compiler leaves out. */
void crypto_wipe(void *bytes, size_t length);

/* One direction of sealed messages: AES-256-GCM under a key of its own. The nonce is the message's
 * number, so none is used twice, and a message that is repeated, left out or moved does not open.
 */
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
