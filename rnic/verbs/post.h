/* What posting ends with, by list (post.c) and by batch (wr.c). */
#ifndef WEIR_VERBS_POST_H
#define WEIR_VERBS_POST_H

#include "rnic/verbs/objects.h"

/* Work lies in the send queue: tells the engine. */
static inline void post_ring(struct soft_qp *qp)
{
    engine_kick(qp->engine, qp->qp);
}

/* How many sends can be posted now; in strict mode no more than an adapter would take. */
uint32_t post_room(struct soft_qp *qp);

/* Posts one request without telling the device. Under the send lock; 0 or an errno value. */
int post_request(struct soft_qp *qp, const struct send_request *request);

#endif
