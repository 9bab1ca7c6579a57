/* A guard, between its own file and the callbacks of TLS. */
#ifndef TOOLS_TRUST_GUARD_PRIVATE_H
#define TOOLS_TRUST_GUARD_PRIVATE_H

#include <openssl/ssl.h>

#include "tools/trust/carrier.h"
#include "tools/trust/guard.h"

/* The extension: a version, flags, the connection's parameters. */
#define BINDING_VERSION      1
#define BINDING_FLAG_ENCRYPT 1
#define BINDING_HEAD_LENGTH  2
/* What one side says before it is proven; the server's certificates are in it. */
#define FLIGHT_LENGTH_MAX (16u << 10)

struct guard {
    SSL_CTX *context; /* of certificates; NULL: there are secrets alone */
    SSL *ssl;         /* NULL: there is no connection yet */
    bool is_server;
    bool demands; /* a server: chunks are to be sealed */
    bool encrypt; /* a client's wish, and then what holds */
    enum guard_state state;
    bool takes_anyone; /* a server with a certificate: who shows nothing is let in, too */
    char host[GUARD_HOST_MAX + 1]; /* whom a client wants a certificate of; "": its secret's peer */
    guard_find *find;              /* a server's */
    void *user;
    char name[SECRET_NAME_MAX + 1];
    struct secret secret;
    bool is_named; /* a server: the peer has offered a key */
    bool is_known; /* there is one of that name */
    uint8_t binding[BINDING_HEAD_LENGTH + GUARD_PARAMETERS_MAX];
    size_t binding_length;
    bool is_bound; /* the peer's is the same */
    struct carrier carrier;
    unsigned heard;   /* messages of the handshake */
    uint64_t records; /* sealed under this key, at least so many */
    char why[192];
    const char *told;
    struct seal *closing, *opening; /* chunks */
    uint8_t flight[FLIGHT_LENGTH_MAX];
};

#endif
