/* Streams between two hosts: reliable connections on which request follows request, up to a depth,
 * so that windows fill and what comes early finds no place.
 *
 * Here: what is posted, with memory of its own at both ends, and the oracle "streams" over it. All
 * completes once, in the order of posting, with success, and has moved exactly its bytes; each
 * message completes one receive. Where a peer lies (liar.h) bytes are not looked at, and requests
 * may fail: then all that come later are flushed. In the end nothing is outstanding. Not here:
 * links and how long it takes (bulk.c). */
#ifndef WEIR_SIM_STREAMS_H
#define WEIR_SIM_STREAMS_H

#include "sim/dice.h"
#include "sim/host.h"

#define STREAMS_MAX        3u
#define STREAM_DEPTH_MAX   12u
#define STREAM_MESSAGE_MAX (192u << 10)
#define STREAM_READS_MAX   16u

struct streams_config {
    struct host_config host;
    uint32_t selective; /* a bit per host that speaks selective repeat */
    uint32_t selective_packets;
    uint32_t flows, depth;
    uint32_t message_max;
    uint32_t reads_percent;
    uint32_t unready_ns; /* at most: until a receive that was used is posted anew, now and then */
    bool one_way;
    bool lied_to;
    uint8_t timeout;
    uint8_t traffic_class;
};

struct streams;

/* The hosts are 0 and 1 of the network, whose links are set. Posts the first requests. */
struct streams *streams_make(struct simulator *simulator, struct network *network,
                             const struct streams_config *config);
struct host *streams_host(struct streams *streams, unsigned index);
/* Of a queue pair of host `index`, the PSN of the oldest packet that is not acknowledged. */
struct psn streams_unacked(const struct streams *streams, unsigned index, uint32_t flow);
/* Nothing more is posted; what is outstanding completes. */
void streams_stop(struct streams *streams);
void streams_check_ended(struct streams *streams);
uint64_t streams_done(const struct streams *streams);
uint64_t streams_failed(const struct streams *streams);
uint64_t streams_counter(const struct streams *streams, enum counter counter); /* of both hosts */
/* The longest time that a queue pair which had something to do completed nothing. */
uint64_t streams_stood_ns(const struct streams *streams);
/* Takes down what there is, and looks for what is left; after a violation it only frees. */
void streams_end(struct streams *streams);

#endif
