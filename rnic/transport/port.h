/* The seam between the RNIC and whatever carries its packets: udp, shm and the simulator are sinks
 * of about equal size. */
#ifndef WEIR_TRANSPORT_PORT_H
#define WEIR_TRANSPORT_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/wire/fragment.h"
#include "rnic/wire/path.h"

#define OUTGOING_FRAGMENT_MAX 34u /* SGE limit and two */

/* A packet on its way out, all borrowed until emit returns. On the wire it is header, fragments,
 * pad (packet_pad of payload_length, zeroes) and, where the link wants it, the ICRC. */
struct outgoing {
    const struct path *path;
    const uint8_t *header;
    uint32_t header_length;
    const struct fragment *fragments;
    uint32_t fragment_count;
    uint32_t payload_length; /* sum of the fragments, at most 4096 */
};

struct packet_sink {
    /* False: full; the device stops and goes on at its next device_advance. A packet that can never
     * be sent (no route, too long for the link) is counted by the link and reported as taken:
     * the transport's timers deal with the loss. */
    bool (*emit)(struct packet_sink *sink, const struct outgoing *outgoing);
    /* Set by a refusal: only packets to that peer find no room, those to others may be tried. */
    bool others_may_go;
};

#endif
