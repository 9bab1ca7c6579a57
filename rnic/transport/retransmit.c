/* The estimator is Jacobson's: mean and mean deviation with gains 1/8 and 1/4. */
#include "rnic/transport/retransmit.h"

#define TIMEOUT_UNIT_NS   4096u
#define WAIT_MIN_NS       UINT64_C(12000000) /* a receiver that was not scheduled is not a loss */
#define WAIT_MIN_LOSSY_NS UINT64_C(1000000)
#define WAIT_SHORT_NS     UINT64_C(4200000) /* a timeout up to this is taken as it is */
#define PROBE_MIN_NS      UINT64_C(100000)
#define SILENCE_MAX_NS    UINT64_C(2000000)
#define PROBES_MAX        16u
#define HESITATION_MAX    10u
#define GAP_MEMORY        8u /* of four bits, as HESITATION_MAX */
#define WAIT_UNKNOWN_NS   UINT64_C(50000000)
#define PATIENCE_CALM_NS  UINT64_C(2000000000) /* a peer may be off the CPU for half a second */
#define HASTE_NS          UINT64_C(30000000)   /* two dozes, and some time to get a processor */
#define PATIENCE_FACTOR   4u                   /* what a timer may take longer than its attribute */
#define WAIT_FOREVER_NS   UINT64_C(1000000000) /* longest wait where the attribute sets none */
#define BACKOFF_MAX       10u
#define SAMPLE_MAX_NS     UINT32_C(4000000000)
#define RNR_TIMER_UNIT_NS UINT64_C(10000)

uint64_t retransmit_timeout_ns(uint8_t code)
{
    return code == 0 ? 0 : (uint64_t)TIMEOUT_UNIT_NS << (code & 31);
}

/* The table counts in units of 10 us: 65536 for code 0, then 1, 2, 3, 4 and from there on in steps
 * of a half octave: 6, 8, 12, 16, ... 49152. */
uint64_t retransmit_rnr_timer_ns(uint8_t code)
{
    code &= 31;
    uint64_t units = 65536;
    if (code >= 1 && code <= 2) {
        units = code;
    } else if (code > 2) {
        uint32_t octave = code / 2u;
        units = (code & 1) ? UINT64_C(3) << (octave - 1) : UINT64_C(1) << octave;
    }
    return units * RNR_TIMER_UNIT_NS;
}

void retransmit_reset(struct retransmit *retransmit)
{
    *retransmit = (struct retransmit){
        .timeout_code = retransmit->timeout_code,
        .retry_count = retransmit->retry_count,
        .deadline = INSTANT_NEVER,
    };
}

void retransmit_set(struct retransmit *retransmit, uint8_t timeout_code, uint8_t retry_count)
{
    retransmit->timeout_code = timeout_code;
    retransmit->retry_count = retry_count;
}

uint64_t retransmit_expected_ns(const struct retransmit *retransmit)
{
    uint64_t more = UINT64_C(4) * retransmit->variation_ns;
    if (retransmit->probes && more < retransmit->smoothed_ns) {
        more = retransmit->smoothed_ns; /* queues grow while nothing is lost */
    }
    return more + retransmit->smoothed_ns;
}

uint64_t retransmit_probe_ns(const struct retransmit *retransmit)
{
    uint64_t expected_ns = retransmit_expected_ns(retransmit);
    return expected_ns < PROBE_MIN_NS ? PROBE_MIN_NS : expected_ns;
}

static uint64_t most_ns(const struct retransmit *retransmit)
{
    uint64_t timeout_ns = retransmit_timeout_ns(retransmit->timeout_code);
    return timeout_ns != 0 ? timeout_ns : WAIT_FOREVER_NS;
}

uint64_t retransmit_silence_ns(const struct retransmit *retransmit)
{
    uint64_t part_ns = most_ns(retransmit) / 4;
    return part_ns < SILENCE_MAX_NS ? part_ns : SILENCE_MAX_NS;
}

