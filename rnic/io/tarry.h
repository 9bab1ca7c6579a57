/* Requests that wait a moment for others, where one call to the system does many for little more
 * than one (transport/direct.h): who posts a stream of them one by one is about to post the next.
 *
 * It must show that it does: so many posts, each right behind the one before. Then up to
 * TARRY_MOST wait, until that many are there, or anything else happens: a poll of any completion
 * queue, a control call, another post, a turn of the background thread, which sleeps no longer than
 * TARRY_NS while any may wait, or dozes, for a millisecond at most, if they polled just now. Who is
 * found to have waited (a program that looks at memory, and does not poll) must show more the next
 * time. Pure arithmetic: no clock, no thread. */
#ifndef WEIR_IO_TARRY_H
#define WEIR_IO_TARRY_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"

#define TARRY_NS   200000u
#define TARRY_MOST 32u

struct qp;

struct tarry {
    struct qp *qp;           /* whose requests wait; NULL: nobody's */
    struct instant since;    /* the first of them */
    const struct qp *poster; /* who may be posting a stream; it may be gone */
    struct instant posted;   /* when its latest post, or the poll behind it, was over */
    bool polled;             /* since then */
    uint32_t shown;          /* posts right behind the one before */
    uint32_t distrust;       /* so many more must be shown */
    uint32_t looks;          /* that the thread still takes soon */
};

/* One request has been posted to a queue pair; with it `waiting` of its kind stand there, and
 * nobody else's wait. True: they do. */
bool tarry_post(struct tarry *tarry, struct instant now, struct qp *qp, uint32_t waiting);
/* They do not, and have been done; `directly`: all, at once. */
void tarry_done(struct tarry *tarry, struct instant now, bool directly);
/* Whatever happens otherwise. Whose requests are to be done now; NULL: nobody's. */
struct qp *tarry_end(struct tarry *tarry, struct instant now, bool polls);
/* The thread has looked, and wants to sleep: until then at most. */
struct instant tarry_look(struct tarry *tarry, struct instant now);

#endif
