/* Which of many queue pairs is likely to be at work soon.
 *
 * A program goes from one of its connections to the next, and often in the same order again and
 * again. What a queue pair takes lies on a dozen lines, and where there are thousands none of them
 * is near; so each remembers which was posted to SUCCESSION_AHEAD posts after it the last time, and
 * which had a packet as many after it, and that one's lines are asked for while it is at work. What
 * is remembered is an address to fetch from, never one to look at: the queue pair may be gone. */
#ifndef WEIR_TRANSPORT_SUCCESSION_H
#define WEIR_TRANSPORT_SUCCESSION_H

#include "rnic/transport/qp_private.h"

/* It was at work last, so all of it is near. */
static inline bool succession_stays(const struct qp *qp, enum succession kind)
{
    return qp->environment->latest[kind][0] == qp;
}

/* It is at work: what came some after it the last time comes soon. */
static inline void succession_goes_on(struct qp *qp, enum succession kind)
{
    struct qp **latest = qp->environment->latest[kind];
    if (succession_stays(qp, kind)) {
        return;
    }
    if (latest[SUCCESSION_AHEAD - 1] != NULL) {
        latest[SUCCESSION_AHEAD - 1]->after[kind] = (uintptr_t)qp;
    }
    for (uint32_t i = SUCCESSION_AHEAD - 1; i > 0; i--) {
        latest[i] = latest[i - 1];
    }
    latest[0] = qp;
    if (qp->after[kind] != 0) {
        prefetch((const void *)(qp->after[kind] - QP_BESIDE),
                 QP_BESIDE + QP_USUAL_BYTES + SEND_QUEUE_PREFETCH);
    }
}

/* The queue pair goes. */
static inline void succession_forget(struct qp *qp)
{
    for (uint32_t kind = 0; kind < SUCCESSION_COUNT; kind++) {
        for (uint32_t i = 0; i < SUCCESSION_AHEAD; i++) {
            struct qp **latest = &qp->environment->latest[kind][i];
            *latest = *latest == qp ? NULL : *latest;
        }
    }
}

#endif
