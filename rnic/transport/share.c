/* CUBIC's constants: C = 0.4 segments/s^3; a Reno that keeps 0.7 grows by 0.53 segments a round
 * trip. Our packets are smaller than TCP's on the same way, so more of them are lost of the same
 * bytes: the window keeps more than TCP's 0.7. */
#include "rnic/transport/share.h"

#define SEGMENT        1448u
#define KEPT           75u /* percent of the window */
#define KEPT_JUMBO     80u
#define SEGMENT_JUMBO  8948u
#define CLIMB_MAX_MS   100000u
#define WINDOW_LEAST   2u                   /* packets */
#define BASE_NS        UINT64_C(5000000000) /* a shortest round trip is believed twice as long */
#define ROUND_LEAST_NS UINT64_C(10000)
#define LOSSY_NS       UINT64_C(1000000000)
#define SHORT_WAY_NS   UINT64_C(100000) /* with what processors and their batches add */
#define LONG_WAY_NS    UINT64_C(1000000)
#define TELLING        (64u << 10) /* bytes */
#define LOSSES_MOST    10u         /* of so many packets one is lost */

/* A crowded way: a short one with a shallow queue, in which so much waits and is lost that a TCP
 * there has a window of some segments, of which each second loss is a timeout. Whoever fills the
 * queue up again at once has it for himself then. It is told by what is alike for all who share the
 * way, the loss and the round trip: told by one's own window, it parts those below a bound from
 * those above. On longer round trips TCP holds its own. A wide window sees losses that are none of
 * a crowd's. */
#define CROWDED_FROM   5u  /* bytes of 10,000 are lost: a TCP has 55 segments, */
#define CROWDED        10u /* and 38 */
#define CROWDED_GROWTH 10u /* percent of the usual */
#define CROWDED_KEPT   50u
#define WAITS_FROM_NS  UINT64_C(200000)
#define WAITS_NS       UINT64_C(400000)
#define HOLDS_FROM_NS  UINT64_C(1000000)
#define HOLDS_NS       UINT64_C(1600000)
#define WIDE_FROM      (256u << 10) /* bytes */
#define WIDE           (512u << 10)
#define COUNTED        1024u /* segments, over which losses are averaged */
#define ONE            1000u

