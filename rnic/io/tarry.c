#include "rnic/io/tarry.h"

#include <stddef.h>

#define GAP_NS       500u /* between two posts of a stream; reading the clock is a tenth of that */
#define GAP_COSTS    4u   /* posts shown; a poll that took nothing of ours is a gap, too */
#define SHOWN_MIN    64u
#define DISTRUST_MAX (1u << 16)
#define LATE_NS      50000u /* who waited so long was no stream's */
#define LOOKS        5u     /* of the thread's, after the last that waited */

static uint32_t needed(const struct tarry *tarry)
{
    return SHOWN_MIN + tarry->distrust;
}

/* Whether the post belongs to a stream as far as is seen. */
static bool follows(struct tarry *tarry, struct instant now, const struct qp *qp)
{
    bool same = tarry->poster == qp;
    bool close = instant_elapsed_ns(tarry->posted, now) < GAP_NS;
    bool polled = tarry->polled;
    tarry->poster = qp;
    tarry->polled = false;
    if (!same) {
        tarry->shown = 0;
    } else if (close) {
        tarry->shown += tarry->shown < needed(tarry) + SHOWN_MIN;
    } else if (!polled) {
        tarry->shown -= tarry->shown < GAP_COSTS ? tarry->shown : GAP_COSTS;
    }
    return same && (close || polled);
}

bool tarry_post(struct tarry *tarry, struct instant now, struct qp *qp, uint32_t waiting)
{
    bool waits = follows(tarry, now, qp) && tarry->shown >= needed(tarry);
    if (waits && waiting >= TARRY_MOST) {
        tarry->distrust -= (tarry->distrust + 63) / 64;
        waits = false;
    }
    if (!waits) {
        return false;
    }
    if (tarry->qp == NULL) {
        tarry->qp = qp;
        tarry->since = now;
    }
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

struct qp *tarry_end(struct tarry *tarry, struct instant now, bool polls)
{
    struct qp *qp = tarry->qp;
    tarry->qp = NULL;
    tarry->polled |= polls && qp != NULL;
    if (qp != NULL && instant_elapsed_ns(tarry->since, now) >= LATE_NS) {
        tarry->shown = 0;
        uint32_t more = needed(tarry) * 4;
        tarry->distrust = more < DISTRUST_MAX ? more : DISTRUST_MAX;
    }
    return qp;
}

struct instant tarry_look(struct tarry *tarry, struct instant now)
{
    if (tarry->looks == 0) {
        return INSTANT_NEVER;
    }
    tarry->looks--;
    return instant_after(now, TARRY_NS);
}
