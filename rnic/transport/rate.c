/* Constants are those of mlx5's firmware where it has them, but for the floor (1 Mbit/s there). */
#include "rnic/transport/rate.h"

#define SPAN_NS         UINT64_C(200000) /* of a measurement */
#define FEEDBACK_MAX_NS UINT64_C(10000000)
#define EASE_NS         UINT64_C(55000)
#define CLIMB_NS        UINT64_C(300000)
#define ALPHA_ONE       65536u
#define ALPHA_GAIN      64u /* alpha moves by that part of the way */
#define EASE_MAX        1024u
#define FAST_ROUNDS     5u
#define STEP            UINT64_C(625) /* 5 Mbit/s; later twice that, three times, ... */
#define NO_LIMIT        UINT64_C(10000000)

void rate_reset(struct rate *rate)
{
    *rate = (struct rate){.current = 0};
}

static uint64_t at_least(uint64_t least, uint64_t value)
{
    return value > least ? value : least;
}

static void climb(struct rate *rate)
{
    rate->rounds++;
    if (rate->rounds > 2 * FAST_ROUNDS) {
        rate->target += (rate->rounds - 2 * FAST_ROUNDS) * STEP;
    } else if (rate->rounds > FAST_ROUNDS) {
        rate->target += STEP;
    }
    rate->current = (rate->current + rate->target) / 2;
    if (rate->current >= NO_LIMIT) {
        rate->current = 0;
    }
}

/* What the clock has done to a limited rate. Climbing ends above NO_LIMIT, after two hundred rounds
 * at most. */
static void age(struct rate *rate, struct instant now)
{
    uint64_t ease_ns = at_least(EASE_NS, rate->feedback_ns);
    uint64_t climb_ns = at_least(CLIMB_NS, rate->feedback_ns);
    uint64_t eases = instant_elapsed_ns(rate->eased, now) / ease_ns;
    rate->eased = instant_after(rate->eased, eases * ease_ns);
    for (uint64_t i = 0; i < eases && i < EASE_MAX; i++) {
        rate->alpha -= rate->alpha / ALPHA_GAIN;
    }
    while (rate->current != 0 && instant_elapsed_ns(rate->climbed, now) >= climb_ns) {
        rate->climbed = instant_after(rate->climbed, climb_ns);
        climb(rate);
    }
}

bool rate_may_send(struct rate *rate, struct instant now)
{
    if (rate->current != 0) {
        age(rate, now);
    }
    if (rate->current == 0) {
        rate->throttle.waiting = false;
        return true;
    }
    return throttle_may_pass(&rate->throttle, now);
}

static void measure(struct rate *rate, struct instant now)
{
    uint64_t span_ns = instant_elapsed_ns(rate->span_start, now);
    if (span_ns >= SPAN_NS) {
        rate->measured = rate->span_bytes * MILLISECOND_NS / span_ns;
        rate->span_bytes = 0;
        rate->span_start = now;
    }
}

void rate_sent(struct rate *rate, struct instant now, uint32_t bytes)
{
    measure(rate, now);
    rate->span_bytes += bytes;
    if (rate->current != 0) {
        throttle_passed(&rate->throttle, now, bytes, rate->current);
    }
}

/* Of the span that is not over: what was measured before it may have been silence. */
static uint64_t under_way(const struct rate *rate, struct instant now)
{
    uint64_t span_ns = at_least(SPAN_NS, instant_elapsed_ns(rate->span_start, now));
    return rate->span_bytes * MILLISECOND_NS / span_ns;
}

void rate_congested(struct rate *rate, struct instant now, uint64_t round_trip_ns)
{
    if (rate->current != 0) {
        age(rate, now);
    }
    if (rate->current == 0) {
        rate->current = at_least(rate->measured, under_way(rate, now));
        rate->alpha = ALPHA_ONE;
    } else if (instant_elapsed_ns(rate->reduced, now) <
               at_least(RATE_REDUCE_NS, rate->feedback_ns)) {
        return;
    }
    rate->feedback_ns = round_trip_ns < FEEDBACK_MAX_NS ? round_trip_ns : FEEDBACK_MAX_NS;
    rate->target = at_least(RATE_FLOOR, rate->current);
    rate->current = rate->target - rate->target * rate->alpha / (2 * ALPHA_ONE);
    rate->current = at_least(RATE_FLOOR, rate->current);
    rate->alpha += (ALPHA_ONE - rate->alpha) / ALPHA_GAIN;
    rate->rounds = 0;
    rate->reduced = rate->eased = rate->climbed = now;
}
