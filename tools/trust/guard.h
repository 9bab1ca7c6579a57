/* Stands between a transfer and its connection: nothing passes before the peer has proven that it
 * knows the secret (handshake.h), and each message after that is sealed with keys of this
 * connection alone: one for each direction, and, where that is wished, two more for chunks of file
 * data. */
#ifndef TOOLS_TRUST_GUARD_H
#define TOOLS_TRUST_GUARD_H

#include "tools/trust/handshake.h"

struct guard;

/* Both are copied. NULL: no memory. */
struct guard *guard_create_client(const char *name, const struct secret *secret, bool encrypt);
/* `encrypt`: clients that do not wish chunks sealed are refused. */
struct guard *guard_create_server(handshake_find *find, void *user, bool encrypt);
void guard_destroy(struct guard *guard);

/* The connection is there. A client's first message goes to ret_message. False: see guard_why. */
bool guard_begin(struct guard *guard, const void *parameters, size_t length,
                 struct handshake_message *ret_message);
enum handshake_state guard_hear(struct guard *guard, const void *bytes, size_t length,
                                struct handshake_message *ret_reply);
enum handshake_state guard_state(const struct guard *guard);
/* Why it failed: for this side, and what the peer may know. */
const char *guard_why(const struct guard *guard);
const char *guard_told(const struct guard *guard);
/* The name of the peer's secret, proven or not; "" before it is known. */
const char *guard_name(const struct guard *guard);
/* Chunks are sealed, too. */
bool guard_encrypts(const struct guard *guard);

/* Of a proven guard; as seal_close and seal_open. */
enum guarded {
    GUARDED_MESSAGE,
    GUARDED_CHUNK
};
bool guard_close(struct guard *guard, enum guarded what, const void *from, size_t length, void *to,
                 uint8_t ret_tag[TAG_LENGTH]);
bool guard_open(struct guard *guard, enum guarded what, const void *from, size_t length, void *to,
                const uint8_t tag[TAG_LENGTH]);

#endif
