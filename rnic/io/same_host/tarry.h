/* Requests that wait a moment for others, where one call to the system does many for little more
 * than one (transport/direct.h): who posts a stream of them one by one is about to post the next,
 * to the same queue pair or another.
 *
 * It must show that it does: so many posts, each right behind the one before. Then up to
 * TARRY_MOST wait, until that many are there, or anything else happens: a poll of any completion
 * queue, a control call, another post or one for another process, a turn of the background thread,
 * which sleeps no longer than TARRY_NS while any may wait, or dozes, for a millisecond at most, if
 * they polled just now. Who is found to have waited (a program that looks at memory, and does not
 * poll) must show more the next time. Pure arithmetic: no clock, no thread. */
#ifndef WEIR_IO_TARRY_H
#define WEIR_IO_TARRY_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"

#define TARRY_NS   200000u
#define TARRY_MOST 32u

struct qp;

struct tarry {
    struct qp *qps[TARRY_MOST]; /* whose requests wait, in that order, some more than once */
    uint32_t count;             /* of them */
    uint32_t before;            /* requests that wait, without those of the last */
    uint32_t latest;            /* those of the last */
    struct instant posted;      /* when the latest post, or the poll behind it, was over */
    bool polled;                /* since then */
    uint32_t shown;             /* posts right behind the one before */
    uint32_t distrust;          /* so many more must be shown */
    uint32_t looks;             /* that the thread still takes soon */
};

static inline bool tarry_has_any(const struct tarry *tarry)
{
    return tarry->count > 0;
}

/* One request has been posted to a queue pair, and with it `waiting` of its kind stand there. True:
 * they wait. */
bool tarry_post(struct tarry *tarry, struct instant now, struct qp *qp, uint32_t waiting);
/* They do not, and have been done; `directly`: all, at once. */
void tarry_done(struct tarry *tarry, struct instant now, bool directly);
/* Whatever happens otherwise. How many of `qps` have requests that are to be done now. */
uint32_t tarry_end(struct tarry *tarry, struct instant now, bool polls);
/* The thread has looked, and wants to sleep: until then at most. */
struct instant tarry_look(struct tarry *tarry, struct instant now);

#endif
