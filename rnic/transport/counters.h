/* Everything a device counts. One field per fact; names for people come from counters_name. */
#ifndef WEIR_TRANSPORT_COUNTERS_H
#define WEIR_TRANSPORT_COUNTERS_H

#include <stdint.h>

#include "rnic/wire/packet.h"

enum counter {
    COUNTER_PACKETS_SENT,
    COUNTER_PACKETS_RECEIVED,
    COUNTER_BYTES_SENT,     /* payload */
    COUNTER_BYTES_RECEIVED, /* payload of packets handed to a queue pair */
    COUNTER_COMPLETIONS,
    COUNTER_RETRANSMITTED_PACKETS,
    COUNTER_TIMEOUTS,
    COUNTER_RETRIES_EXCEEDED,
    COUNTER_PEERS_DIED, /* queue pairs that failed because their peer's process is known to be gone
                         */
    COUNTER_RNR_RETRIES_EXCEEDED,
    COUNTER_NAK_SEQUENCE_SENT,
    COUNTER_NAK_SEQUENCE_RECEIVED,
    COUNTER_RNR_NAK_SENT,
    COUNTER_RNR_NAK_RECEIVED,
    COUNTER_NAK_ERROR_SENT, /* access, operation, invalid */
    COUNTER_NAK_ERROR_RECEIVED,
    COUNTER_DUPLICATE_REQUESTS,
    COUNTER_OUT_OF_SEQUENCE,
    COUNTER_SINK_FULL,
    COUNTER_CONGESTION_MARKS, /* packets that came with ECN CE */
    COUNTER_CNP_SENT,
    COUNTER_CNP_HANDLED,           /* of a queue pair's own peer */
    COUNTER_RELAYED_REQUESTS,      /* to other processes of the host, for their shared queues */
    COUNTER_DEPUTY_REQUESTS,       /* from them */
    COUNTER_REFERENCES_SENT,       /* packets whose payload stays in memory, to be read there */
    COUNTER_REFERENCES_READ,       /* ... of peers, read */
    COUNTER_REFERENCES_UNREADABLE, /* ... asked for as bytes */
    COUNTER_REFERENCES_UNFOLDED,   /* ... taken apart into ordinary packets */
    COUNTER_DIRECT_WRITES,         /* done without packets, see direct.h */
    COUNTER_DIRECT_READS,
    COUNTER_DIRECT_BYTES,             /* of both */
    COUNTER_EARLY_PACKETS,            /* that came before their turn and were kept */
    COUNTER_ACKNOWLEDGEMENTS_CARRIED, /* by requests of ours */
    COUNTER_PROBES,                   /* see repair.h */
    COUNTER_REPORTS_SENT,             /* see selective.h */
    COUNTER_REPORTS_RECEIVED,
    COUNTER_COUNT,
};

struct counters {
    uint64_t values[COUNTER_COUNT];
    uint64_t refused[REFUSED_COUNT];
};

/* "packets_sent", static. */
const char *counter_name(enum counter counter);

#endif