bool retransmit_is_silent(const struct retransmit *retransmit, struct instant now)
{
    uint64_t waited_ns = instant_elapsed_ns(retransmit->last_progress, now);
    return !retransmit->is_vague && waited_ns >= retransmit_silence_ns(retransmit);
}

static uint64_t wait_ns(const struct retransmit *retransmit)
{
    uint64_t most = most_ns(retransmit);
    if (most <= WAIT_SHORT_NS) {
        return most;
    }
    uint64_t wait = WAIT_UNKNOWN_NS;
    if (retransmit->smoothed_ns != 0) {
        bool short_waits = retransmit->lossy > 0 && !retransmit->probes;
        uint64_t least = short_waits ? WAIT_MIN_LOSSY_NS : WAIT_MIN_NS;
        wait = retransmit_expected_ns(retransmit);
        wait = retransmit->probes ? 2 * wait : wait; /* a probe is to be answered before */
        wait = wait < least ? least : wait;
    }
    wait <<= retransmit->backoff;
    return wait < most ? wait : most;
}

bool retransmit_may_probe(const struct retransmit *retransmit)
{
    return retransmit->probes && retransmit->smoothed_ns != 0 && retransmit->expiries == 0 &&
           most_ns(retransmit) > WAIT_SHORT_NS;
}

/* Waiting began at last_progress; `now` is that, or when a probe was due. */
static struct instant next_deadline(const struct retransmit *retransmit, struct instant now)
{
    uint64_t wait = wait_ns(retransmit);
    if (!retransmit_may_probe(retransmit)) {
        return instant_after(now, wait);
    }
    uint64_t probe = retransmit_probe_ns(retransmit)
                     << (retransmit->probed + retransmit->hesitation);
    return instant_earlier(instant_after(now, probe),
                           instant_after(retransmit->last_progress, wait));
}

void retransmit_sent(struct retransmit *retransmit, struct instant now, struct psn psn, bool fresh)
{
    if (instant_is_never(retransmit->deadline)) {
        if (retransmit->expiries == 0) {
            retransmit->last_progress = now;
            retransmit->probed = 0;
        }
        retransmit->deadline = next_deadline(retransmit, now);
    }
    if (fresh && !retransmit->sampling) {
        retransmit->sampling = true;
        retransmit->sample_psn = psn;
        retransmit->sample_start = now;
    }
}

void retransmit_asked(struct retransmit *retransmit, struct instant now)
{
    if (instant_before(retransmit->last_progress, now)) {
        retransmit->deadline = next_deadline(retransmit, now);
    }
}

void retransmit_probe_first(struct retransmit *retransmit)
{
    retransmit->sampling = false;
    retransmit->probes = true;
}

void retransmit_probed_in_vain(struct retransmit *retransmit, uint32_t count)
{
    uint32_t room = HESITATION_MAX - retransmit->hesitation;
    retransmit->hesitation += count < room ? count : room;
}

void retransmit_sample(struct retransmit *retransmit, uint64_t sample_ns)
{
    retransmit->backoff = 0;
    retransmit->hesitation = 0;
    uint32_t sample = sample_ns > SAMPLE_MAX_NS ? SAMPLE_MAX_NS : (uint32_t)sample_ns;
    sample = sample == 0 ? 1 : sample;
    if (retransmit->shortest_ns == 0 || sample < retransmit->shortest_ns) {
        retransmit->shortest_ns = sample;
    }
    if (retransmit->smoothed_ns == 0) {
        retransmit->smoothed_ns = sample;
        retransmit->variation_ns = sample / 2;
        return;
    }
    uint32_t smoothed = retransmit->smoothed_ns;
    uint32_t deviation = sample > smoothed ? sample - smoothed : smoothed - sample;
    retransmit->variation_ns =
        (uint32_t)(retransmit->variation_ns * UINT64_C(3) / 4) + deviation / 4;
    retransmit->smoothed_ns = smoothed - smoothed / 8 + (sample + 7) / 8;
}

