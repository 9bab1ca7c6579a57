/* A payload that stands in memory we have mapped, read as those by reference are: who passes a long
 * packet on need not say which of the two it is. */
#ifndef WEIR_IO_PAYLOAD_HERE_H
#define WEIR_IO_PAYLOAD_HERE_H

#include <stdint.h>

#include "rnic/wire/packet.h"

struct payload_here {
    struct payload_reader reader; /* first */
    const uint8_t *bytes;
    uint32_t length;
};

/* The bytes are borrowed. */
void payload_here_init(struct payload_here *ret_payload, const uint8_t *bytes, uint32_t length);

#endif