void share_init(struct share *share, struct instant now, uint32_t mtu, uint32_t window,
                uint32_t queue_max, uint32_t limit)
{
    *share = (struct share){
        .window = window,
        .limit = limit,
        .least = WINDOW_LEAST * mtu,
        .segment = mtu <= 1024 ? SEGMENT : SEGMENT_JUMBO,
        .kept = mtu <= 1024 ? KEPT : KEPT_JUMBO,
        .queue_max = queue_max,
        .threshold = limit,
        .peak = window,
        .friendly = window,
        .shrunk = now,
        .climbs_from = now,
        .used = now,
        .round_start = now,
        .base_start = now,
    };
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t shorter(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns == 0 || (b_ns != 0 && b_ns < a_ns) ? b_ns : a_ns;
}

void share_measured(struct share *share, struct instant now, uint64_t round_trip_ns)
{
    if (instant_elapsed_ns(share->base_start, now) >= BASE_NS) {
        share->base_start = now;
        share->base_ns = share->next_base_ns;
        share->next_base_ns = 0;
    }
    share->next_base_ns = shorter(share->next_base_ns, round_trip_ns);
    share->base_ns = shorter(share->base_ns, round_trip_ns);
    uint64_t span_ns = 2 * share->base_ns > ROUND_LEAST_NS ? 2 * share->base_ns : ROUND_LEAST_NS;
    if (instant_elapsed_ns(share->round_start, now) >= span_ns) {
        share->round_start = now;
        share->previous_round_ns = share->round_ns;
        share->previous_delivered = share->round_delivered;
        share->previous_lost = share->round_lost;
        share->round_ns = 0;
        share->round_delivered = share->round_lost = 0;
    }
    share->round_ns = shorter(share->round_ns, round_trip_ns);
}

/* The longer of the two latest rounds. */
static uint64_t longer_round_ns(const struct share *share)
{
    return larger(share->round_ns, share->previous_round_ns);
}

/* As queue_ns, but of the longer round. */
static uint64_t waiting_ns(const struct share *share)
{
    uint64_t round_ns = longer_round_ns(share);
    return round_ns > share->base_ns ? round_ns - share->base_ns : 0;
}

static uint32_t ramp(uint64_t value, uint64_t from, uint64_t to)
{
    return value <= from ? 0 : value >= to ? ONE : (uint32_t)((value - from) * ONE / (to - from));
}

/* How crowded the way is, of ONE. */
static uint32_t crowd(const struct share *share)
{
    uint64_t round_ns = longer_round_ns(share);
    uint32_t lossy = ramp((uint64_t)share->loss * 10000 >> 24, CROWDED_FROM, CROWDED);
    uint32_t queued = ramp(waiting_ns(share), WAITS_FROM_NS, WAITS_NS);
    uint32_t shallow = ONE - ramp(round_ns, HOLDS_FROM_NS, HOLDS_NS);
    uint32_t narrow = ONE - ramp(share->window, WIDE_FROM, WIDE);
    return lossy * queued / ONE * shallow / ONE * narrow / ONE;
}

/* For ways of a TCP's usual segments alone. */
static void count(struct share *share, uint32_t bytes, bool are_lost)
{
    if (share->segment != SEGMENT || (share->loss == 0 && !are_lost)) {
        return;
    }
    uint32_t counted = COUNTED * share->segment;
    uint64_t part = bytes < counted ? bytes : counted;
    uint32_t target = are_lost ? UINT32_C(1) << 24 : 0;
    share->loss = (uint32_t)((share->loss * (counted - part) + target * part) / counted);
}

/* What the round trip holds beyond the shortest one. */
static uint64_t queue_ns(const struct share *share)
{
    uint64_t round_ns = shorter(share->round_ns, share->previous_round_ns);
    return round_ns > share->base_ns ? round_ns - share->base_ns : 0;
}

static bool queues_are_full(const struct share *share)
{
    uint64_t round_ns = longer_round_ns(share);
    return share->window >= share->limit ||
           (share->window >= share->queue_max &&
            waiting_ns(share) * share->window / (round_ns + 1) >= share->queue_max);
}

/* C * (t - K)^3 + peak. */
static uint64_t cubic(const struct share *share, struct instant now)
{
    uint64_t passed_ms = instant_elapsed_ns(share->climbs_from, now) / MILLISECOND_NS;
    bool above = passed_ms >= share->climb_ms;
    uint64_t d_ms = above ? passed_ms - share->climb_ms : share->climb_ms - passed_ms;
    d_ms = d_ms < CLIMB_MAX_MS ? d_ms : CLIMB_MAX_MS;
    uint64_t cube = d_ms * d_ms * d_ms / 1000 / 1000 * share->segment * 2 / 5 / 1000;
    if (above) {
        return share->peak + cube;
    }
    return share->peak > cube ? share->peak - cube : 0;
}

static uint32_t cube_root(uint64_t value)
{
    uint64_t root = 0;
    for (uint64_t bit = UINT64_C(1) << 20; bit > 0; bit >>= 1) {
        uint64_t larger = root | bit;
        if (larger * larger * larger <= value) {
            root = larger;
        }
    }
    return (uint32_t)root;
}

/* CUBIC's clock stands still while the window is not used. */
static void use(struct share *share, struct instant now)
{
    struct instant *from = &share->climbs_from;
    struct instant since = instant_before(share->used, *from) ? *from : share->used;
    uint64_t unused_ns = instant_elapsed_ns(since, now);
    share->used = now;
    if (unused_ns > 2 * longer_round_ns(share) + MILLISECOND_NS) {
        *from = instant_after(*from, unused_ns);
    }
}

void share_delivered(struct share *share, struct instant now, uint32_t bytes, bool busy)
{
    share->round_delivered += bytes;
    share->silent &= bytes == 0;
    count(share, bytes, false);
    if (busy) {
        use(share, now);
    }
    bool settling = instant_elapsed_ns(share->shrunk, now) < share->base_ns + queue_ns(share);
    if (!busy || settling || queues_are_full(share)) {
        return;
    }
    uint64_t window = share->window;
    if (window < share->threshold) {
        window += bytes;
    } else {
        uint32_t slower = (100 - CROWDED_GROWTH) * crowd(share) / ONE; /* percent */
        uint64_t growth = (uint64_t)share->segment * 53 * (100 - slower) / 10000;
        share->friendly += (uint32_t)(growth * bytes / window) + 1;
        uint64_t target = cubic(share, now);
        target = target > share->friendly ? target : share->friendly;
        target = target < window * 3 / 2 ? target : window * 3 / 2;
        window += target > window ? (target - window) * bytes / window + 1 : 0;
    }
    share->window = window < share->limit ? (uint32_t)window : share->limit;
}

/* The round trip shows no queue. A short way's shortest round trip may itself be of a queue that
 * never empties, as under many writers; so one above SHORT_WAY_NS is none. Where that queue is
 * deep, so that the way seems to be a long one, each of the many has a small window. */
static bool sees_no_queue(const struct share *share)
{
    if (share->base_ns < LONG_WAY_NS) {
        return share->base_ns + queue_ns(share) < SHORT_WAY_NS;
    }
    return share->window >= TELLING && queue_ns(share) < share->base_ns / 16 + SHORT_WAY_NS / 2;
}

/* Shrinking does not help: losses go on before the window has grown back, without a queue. */
static bool is_of_the_way(struct share *share, struct instant now)
{
    uint64_t lost = (uint64_t)share->round_lost + share->previous_lost;
    uint64_t delivered = (uint64_t)share->round_delivered + share->previous_delivered;
    if (!sees_no_queue(share) || lost * LOSSES_MOST > delivered + lost) {
        return false;
    }
    if (share->window < share->peak - share->peak / 8) {
        if (!instant_before(now, share->lossy_until)) {
            share->window = (uint32_t)larger(share->window, share->before);
            share->threshold = (uint32_t)larger(share->threshold, share->threshold_before);
        }
        share->lossy_until = instant_after(now, LOSSY_NS);
    }
    return instant_before(now, share->lossy_until);
}

static void shrink(struct share *share, struct instant now)
{
    share->before = share->window;
    share->threshold_before = share->threshold;
    bool is_regrown = share->window >= share->peak;
    share->peak = is_regrown ? share->window : (uint32_t)((uint64_t)share->window * 17 / 20);
    uint32_t given = (share->kept - CROWDED_KEPT) * crowd(share) / ONE;
    uint64_t window = (uint64_t)share->window * (share->kept - given) / 100;
    if (instant_before(now, share->lossy_until)) {
        window =
            larger(window, share->window * share->base_ns / (share->base_ns + queue_ns(share) + 1));
    }
    share->window = (uint32_t)larger(window, share->least);
    share->threshold = share->friendly = share->window;
    share->shrunk = share->climbs_from = now;
    uint64_t lack = share->peak > share->window ? share->peak - share->window : 0;
    share->climb_ms = cube_root(lack * UINT64_C(2500000000) / share->segment);
}

void share_lost(struct share *share, struct instant now, uint32_t bytes, struct instant left)
{
    share->round_lost += bytes;
    count(share, bytes, true);
    if (instant_before(left, share->answered)) {
        return;
    }
    share->answered = now;
    if (!is_of_the_way(share, now)) {
        shrink(share, now);
    }
}

void share_timed_out(struct share *share, struct instant now)
{
    if (!share->silent) {
        shrink(share, now);
    }
    share->silent = true;
    share->window = share->least;
    share->answered = now;
}
