#include "rnic/transport/notice.h"

#include "rnic/transport/qp_private.h"

#define ECN_BITS 3u

void notice_marked(struct qp *qp, struct instant now)
{
    if (instant_is_never(qp->notice_sent) ||
        instant_elapsed_ns(qp->notice_sent, now) >= NOTICE_NS) {
        qp->owes_notice = true;
        qp_schedule(qp);
    }
}

bool notice_may_come(const struct path *path)
{
    return (path->traffic_class & ECN_BITS) != 0;
}

enum step notice_transmit(struct qp *qp, struct instant now)
{
    struct packet packet = {
        .opcode = OPCODE_CNP,
        .becn = true,
        .pkey = PKEY_DEFAULT,
        .destination = qp->attributes.destination,
    };
    struct path path = qp->attributes.path;
    path.traffic_class &= (uint8_t)~ECN_BITS;
    if (!qp_emit(qp, &path, &packet, NULL)) {
        return STEP_FULL;
    }
    environment_count(qp->environment, COUNTER_CNP_SENT);
    qp->owes_notice = false;
    qp->notice_sent = now;
    return STEP_SENT;
}

bool notice_is_recent(const struct qp *qp, struct instant now)
{
    return !instant_is_never(qp->notice_sent) &&
           instant_elapsed_ns(qp->notice_sent, now) < NOTICE_LASTS_NS;
}

void notice_receive(struct qp *qp, struct instant now)
{
    environment_count(qp->environment, COUNTER_CNP_HANDLED);
    rate_congested(qp->rate, now, qp->retransmit.smoothed_ns);
}
