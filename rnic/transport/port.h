/* The seam between the RNIC and whatever carries its packets: udp, shm and the simulator are sinks
 * of about equal size. */
#ifndef WEIR_TRANSPORT_PORT_H
#define WEIR_TRANSPORT_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/transport/train.h"
#include "rnic/wire/fragment.h"
#include "rnic/wire/path.h"
#include "rnic/wire/psn.h"

#define OUTGOING_FRAGMENT_MAX 34u /* SGE limit and two */

/* A packet on its way out, all borrowed until emit returns. On the wire it is header, fragments,
 * pad (packet_pad of payload_length, zeroes) and, where the link wants it, the ICRC. */
struct outgoing {
    const struct path *path;
    const uint8_t *header;
    uint32_t header_length;
    const struct fragment *fragments;
    uint32_t fragment_count;
    uint32_t payload_length; /* sum of the fragments, at most 4096, or what `reach` has said */
    /* log2 of the path MTU: the fragments stay where they are and as they are until all is
     * acknowledged or `withdraw` is called, and may be read from there, see packet.h; 0: they do
     * not. */
    uint8_t reference_shift;
    bool is_response; /* such a packet, from a responder */
    /* A request that brings an acknowledgement, which is taken before it: see
     * carries_acknowledgements. */
    bool acknowledges;
    struct psn acknowledged;
    uint32_t acknowledged_msn;
    /* Of a packet that nobody answers, else NULL: where the host's own interface refuses it, for it
     * is too long, the sink reports it as taken and leaves here how many bytes of an IP packet that
     * interface takes. */
    uint32_t *ret_takes;
};

/* One of a BTH, maybe an immediate, and a payload in one piece, which none follows at once: the
 * rest is as in a struct outgoing of zeroes. */
struct outgoing_short {
    const struct path *path;
    const uint8_t *payload; /* NULL where there is none */
    uint32_t length;        /* of the payload */
    uint32_t bth[3];        /* its words, not yet in the order of the wire */
    uint32_t immediate;     /* opaque bytes */
    struct psn acknowledged;
    bool has_immediate, acknowledges;
};

struct packet_sink {
    /* False: full; the device stops and goes on at its next device_advance. A packet that can never
     * be sent (no route, too long for the link) is counted by the link and reported as taken:
     * the transport's timers deal with the loss, or ret_takes where there are none. */
    bool (*emit)(struct packet_sink *sink, const struct outgoing *outgoing);
    /* The same for who is near, without a copy of what most of them have in common, and on its way
     * when this returns. False: nothing was done, and emit will say why. NULL: the sink has no such
     * way. */
    bool (*emit_short)(struct packet_sink *sink, const struct outgoing_short *outgoing);
    /* Packets of one path and length leave together, up to so many and so many bytes; 0: each by
     * itself. */
    uint32_t run_packets, run_bytes;
    /* Takes packets of a train, from the first on, and returns how many: fewer means full. Not
     * called where run_packets is 0. */
    uint32_t (*emit_train)(struct packet_sink *sink, const struct train *train);
    /* How long data to there had better wait, since enough of what the link was given waits in this
     * host; 0: not at all. *mark is the sink's, one of each stream; 0: nothing of the stream can
     * wait there, so it need not. NULL: the link has no such queue. */
    uint64_t (*hold_ns)(struct packet_sink *sink, const struct path *path, struct qpn destination,
                        uint64_t *mark);
    /* Requests to who is near (arrival) may bring acknowledgements. */
    bool carries_acknowledgements;
    /* Set by a refusal: only packets to that peer find no room, those to others may be tried. */
    bool others_may_go;
    /* How many bytes a packet to there may have by reference, be they left where they are or, as
     * the sink thinks best, copied as it is emitted; 0: none. NULL: to nowhere any. */
    uint32_t (*reach)(struct packet_sink *sink, const struct path *path, struct qpn destination);
    /* What was emitted to there by reference, in requests or in responses, and has not been read
     * yet never is. */
    void (*withdraw)(struct packet_sink *sink, const struct path *path, struct qpn destination,
                     bool responses);
    /* Whether some of these bytes may still be read from where they are, as what responses that
     * were emitted until then refer to; and that they never are. NULL: nobody reads any. */
    bool (*responds_with)(struct packet_sink *sink, const uint8_t *bytes, uint64_t length,
                          struct instant until);
    void (*revoke)(struct packet_sink *sink, const uint8_t *bytes, uint64_t length,
                   struct instant until);
    /* Whether packets leave this host from that address. NULL: it is not known. */
    bool (*is_here)(struct packet_sink *sink, const struct gid *address);
};

#endif
