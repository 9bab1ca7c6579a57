#include "rnic/io/same_host/tarry.h"

#include <stddef.h>

#define GAP_NS       500u /* between two posts of a stream; reading the clock is a tenth of that */
#define POLLED_NS    20000u /* a poll that took something of ours may be followed by so long a gap */
#define GAP_COSTS    4u     /* posts shown; a poll that took nothing of ours is a gap, too */
#define SHOWN_MIN    64u
#define DISTRUST_MAX (1u << 16)
#define LATE_NS      50000u           /* after which nothing came: it was no stream's */
#define GOOD_LEAST   (TARRY_MOST / 4) /* so many together, and then a poll, are a stream's */
#define LOOKS        5u               /* of the thread's, after the last that waited */

static uint32_t needed(const struct tarry *tarry)
{
    return SHOWN_MIN + tarry->distrust;
}

/* Whether the post belongs to a stream as far as is seen. */
static bool follows(struct tarry *tarry, struct instant now)
{
    uint64_t gap_ns = instant_elapsed_ns(tarry->posted, now);
    bool polled = tarry->polled && gap_ns < POLLED_NS;
    bool close = !tarry->polled && gap_ns < GAP_NS;
    tarry->polled = false;
    if (close) {
        tarry->shown += tarry->shown < needed(tarry) + SHOWN_MIN;
    } else if (!polled) {
        tarry->shown -= tarry->shown < GAP_COSTS ? tarry->shown : GAP_COSTS;
    }
    return close || polled;
}

static void trust(struct tarry *tarry)
{
    tarry->distrust -= (tarry->distrust + 63) / 64;
}

bool tarry_post(struct tarry *tarry, struct instant now, struct qp *qp, uint32_t waiting)
{
    bool again = tarry->count > 0 && tarry->qps[tarry->count - 1] == qp;
    uint32_t before = tarry->before + (again ? 0 : tarry->latest);
    bool waits = follows(tarry, now) && tarry->shown >= needed(tarry);
    if (waits && before + waiting >= TARRY_MOST) {
        trust(tarry);
        waits = false;
    }
    if (!waits) {
        return false;
    }
    if (!again) {
        tarry->qps[tarry->count++] = qp; /* of which each waits with one request at least */
    }
    tarry->before = before;
    tarry->latest = waiting;
    tarry->looks = LOOKS;
    tarry->posted = now;
    return true;
}

void tarry_done(struct tarry *tarry, struct instant now, bool directly)
{
    tarry->posted = now;
    if (!directly) {
        tarry->shown = 0;
    }
}

uint32_t tarry_end(struct tarry *tarry, struct instant now, bool polls)
{
    uint32_t count = tarry->count, requests = tarry->before + tarry->latest;
    tarry->count = tarry->before = tarry->latest = 0;
    bool late = count > 0 && instant_elapsed_ns(tarry->posted, now) >= LATE_NS;
    if (polls && !late && requests >= GOOD_LEAST) {
        trust(tarry);
    }
    if (polls && count > 0) {
        tarry->polled = true;
        tarry->posted = now;
    }
    if (late) {
        tarry->shown = 0;
        uint32_t more = needed(tarry) * 4;
        tarry->distrust = more < DISTRUST_MAX ? more : DISTRUST_MAX;
    }
    return count;
}

struct instant tarry_look(struct tarry *tarry, struct instant now)
{
    if (tarry->looks == 0) {
        return INSTANT_NEVER;
    }
    tarry->looks--;
    return instant_after(now, TARRY_NS);
}
