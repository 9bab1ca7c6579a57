/* Bits by PSN modulo REPORT_SPAN. Invariant: a packet is held or lost or neither, never both. */
#include "rnic/transport/scoreboard.h"

#include <string.h>

#include "rnic/base/check.h"

#define TICK_SHIFT   6u /* 64 ns; differences are right up to two minutes */
#define PATIENCE_NS  UINT64_C(4000)
#define PATIENCE_MAX UINT64_C(2000000)
#define LENIENCY_MAX 256u
#define CALM_LOSSES  64u
#define PROBES_MAX   4u

static uint32_t ticks(struct instant now)
{
    return (uint32_t)(now.ns >> TICK_SHIFT);
}

static uint64_t elapsed_ns(uint32_t since, struct instant now)
{
    int32_t passed = (int32_t)(ticks(now) - since);
    return passed > 0 ? (uint64_t)passed << TICK_SHIFT : 0;
}

static bool get(const uint64_t *bits, uint32_t index)
{
    return (bits[index / 64] >> index % 64 & 1) != 0;
}

static void set(uint64_t *bits, uint32_t index, bool value)
{
    uint64_t bit = UINT64_C(1) << index % 64;
    bits[index / 64] = value ? bits[index / 64] | bit : bits[index / 64] & ~bit;
}

static void set_held(struct scoreboard *board, uint32_t index, bool value)
{
    board->held_count += value - (uint32_t)get(board->held, index);
    set(board->held, index, value);
}

static void set_lost(struct scoreboard *board, uint32_t index, bool value)
{
    board->lost_count += value - (uint32_t)get(board->lost, index);
    set(board->lost, index, value);
}

void scoreboard_reset(struct scoreboard *board, struct psn first, uint64_t round_trip_ns)
{
    memset(board, 0, sizeof *board);
    board->shortest_ns = round_trip_ns;
    board->first = board->end = first;
    board->leniency = 1;
}

void scoreboard_sent(struct scoreboard *board, struct instant now, struct psn psn, uint32_t count,
                     bool demand)
{
    bool fresh = psn_equal(psn, board->end);
    if (psn_equal(board->first, board->end)) {
        board->has_arrived = false; /* all that did left before, and ticks come again */
        board->has_probed = false;
    }
    if (board->probing && !fresh) {
        board->has_probed = true;
        board->probed = psn;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = psn_add(psn, i).value % REPORT_SPAN;
        board->left[index] = ticks(now);
        set(board->repeated, index, !fresh && (i == 0 || get(board->lost, index)));
        if (fresh) { /* neither held nor lost, as all that is not known */
            set(board->demand, index, demand);
            set(board->drawn, index, demand && i > 0);
        } else {
            set_lost(board, index, false);
        }
    }
    board->probing &= fresh;
    if (fresh) {
        board->end = psn_add(psn, count);
        CHECK((uint32_t)psn_distance(board->first, board->end) <= REPORT_SPAN);
    }
}

/* It has come. What left again is as young as its repetition only if that can have come. */
static void arrived(struct scoreboard *board, struct instant now, struct psn psn)
{
    uint32_t index = psn.value % REPORT_SPAN;
    uint64_t took_ns = elapsed_ns(board->left[index], now);
    bool repeated = get(board->repeated, index);
    if (repeated && took_ns < board->shortest_ns) {
        return;
    }
    board->has_probed = false;
    if (!repeated && (board->shortest_ns == 0 || took_ns < board->shortest_ns)) {
        board->shortest_ns = took_ns;
    }
    int32_t younger = (int32_t)(board->left[index] - board->newest);
    if (!board->has_arrived || younger > 0 ||
        (younger == 0 && psn_before(board->newest_psn, psn))) {
        board->has_arrived = true;
        board->newest = board->left[index];
        board->newest_psn = psn;
        board->took_ns = took_ns;
        board->took_is_fresh = !repeated;
    }
}

/* Those of 64 packets from `base` on whose bits are set. Of what left once, the last says all. */
static void all_arrived(struct scoreboard *board, struct instant now, struct psn base,
                        uint64_t bits)
{
    uint64_t repeated = bits & board->repeated[base.value % REPORT_SPAN / 64];
    uint64_t once = bits & ~repeated;
    if (once != 0) {
        arrived(board, now, psn_add(base, 63 - (uint32_t)__builtin_clzll(once)));
    }
    for (; repeated != 0; repeated &= repeated - 1) {
        arrived(board, now, psn_add(base, (uint32_t)__builtin_ctzll(repeated)));
    }
}

