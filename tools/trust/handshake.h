/* How two ends of a connection prove to each other that they know the same secret, before either
 * believes anything else. Pure: messages in, messages out.
 *
 * The client says PROVE: the secret's name and a nonce. The server answers with a nonce of its own
 * and its proof, and the client with its proof. A proof is the HMAC of all that was said and of the
 * connection's parameters, by a key derived from the secret; client's and server's are of different
 * labels. So what was recorded proves nothing to a fresh nonce, and what is thrown back is no
 * proof. Neither the secret nor anything that shortens a search for it is on the wire; of its 256
 * bits all have to be found.
 *
 * A server that does not know the name answers as if it did, by a secret that nobody has: strangers
 * do not learn which names there are.
 *
 * Bytes: PROVE: type, "Weir", version (2), flags (1), name behind its length (1), nonce (32).
 * ANSWER: type, flags (1), nonce (32), proof (32). PROOF: type, proof (32). */
#ifndef TOOLS_TRUST_HANDSHAKE_H
#define TOOLS_TRUST_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/trust/crypto.h"
#include "tools/trust/secret.h"

#define HANDSHAKE_VERSION        1
#define HANDSHAKE_MESSAGE_MAX    (41 + SECRET_NAME_MAX)
#define HANDSHAKE_PARAMETERS_MAX 64

/* The first octet. No message of a transfer begins with one of these. */
enum handshake_type {
    HANDSHAKE_PROVE = 0xfe,
    HANDSHAKE_ANSWER = 0xfd,
    HANDSHAKE_PROOF = 0xfc,
};

enum handshake_state {
    HANDSHAKE_UNDER_WAY,
    HANDSHAKE_PROVEN, /* the peer knows the secret */
    HANDSHAKE_FAILED, /* see why, told */
};

struct handshake_message {
    uint8_t bytes[HANDSHAKE_MESSAGE_MAX];
    size_t length; /* 0: none */
};

/* The secret of this name; NULL: there is none. */
typedef const struct secret *handshake_find(void *user, const char *name);

struct handshake {
    bool is_server;
    bool encrypt; /* the client's wish, and then what holds */
    enum handshake_state state;
    handshake_find *find; /* server */
    void *user;
    struct secret secret;
    bool is_known;
    char name[SECRET_NAME_MAX + 1];
    uint8_t parameters[HANDSHAKE_PARAMETERS_MAX];
    size_t parameters_length;
    struct handshake_message prove, answer;
    char why[128];    /* it failed, for this side's log */
    const char *told; /* and what the peer may know of it */
};

/* `parameters` are the connection's, the same bytes at both ends. */
void handshake_begin_server(struct handshake *handshake, handshake_find *find, void *user,
                            const void *parameters, size_t length);
/* False: the system has no random bytes. */
bool handshake_begin_client(struct handshake *handshake, const char *name,
                            const struct secret *secret, bool encrypt, const void *parameters,
                            size_t length, struct handshake_message *ret_prove);
/* Takes what the peer said. What it is to be told goes to ret_reply, in any state. */
enum handshake_state handshake_hear(struct handshake *handshake, const void *bytes, size_t length,
                                    struct handshake_message *ret_reply);
/* Of a proven one: a key for what `label` names, different for each handshake. */
bool handshake_derive(const struct handshake *handshake, const char *label,
                      uint8_t ret_key[KEY_LENGTH]);

#endif