void retransmit_progress(struct retransmit *retransmit, struct instant now, struct psn unacked,
                         bool waiting)
{
    if (retransmit->sampling && psn_before(retransmit->sample_psn, unacked)) {
        retransmit->sampling = false;
        retransmit_sample(retransmit, instant_elapsed_ns(retransmit->sample_start, now));
    }
    retransmit->expiries = 0;
    retransmit->probed = 0;
    retransmit->backoff = retransmit->probes ? retransmit->backoff : 0;
    retransmit->last_progress = now;
    retransmit->deadline = waiting ? next_deadline(retransmit, now) : INSTANT_NEVER;
}

bool retransmit_begins(struct retransmit *retransmit, struct instant now)
{
    if (!retransmit->is_vague) {
        return false;
    }
    retransmit->is_vague = false;
    retransmit->last_progress = now;
    retransmit->probed = 0;
    retransmit->deadline = next_deadline(retransmit, now);
    return true;
}

bool retransmit_probe(struct retransmit *retransmit, struct instant now)
{
    uint64_t waited_ns = instant_elapsed_ns(retransmit->last_progress, now);
    if (!retransmit_may_probe(retransmit) || retransmit->probed >= PROBES_MAX ||
        waited_ns >= wait_ns(retransmit)) {
        return false;
    }
    retransmit->probed++;
    retransmit->deadline = next_deadline(retransmit, now);
    return true;
}

void retransmit_put_off(struct retransmit *retransmit, struct instant due)
{
    retransmit->probed--;
    retransmit->deadline =
        instant_earlier(due, instant_after(retransmit->last_progress, wait_ns(retransmit)));
}

void retransmit_rewound(struct retransmit *retransmit)
{
    retransmit->sampling = false;
}

void retransmit_gap(struct retransmit *retransmit)
{
    retransmit->lossy = GAP_MEMORY;
}

void retransmit_too_early(struct retransmit *retransmit)
{
    retransmit->lossy -= retransmit->lossy > 0;
}

void retransmit_suspend(struct retransmit *retransmit, struct instant resume)
{
    retransmit->sampling = false;
    retransmit->expiries = 0;
    retransmit->backoff = 0;
    retransmit->last_progress = resume;
    retransmit->deadline = INSTANT_NEVER;
}

static uint64_t patience_ns(const struct retransmit *retransmit)
{
    uint64_t timeout_ns = retransmit_timeout_ns(retransmit->timeout_code);
    uint64_t asked = (retransmit->retry_count + 1u) * timeout_ns;
    if (timeout_ns <= WAIT_SHORT_NS || asked >= PATIENCE_CALM_NS) {
        return asked;
    }
    uint64_t most = asked * PATIENCE_FACTOR;
    return most < PATIENCE_CALM_NS ? most : PATIENCE_CALM_NS;
}

bool retransmit_is_hasty(const struct retransmit *retransmit)
{
    return retransmit->timeout_code != 0 && patience_ns(retransmit) < HASTE_NS;
}

bool retransmit_is_exhausted(const struct retransmit *retransmit, struct instant now)
{
    return retransmit->timeout_code != 0 && retransmit->expiries > retransmit->retry_count &&
           instant_elapsed_ns(retransmit->last_progress, now) >= patience_ns(retransmit);
}

bool retransmit_expired(struct retransmit *retransmit, struct instant now)
{
    retransmit->expiries += retransmit->expiries < UINT8_MAX;
    retransmit->backoff += retransmit->backoff < BACKOFF_MAX;
    retransmit->sampling = false;
    /* The next wait begins when the repetition has left, which a full sink may delay. */
    retransmit->deadline = INSTANT_NEVER;
    return retransmit_is_exhausted(retransmit, now);
}

uint64_t retransmit_round_trip_ns(const struct retransmit *retransmit)
{
    return retransmit->smoothed_ns != 0 ? retransmit->smoothed_ns : WAIT_MIN_LOSSY_NS;
}
