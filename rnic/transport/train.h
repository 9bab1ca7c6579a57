/* Packets of one message in a row, alike but for PSN and payload: neither its first nor its last,
 * none asks for an acknowledgement. What they have in common is made once. */
#ifndef WEIR_TRANSPORT_TRAIN_H
#define WEIR_TRANSPORT_TRAIN_H

#include <stdint.h>

#include "rnic/wire/path.h"

struct fragment;
struct outgoing;
struct packet_sink;

#define TRAIN_MAX   64u         /* packets, */
#define TRAIN_BYTES (64u << 10) /* and of payload: a turn's, for others wait so long */

/* Borrowed until it has been emitted. */
struct train {
    const struct path *path;
    const uint8_t *header; /* of the first packet; the others' have the PSNs that follow */
    uint32_t header_length;
    const uint8_t *bytes;    /* the payloads, one behind the other */
    uint32_t payload_length; /* of each, a multiple of 4 */
    uint32_t count;
    uint32_t under_way; /* bytes of this stream before them, at most */
};

/* One of them by itself: `header`, of PACKET_HEADER_MAX bytes, and `payload` are what *ret_outgoing
 * is made of. */
void train_packet(const struct train *train, uint32_t index, uint8_t *header,
                  struct fragment *payload, struct outgoing *ret_outgoing);
/* For sinks that take packets one by one. Returns how many were taken, from the first on. */
uint32_t train_emit_singly(struct packet_sink *sink, const struct train *train);

#endif
