/* Packets of our own making, sent to the other end's device past our own. */
#ifndef WEIR_TOUR_RAW_H
#define WEIR_TOUR_RAW_H

#include <stddef.h>
#include <stdint.h>

#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

/* Headers, payload up to twice the longest, and the ICRC. */
#define RAW_MAX (PACKET_HEADER_MAX + 2 * PACKET_PAYLOAD_MAX + 4)

struct link;

struct raw {
    int socket;
    struct path path;
    const struct link *link; /* borrowed */
};

struct raw raw_open(const struct link *link);
/* `length` bytes that begin at the BTH, and behind them room for the ICRC, which is wrong by
 * `flaw`. */
void raw_send(const struct raw *raw, uint8_t *bytes, size_t length, uint32_t flaw);
void raw_close(struct raw *raw);

#endif