/* They are neither held nor lost. */
static void forget(struct scoreboard *board, uint32_t word, uint64_t bits)
{
    board->held_count -= (uint32_t)__builtin_popcountll(board->held[word] & bits);
    board->lost_count -= (uint32_t)__builtin_popcountll(board->lost[word] & bits);
    board->held[word] &= ~bits;
    board->lost[word] &= ~bits;
}

void scoreboard_entered(struct scoreboard *board)
{
    memset(board->repeated, 0xff, sizeof board->repeated);
}

uint64_t scoreboard_patience_ns(const struct scoreboard *board, uint64_t base_ns)
{
    uint64_t patience_ns = (base_ns / 4 + PATIENCE_NS) * board->leniency;
    return patience_ns < PATIENCE_MAX + base_ns ? patience_ns : PATIENCE_MAX + base_ns;
}

/* What came in vain had left before, or may have: it is told of once. */
static void be_lenient(struct scoreboard *board, struct instant now)
{
    uint64_t due_ns = board->took_ns + scoreboard_patience_ns(board, board->shortest_ns);
    board->calm = 0;
    if (instant_elapsed_ns(board->grown, now) >= due_ns) {
        board->leniency = board->leniency < LENIENCY_MAX ? board->leniency * 2 : LENIENCY_MAX;
        board->grown = now;
    }
}

/* What was lost had been waited for long enough. */
static void calm_down(struct scoreboard *board)
{
    if (++board->calm >= CALM_LOSSES) {
        board->calm = 0;
        board->leniency -= board->leniency > 1 ? board->leniency / 2 : 0;
    }
}

void scoreboard_responded(struct scoreboard *board, struct instant now, struct psn psn)
{
    uint32_t index = psn.value % REPORT_SPAN;
    if (!get(board->demand, index) || !get(board->repeated, index) || get(board->lost, index)) {
        return;
    }
    if (elapsed_ns(board->left[index], now) >= board->shortest_ns) {
        calm_down(board);
    } else if (board->probes > 0) {
        board->probes--;
    } else {
        be_lenient(board, now);
    }
}

uint32_t scoreboard_answered(struct scoreboard *board, struct instant now, uint32_t count)
{
    uint32_t news = 0;
    while (count > 0) {
        uint32_t word = board->first.value % REPORT_SPAN / 64, offset = board->first.value % 64;
        uint32_t some = 64 - offset < count ? 64 - offset : count;
        uint64_t bits = ~UINT64_C(0) >> (64 - some) << offset;
        uint64_t came = bits & ~board->held[word];
        news += (uint32_t)__builtin_popcountll(came);
        all_arrived(board, now, psn_make(board->first.value - offset), came & ~board->drawn[word]);
        forget(board, word, bits);
        board->first = psn_add(board->first, some);
        count -= some;
    }
    board->probing = false;
    return news;
}

/* The peer has the demand, so they are to come. */
static void await_drawn(struct scoreboard *board, struct psn psn)
{
    for (; !psn_equal(psn, board->end) && scoreboard_is_drawn(board, psn); psn = psn_next(psn)) {
        set_lost(board, psn.value % REPORT_SPAN, false);
    }
}

void scoreboard_came_again(struct scoreboard *board)
{
    board->probes -= board->probes > 0;
}

static uint32_t hold(struct scoreboard *board, struct instant now, struct psn psn)
{
    uint32_t index = psn.value % REPORT_SPAN;
    if (get(board->held, index) || get(board->drawn, index)) {
        return 0;
    }
    arrived(board, now, psn);
    set_lost(board, index, false);
    set_held(board, index, true);
    await_drawn(board, psn_next(psn));
    return 1;
}

uint32_t scoreboard_came(struct scoreboard *board, struct instant now, struct psn psn)
{
    uint32_t index = psn.value % REPORT_SPAN;
    if (!get(board->drawn, index)) {
        return hold(board, now, psn);
    }
    uint32_t news = !get(board->held, index);
    set_lost(board, index, false);
    set_held(board, index, true);
    return news;
}

