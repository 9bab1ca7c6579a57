/* The counters' names. */
#include "rnic/transport/counters.h"

#include "rnic/base/check.h"

static const char *const names[COUNTER_COUNT] = {
    [COUNTER_PACKETS_SENT] = "packets_sent",
    [COUNTER_PACKETS_RECEIVED] = "packets_received",
    [COUNTER_BYTES_SENT] = "bytes_sent",
    [COUNTER_BYTES_RECEIVED] = "bytes_received",
    [COUNTER_COMPLETIONS] = "completions",
    [COUNTER_RETRANSMITTED_PACKETS] = "retransmitted_packets",
    [COUNTER_TIMEOUTS] = "timeouts",
    [COUNTER_RETRIES_EXCEEDED] = "retries_exceeded",
    [COUNTER_PEERS_DIED] = "peers_died",
    [COUNTER_RNR_RETRIES_EXCEEDED] = "rnr_retries_exceeded",
    [COUNTER_NAK_SEQUENCE_SENT] = "nak_sequence_sent",
    [COUNTER_NAK_SEQUENCE_RECEIVED] = "nak_sequence_received",
    [COUNTER_RNR_NAK_SENT] = "rnr_nak_sent",
    [COUNTER_RNR_NAK_RECEIVED] = "rnr_nak_received",
    [COUNTER_NAK_ERROR_SENT] = "nak_error_sent",
    [COUNTER_NAK_ERROR_RECEIVED] = "nak_error_received",
    [COUNTER_DUPLICATE_REQUESTS] = "duplicate_requests",
    [COUNTER_OUT_OF_SEQUENCE] = "out_of_sequence",
    [COUNTER_SINK_FULL] = "sink_full",
    [COUNTER_CONGESTION_MARKS] = "np_ecn_marked_roce_packets", /* the names that mlx5 has */
    [COUNTER_CNP_SENT] = "np_cnp_sent",
    [COUNTER_CNP_HANDLED] = "rp_cnp_handled",
    [COUNTER_RELAYED_REQUESTS] = "relayed_requests",
    [COUNTER_DEPUTY_REQUESTS] = "deputy_requests",
    [COUNTER_REFERENCES_SENT] = "references_sent",
    [COUNTER_REFERENCES_READ] = "references_read",
    [COUNTER_REFERENCES_UNREADABLE] = "references_unreadable",
    [COUNTER_REFERENCES_UNFOLDED] = "references_unfolded",
    [COUNTER_DIRECT_WRITES] = "direct_writes",
    [COUNTER_DIRECT_READS] = "direct_reads",
    [COUNTER_DIRECT_BYTES] = "direct_bytes",
    [COUNTER_EARLY_PACKETS] = "early_packets",
    [COUNTER_ACKNOWLEDGEMENTS_CARRIED] = "acknowledgements_carried",
    [COUNTER_PROBES] = "tail_probes",
    [COUNTER_REPORTS_SENT] = "reports_sent",
    [COUNTER_REPORTS_RECEIVED] = "reports_received",
};

const char *counter_name(enum counter counter)
{
    CHECK((unsigned)counter < COUNTER_COUNT);
    return names[counter];
}
