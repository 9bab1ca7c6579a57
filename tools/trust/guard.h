/* Stands between a transfer and its connection: nothing passes before the peer has proven who it
 * is, and each message after that is sealed. Pure: messages in, messages out.
 *
 * All of it is TLS 1.3 (RFC 8446, by OpenSSL), whose records travel as the connection's messages:
 * one message holds whole records. The client says its first flight, the server answers, and the
 * client says its last: then both are proven. TLS_AES_256_GCM_SHA384, fresh X25519 or P-256 for
 * every session, so that who learns a key later opens nothing that was recorded before; no older
 * version, no tickets, no early data, no renegotiation.
 *
 * A secret (secret.h) is an external pre-shared key (psk_dhe_ke), its identity the key's name. The
 * name crosses in the clear; of the secret nothing does, nor anything that shortens a search for
 * it, and of its 256 bits all have to be found. A server that does not know a name goes on with a
 * secret that nobody has, and the client's binder fails as that of a wrong key does: strangers do
 * not learn which names there are, though who reads the network learns which are used.
 *
 * Where there is no secret, certificates are it (certificates.h): the server shows one, of the name
 * that the client has asked for (subjectAltName), and the client one if the server asks. A server
 * may do both; a client with a secret believes no certificate.
 *
 * The connection's parameters, and whether chunks are sealed, are in an extension of both sides'
 * (0xff57, of those for private use) that either compares with its own; the handshake's transcript
 * has it in it, so it is as proven as the peer is. What was recorded of another connection fails
 * there, and if it did not, would prove nothing to a fresh key share.
 *
 * A failure is told in words by the connection and not by an alert. Neither is there an alert at
 * the end: that a transfer is whole is said in its own messages. */
#ifndef TOOLS_TRUST_GUARD_H
#define TOOLS_TRUST_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/trust/crypto.h"
#include "tools/trust/secret.h"

#define GUARD_PARAMETERS_MAX 64
#define GUARD_HOST_MAX       253

/* What messages of so many bytes have at most when they are sealed: each record of 16 KiB or less
 * has 22 more, and now and then new keys are announced in one of 27. */
#define GUARD_SEALED_LENGTH(length) ((length) + 22 * (((length) + 16383) / 16384) + 27)

struct guard;

enum guard_state {
    GUARD_UNDER_WAY,
    GUARD_PROVEN, /* the peer is who it should be */
    GUARD_FAILED, /* see guard_why, guard_told */
};

/* To be said to the peer; the guard's, until the next call. */
struct guard_message {
    const uint8_t *bytes;
    size_t length; /* 0: none */
};

/* The secret of this name; NULL: there is none. */
typedef const struct secret *guard_find(void *user, const char *name);

struct certificates;

/* Both are copied. NULL: no memory. */
struct guard *guard_create_client(const char *name, const struct secret *secret, bool encrypt);
/* One that wants the certificate of `host`, a DNS name or an IP address. NULL: no memory, or not
 * a host. */
struct guard *guard_create_client_of(const struct certificates *certificates, const char *host,
                                     bool encrypt);
/* `certificates`: NULL for secrets alone. `encrypt`: clients that do not wish chunks sealed are
 * refused. */
struct guard *guard_create_server(guard_find *find, void *user,
                                  const struct certificates *certificates, bool encrypt);
void guard_destroy(struct guard *guard);

/* The connection is there; `parameters`, GUARD_PARAMETERS_MAX at most, are the same bytes at both
 * ends. A client's first message goes to ret_message. False: see guard_why. */
bool guard_begin(struct guard *guard, const void *parameters, size_t length,
                 struct guard_message *ret_message);
/* Takes what the peer said. What it is to be told goes to ret_reply, in any state. */
enum guard_state guard_hear(struct guard *guard, const void *bytes, size_t length,
                            struct guard_message *ret_reply);
/* So a client with a guard begins. */
bool guard_is_hello(const void *bytes, size_t length);
enum guard_state guard_state(const struct guard *guard);
/* Why it failed: for this side, and what the peer may know. */
const char *guard_why(const struct guard *guard);
const char *guard_told(const struct guard *guard);
/* The name of the peer's secret, proven or not; or "CN=" and what its certificate calls it, which
 * is no secret's name, as far as it is of such characters. "" before it is known, or of one who has
 * shown nothing. */
const char *guard_name(const struct guard *guard);
/* Chunks are sealed, too. */
bool guard_encrypts(const struct guard *guard);

/* A message of a proven guard, of 1 byte or more; there is room for GUARD_SEALED_LENGTH of it
 * behind `to`, which does not overlap it. False: the guard is of no more use. */
bool guard_close(struct guard *guard, const void *from, size_t length, uint8_t *to,
                 size_t *ret_length);
/* Of a proven guard. False: not what the peer has sealed next, or more than there is room for, and
 * the guard has failed; nothing in `to` may be used. */
bool guard_open(struct guard *guard, const void *from, size_t length, uint8_t *to, size_t room,
                size_t *ret_length);
/* The next message goes under new keys. Done by itself, before a key has sealed too much. */
void guard_renew(struct guard *guard);

/* Of a proven guard that encrypts; as seal_close and seal_open, in any order with messages. */
bool guard_close_chunk(struct guard *guard, const void *from, size_t length, void *to,
                       uint8_t ret_tag[TAG_LENGTH]);
bool guard_open_chunk(struct guard *guard, const void *from, size_t length, void *to,
                      const uint8_t tag[TAG_LENGTH]);

#endif
