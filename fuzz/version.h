/* A seed's greeting has ff ff in the place of the protocol's version: it stands for whatever that
 * is now, or the seeds would say nothing any more with each new one. */
#ifndef WEIR_FUZZ_VERSION_H
#define WEIR_FUZZ_VERSION_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/wire/protocol.h"

/* A copy of the message, to be freed. */
static inline uint8_t *with_version(const uint8_t *bytes, size_t length)
{
    uint8_t *copy = malloc(length + 1);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, bytes, length);
    size_t at = length > 0 && bytes[0] == MESSAGE_HELLO ? 5 : 1;
    bool greets = length >= at + 2 && (bytes[0] == MESSAGE_HELLO || bytes[0] == MESSAGE_WELCOME);
    if (greets && bytes[at] == 0xff && bytes[at + 1] == 0xff) {
        copy[at] = PROTOCOL_VERSION >> 8;
        copy[at + 1] = PROTOCOL_VERSION & 0xff;
    }
    return copy;
}

#endif
