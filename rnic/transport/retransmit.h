/* When a reliable queue pair has waited long enough for an answer, and when it gives up.
 *
 * The wait follows the measured round trip and doubles with each expiry, but is never longer than
 * the local ACK timeout attribute, which is taken as it is where it is short. It is never so short
 * that a peer off the CPU for a moment looks like a loss, unless gaps tell that packets do get lost
 * and waiting for the last one of a message would cost. Where probes go before it, the wait stays
 * long. Giving up follows the
 * attribute's meaning: not before retry_count + 1 expiries and not before (retry_count + 1) *
 * timeout without progress; up to four times that, which the specification allows, where it would
 * be less than two seconds: a busy peer may take as long to look. [IBA 9.7.6.1.3] Also here: the
 * RNR timer codes. Not here: what is sent again (requester). */
#ifndef WEIR_TRANSPORT_RETRANSMIT_H
#define WEIR_TRANSPORT_RETRANSMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/wire/psn.h"

struct retransmit {
    struct instant deadline;      /* NEVER: nothing is waited for */
    struct instant last_progress; /* the peer's last sign of life, or when waiting began */

    /* Round trips; those above four seconds count as that. */
    uint32_t smoothed_ns; /* 0: not measured yet */
    uint32_t variation_ns;
    uint32_t shortest_ns; /* of all measured; 0: none was */
    struct psn sample_psn;
    struct instant sample_start;
    bool sampling;
    bool probes; /* and they come from retransmit_sample alone, see retransmit_probe_first */

    /* The wait began at a time that was long ago already, maybe. Whoever says when it begins (with
     * retransmit_sent or retransmit_progress) sets it, see environment. */
    bool is_vague;

    uint8_t lossy : 4; /* how many waits may prove too short before the last gap is forgotten */
    uint8_t hesitation : 4;   /* the wait for the first probe is doubled so often, */
    uint8_t backoff;          /* ... and that for the timeout */
    uint8_t probed;           /* probes that were due since last_progress */
    uint8_t expiries;         /* likewise */
    uint8_t timeout_code : 5; /* the attributes */
    uint8_t retry_count : 3;
};

/* 4.096 us * 2^code; 0 for code 0, which means for ever. */
uint64_t retransmit_timeout_ns(uint8_t code);
/* The 5-bit code of an RNR NAK. [IBA table 45] */
uint64_t retransmit_rnr_timer_ns(uint8_t code);

void retransmit_reset(struct retransmit *retransmit);
void retransmit_set(struct retransmit *retransmit, uint8_t timeout_code, uint8_t retry_count);

/* A packet that draws an answer left. `fresh`: for the first time, so it may be timed. */
void retransmit_sent(struct retransmit *retransmit, struct instant now, struct psn psn, bool fresh);
/* It is the first of what is under way that asks: only now an answer can be waited for. */
void retransmit_asked(struct retransmit *retransmit, struct instant now);
/* Everything before `unacked` is answered; `waiting`: there is more to wait for. */
void retransmit_progress(struct retransmit *retransmit, struct instant now, struct psn unacked,
                         bool waiting);
/* From now on the deadline may be a probe's, and somebody else measures round trips
 * (retransmit_sample), of packets that were sent once only: until one is, progress does not shorten
 * a wait that was too short. [Karn] */
void retransmit_probe_first(struct retransmit *retransmit);
/* So many probes came in vain. Until a round trip is measured the next wait longer: a peer that
 * works before it answers would else be probed each time, and therefore never be measured. */
void retransmit_probed_in_vain(struct retransmit *retransmit, uint32_t count);
/* A round trip was measured. */
void retransmit_sample(struct retransmit *retransmit, uint64_t sample_ns);
/* It waits so long that some milliseconds do not matter. */
static inline bool retransmit_is_patient(const struct retransmit *retransmit)
{
    bool is_long = retransmit->timeout_code == 0 || retransmit->timeout_code >= 14; /* 67 ms */
    return is_long && retransmit->lossy == 0 && !retransmit->probes;
}
/* It gives up before who holds an answer back, while a thread of his dozes, may have sent it. */
bool retransmit_is_hasty(const struct retransmit *retransmit);
/* The peer lives, but asks for patience or repetition: what was timed means nothing now. */
void retransmit_rewound(struct retransmit *retransmit);
/* A gap was seen: this path loses packets. */
void retransmit_gap(struct retransmit *retransmit);
/* What expired had arrived: the wait was too short, or the answer was lost. */
void retransmit_too_early(struct retransmit *retransmit);
/* The peer is alive and busy (RNR): patience starts again at `resume`. */
void retransmit_suspend(struct retransmit *retransmit, struct instant resume);

/* The deadline has passed. True: nobody knows since when the wait had lasted; it begins now. */
bool retransmit_begins(struct retransmit *retransmit, struct instant now);
/* The wait that is under way has probes: none has ended since something was answered, it is long
 * enough, and a round trip has been measured. */
bool retransmit_may_probe(const struct retransmit *retransmit);
/* The deadline has passed. True: it was a probe's, and the next is set; false: the wait is over. */
bool retransmit_probe(struct retransmit *retransmit, struct instant now);
/* That probe is not sent: it is due again at `due`. */
void retransmit_put_off(struct retransmit *retransmit, struct instant due);
/* The deadline has passed, and was no probe's. True: give up. False: repeat; the next wait begins
 * with what is sent. */
bool retransmit_expired(struct retransmit *retransmit, struct instant now);
/* Neither progress nor patience left, whatever the timer says. */
bool retransmit_is_exhausted(const struct retransmit *retransmit, struct instant now);
/* After so long an answer should have come: at least two round trips where probes go before the
 * timer. */
uint64_t retransmit_expected_ns(const struct retransmit *retransmit);
/* ... and after so long a probe is worth it. */
uint64_t retransmit_probe_ns(const struct retransmit *retransmit);
/* For so long packets may leave that ask for no answer: well within the timeout. */
uint64_t retransmit_silence_ns(const struct retransmit *retransmit);
/* They have left for as long, without a sign of life from the peer. */
bool retransmit_is_silent(const struct retransmit *retransmit, struct instant now);
/* About one round trip, for those who must not repeat a demand before it can have been met. */
uint64_t retransmit_round_trip_ns(const struct retransmit *retransmit);

#endif
