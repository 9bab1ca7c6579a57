/* How fast a queue pair's data leave when the network says that it is congested: the reaction point
 * of DCQCN [Zhu et al., SIGCOMM 2015], fed by congestion notification packets (CNP).
 *
 * There is no limit until the first CNP. It halves the rate that was measured; each further one
 * takes off alpha / 2 of it, where alpha follows how often they come. Without them the rate
 * climbs, by the clock: halfway back to where it was, five times; then in small steps; then in
 * growing ones, until there is no limit again. It never falls below RATE_FLOOR, so that no forged
 * CNP stops a queue pair.
 *
 * What the paper leaves to a network of some microseconds is explicit here: nothing happens twice
 * before its effect can have come back, so each step takes a round trip where that is longer than
 * DCQCN's own times. And it counts no bytes to climb: in software the clock is quick enough.
 *
 * The window (congestion.h) answers losses and the round trip and bounds what is in flight; both
 * hold at once. Not here: who sends CNPs and who is believed (notice.h). */
#ifndef WEIR_TRANSPORT_RATE_H
#define WEIR_TRANSPORT_RATE_H

#include "rnic/transport/throttle.h"

#define RATE_FLOOR     UINT64_C(4096) /* bytes per millisecond */
#define RATE_REDUCE_NS UINT64_C(50000)

struct rate {
    uint64_t current;     /* bytes per millisecond; 0: no limit */
    uint64_t target;      /* where it climbs to */
    uint32_t alpha;       /* of 65536 */
    uint32_t rounds;      /* of climbing since it last fell */
    uint64_t feedback_ns; /* the round trip when it last fell */
    struct instant reduced, eased, climbed;
    struct throttle throttle;

    uint64_t measured; /* bytes per millisecond, of the last span */
    uint64_t span_bytes;
    struct instant span_start;
};

void rate_reset(struct rate *rate);
/* Whether data may leave now; if not, not before `throttle.resume`. */
bool rate_may_send(struct rate *rate, struct instant now);
void rate_sent(struct rate *rate, struct instant now, uint32_t bytes);
/* A CNP came. `round_trip_ns` as measured, with the queues on the way; 0: not known. */
void rate_congested(struct rate *rate, struct instant now, uint64_t round_trip_ns);

#endif