uint32_t scoreboard_acknowledged(struct scoreboard *board, struct instant now, struct psn psn)
{
    uint32_t news = 0;
    for (struct psn at = board->first; psn_before(at, psn); at = psn_next(at)) {
        uint32_t index = at.value % REPORT_SPAN;
        uint64_t known = board->held[index / 64] | board->demand[index / 64];
        if (~known >> index % 64 == 0) {
            at = psn_add(at, 63 - index % 64); /* the rest of the word */
        } else {
            news += scoreboard_is_demand(board, at) ? 0 : hold(board, now, at);
        }
    }
    return news;
}

static void heed_duplicates(struct scoreboard *board, struct instant now, uint16_t duplicates)
{
    int16_t more = (int16_t)(uint16_t)(duplicates - board->duplicates);
    if (more <= 0) {
        return;
    }
    board->duplicates = duplicates;
    int16_t forgiven = more < board->probes ? more : board->probes;
    board->probes = (uint8_t)(board->probes - forgiven);
    if (more > forgiven) {
        be_lenient(board, now);
    }
}

uint32_t scoreboard_report(struct scoreboard *board, struct instant now,
                           const struct report *report)
{
    uint32_t known = (uint32_t)psn_distance(board->first, board->end);
    int32_t ahead = psn_distance(board->first, report->expected);
    if (ahead < 0 || (uint32_t)ahead > known) {
        return 0;
    }
    uint32_t news = 0;
    heed_duplicates(board, now, report->duplicates);
    for (int32_t i = 0; i < ahead; i++) {
        news += hold(board, now, psn_add(board->first, (uint32_t)i));
    }
    if ((uint32_t)ahead < known) {
        set_held(board, report->expected.value % REPORT_SPAN, false);
    }
    for (uint32_t i = 1; i < report->bitmap_length * 8 && (uint32_t)ahead + i < known; i++) {
        if ((report->bitmap[i / 8] >> i % 8 & 1) != 0) {
            news += hold(board, now, psn_add(report->expected, i));
        }
    }
    return news;
}

/* Those of 64 packets that may be lost, as bits. */
static uint64_t in_doubt(const struct scoreboard *board, uint32_t word)
{
    return ~(board->held[word] | board->lost[word] | board->drawn[word]);
}

/* Whether something that left no earlier has arrived. */
static bool is_overtaken(const struct scoreboard *board, struct psn psn)
{
    int32_t older = (int32_t)(board->newest - board->left[psn.value % REPORT_SPAN]);
    return older > 0 || (older == 0 && psn_before(psn, board->newest_psn));
}

/* A packet that others have overtaken: lost, or to be looked at again. */
static void judge(struct scoreboard *board, struct instant now, uint32_t index, uint64_t due_ns,
                  struct scoreboard_losses *losses)
{
    uint64_t waited_ns = elapsed_ns(board->left[index], now);
    if (waited_ns < due_ns) {
        losses->look = instant_earlier(losses->look, instant_after(now, due_ns - waited_ns));
        return;
    }
    set_lost(board, index, true);
    losses->waited_ns =
        losses->count == 0 || waited_ns < losses->waited_ns ? waited_ns : losses->waited_ns;
    losses->count++;
}

struct scoreboard_losses scoreboard_find_lost(struct scoreboard *board, struct instant now,
                                              uint64_t base_ns)
{
    struct scoreboard_losses losses = {.look = INSTANT_NEVER};
    uint32_t known = (uint32_t)psn_distance(board->first, board->end);
    uint64_t due_ns = board->took_ns + scoreboard_patience_ns(board, base_ns);
    for (uint32_t i = 0; board->has_arrived && i < known; i++) {
        struct psn psn = psn_add(board->first, i);
        uint32_t index = psn.value % REPORT_SPAN;
        uint64_t doubt = in_doubt(board, index / 64) >> index % 64;
        if (doubt == 0) {
            i += 63 - index % 64; /* the rest of the word */
        } else if ((doubt & 1) != 0 && is_overtaken(board, psn)) {
            judge(board, now, index, due_ns, &losses);
        } else if ((doubt & 1) != 0 && psn_before(board->newest_psn, psn) &&
                   !get(board->repeated, index)) {
            break; /* first sent later than what has arrived, as all behind it */
        }
    }
    if (losses.count > 0) {
        calm_down(board);
    }
    return losses;
}

