/* What TLS reads from and writes to, where its records travel as messages: a BIO over the bytes of
 * one message that came, and over the room for one that is to go. It holds no bytes of its own, so
 * whatever a peer says, nothing gathers. */
#ifndef TOOLS_TRUST_CARRIER_H
#define TOOLS_TRUST_CARRIER_H

#include <openssl/bio.h>
#include <stdint.h>

struct carrier {
    const uint8_t *from;
    size_t left; /* of what came; 0: there will be more some time */
    uint8_t *to;
    size_t room;   /* what does not fit fails */
    size_t length; /* of what has been written so far */
};

/* `carrier` outlives it. NULL: no memory. */
BIO *carrier_bio(struct carrier *carrier);

#endif
