/* How many bytes a queue pair that repairs (repair.h) may have in flight, without help from the
 * network: its share of a bottleneck. It grows as TCP's CUBIC does [RFC 9438], in bytes and by the
 * clock, so that neither a larger MTU nor a shorter way gets more than TCP would.
 *
 * Losses make it shrink by about CUBIC's factor, at most once per round trip. Where they go on
 * before it has grown back, though no queue is left on the way, shrinking was not the answer: for a
 * second the way counts as one that loses by itself, and only losses with a queue, or of more than
 * one packet in ten, make the window shrink.
 *
 * It grows no further where the round trip says that more only stands in queues: those of the way
 * and the receiver's socket hold `queue_max` of ours at most. So a short way has a small window, a
 * long one a large, up to what reports can speak of. Pure: time comes as an argument. */
#ifndef WEIR_TRANSPORT_SHARE_H
#define WEIR_TRANSPORT_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"

struct share {
    uint32_t window; /* bytes, as all here */
    uint32_t limit, least;
    uint32_t segment; /* of a TCP on such a way */
    uint32_t kept;    /* percent, on a loss */
    uint32_t queue_max;
    uint32_t threshold; /* below it the window doubles per round trip */

    uint32_t threshold_before;
    uint32_t before;   /* where it stood when it last shrank */
    uint32_t peak;     /* likewise; less where it had not grown back: that leaves room for others */
    uint32_t friendly; /* what a Reno of the same loss would have */
    uint32_t climb_ms; /* until the peak is reached again */
    struct instant shrunk;
    struct instant climbs_from; /* likewise, the time in which the window was not used left out */
    struct instant used;
    bool silent; /* nothing has come since it timed out */

    struct instant lossy_until; /* the way is known to lose by itself */
    struct instant answered;    /* losses of what left before are one, and answered */

    /* Round trips: the shortest of this round and the one before, and of the last seconds. */
    uint64_t round_ns, previous_round_ns;
    uint64_t base_ns, next_base_ns;
    struct instant round_start, base_start;
    uint32_t round_delivered, round_lost; /* bytes */
    uint32_t previous_delivered, previous_lost;
    uint32_t loss; /* of all bytes, in 2^-24, the latest counted most */
};

void share_init(struct share *share, struct instant now, uint32_t mtu, uint32_t window,
                uint32_t queue_max, uint32_t limit);
void share_measured(struct share *share, struct instant now, uint64_t round_trip_ns);
/* `bytes` have arrived; `busy`: the window was what held more back. */
void share_delivered(struct share *share, struct instant now, uint32_t bytes, bool busy);
/* `bytes` are lost, the last of which had left at `left`. */
void share_lost(struct share *share, struct instant now, uint32_t bytes, struct instant left);
/* Nothing was heard at all. */
void share_timed_out(struct share *share, struct instant now);

#endif