void scoreboard_mark_lost(struct scoreboard *board, struct psn psn)
{
    uint32_t index = psn.value % REPORT_SPAN;
    set_held(board, index, false);
    set_lost(board, index, true);
}

bool scoreboard_lose_first(struct scoreboard *board, struct instant now, uint64_t base_ns)
{
    uint32_t index = board->first.value % REPORT_SPAN;
    uint64_t due_ns = board->took_ns + scoreboard_patience_ns(board, base_ns);
    bool may_come = get(board->repeated, index) && elapsed_ns(board->left[index], now) < due_ns;
    if (may_come || get(board->lost, index)) {
        return false;
    }
    scoreboard_mark_lost(board, board->first);
    return true;
}

bool scoreboard_only_probe_came(const struct scoreboard *board)
{
    return board->has_probed && (psn_before(board->probed, board->first) ||
                                 get(board->held, board->probed.value % REPORT_SPAN));
}

struct scoreboard_losses scoreboard_lose_old(struct scoreboard *board, struct instant now,
                                             uint64_t age_ns)
{
    struct scoreboard_losses losses = {.look = INSTANT_NEVER};
    uint32_t known = (uint32_t)psn_distance(board->first, board->end);
    for (uint32_t i = 0; i < known; i++) {
        uint32_t index = psn_add(board->first, i).value % REPORT_SPAN;
        if ((in_doubt(board, index / 64) >> index % 64 & 1) != 0) {
            judge(board, now, index, age_ns, &losses);
        }
    }
    return losses;
}

void scoreboard_probe(struct scoreboard *board, struct psn psn)
{
    if (board->lost_count == 0) {
        scoreboard_mark_lost(board, psn);
    }
    board->probing = true;
    board->probes += board->probes < PROBES_MAX;
}

uint64_t scoreboard_out_ns(const struct scoreboard *board, struct instant now, struct psn psn)
{
    return elapsed_ns(board->left[psn.value % REPORT_SPAN], now);
}

bool scoreboard_last_in_doubt(const struct scoreboard *board, struct psn *ret_psn)
{
    uint32_t known = (uint32_t)psn_distance(board->first, board->end);
    for (uint32_t i = known; i > 0; i--) {
        struct psn psn = psn_add(board->first, i - 1);
        uint32_t index = psn.value % REPORT_SPAN;
        /* The first stands for its demand, which the peer may hold, and its response be lost. */
        bool drawn = get(board->drawn, index) && i > 1;
        bool held = get(board->held, index) && (i > 1 || !get(board->demand, index));
        if (!drawn && !held && !get(board->lost, index)) {
            *ret_psn = psn;
            return true;
        }
    }
    return false;
}

void scoreboard_lost_before(struct scoreboard *board, struct psn end)
{
    end = psn_before(board->end, end) ? board->end : end;
    for (struct psn psn = board->first; psn_before(psn, end); psn = psn_next(psn)) {
        uint32_t index = psn.value % REPORT_SPAN;
        bool is_first = psn_equal(psn, board->first);
        if (is_first || !get(board->held, index) || get(board->demand, index)) {
            scoreboard_mark_lost(board, psn);
        }
    }
}

uint32_t scoreboard_count_lost(const struct scoreboard *board, struct psn psn, uint32_t count)
{
    uint32_t lost = 0;
    for (uint32_t i = 0; i < count; i++) {
        lost += get(board->lost, psn_add(psn, i).value % REPORT_SPAN);
    }
    return lost;
}

bool scoreboard_first_lost(const struct scoreboard *board, struct psn *ret_psn)
{
    if (board->lost_count == 0) {
        return false;
    }
    struct psn psn = board->first;
    while (!get(board->lost, psn.value % REPORT_SPAN)) {
        uint32_t index = psn.value % REPORT_SPAN;
        uint64_t rest = board->lost[index / 64] >> index % 64;
        psn = psn_add(psn, rest != 0 ? (uint32_t)__builtin_ctzll(rest) : 64 - index % 64);
    }
    *ret_psn = psn;
    return true;
}
