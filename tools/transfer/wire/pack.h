/* Several messages in one that a link carries: what a link costs for each of its own is shared.
 *
 * Bytes: an octet of 0, which no message begins with, then each message behind its length in 16
 * bits, big-endian. A message alone goes as it is. */
#ifndef TOOLS_TRANSFER_PACK_H
#define TOOLS_TRANSFER_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/transfer/wire/protocol.h"

#define PACK_LENGTH_MAX (MESSAGE_LENGTH_MAX + 3)

struct pack {
    size_t length;  /* of the bytes so far; 0: begin with that */
    unsigned count; /* of messages */
    uint8_t bytes[PACK_LENGTH_MAX];
};

/* There is room for one more of this length; for the first always, up to MESSAGE_LENGTH_MAX. */
bool pack_has_room(const struct pack *pack, size_t length);
/* Where a message of this length, for which there is room, is to be written. */
uint8_t *pack_add(struct pack *pack, size_t length);
/* What goes on the wire. */
struct span pack_bytes(const struct pack *pack);

/* What came, message by message. */
struct unpack {
    struct span rest;
    bool packed;
};

struct unpack unpack_start(const void *bytes, size_t length);
/* False: there is none left. What is malformed comes as a message without bytes. */
bool unpack_next(struct unpack *unpack, struct span *ret_message);

#endif
