#include "rnic/transport/deputy.h"

#include "rnic/transport/qp_private.h"
#include "rnic/transport/responder.h"

#define LOOK_NS                                                                                    \
    UINT64_C(1000000000) /* how often a deputy with work asks whether the target lives */

static struct relay_message message_of(const struct qp *qp, enum relay_kind kind)
{
    return (struct relay_message){
        .kind = (uint8_t)kind,
        .target = qp->number,
        .life = qp->rare.deputy.life,
        .repeats = qp->rare.deputy.repeats,
        .domain = qp->rare.xrc_domain,
    };
}

static void send(struct qp *qp, const struct relay_message *message)
{
    struct relay_link *link = qp->environment->relay_link;
    (void)link->send(link, qp->rare.deputy.principal, message, NULL,
                     0); /* the timer sees who is gone */
}

void deputy_acknowledge(struct qp *qp, const struct packet *packet)
{
    struct relay_message message = message_of(qp, RELAY_ANSWER);
    message.psn = packet->psn;
    message.aeth_kind = (uint8_t)packet->aeth.kind;
    message.aeth_value = packet->aeth.value;
    send(qp, &message);
}

bool deputy_is_of(const struct qp *qp, uint32_t process, uint64_t life)
{
    return qp->rare.deputy.principal == process && qp->rare.deputy.life == life;
}

static uint8_t reads_in(const struct qp *qp, const struct relay_message *message)
{
    uint32_t limit = qp->environment->max_reads_in;
    return message->max_reads_in < limit ? message->max_reads_in : (uint8_t)limit;
}

static void take_attributes(struct qp *qp, const struct relay_message *message)
{
    struct qp_attributes *attributes = &qp->attributes;
    attributes->path = message->path;
    attributes->path_mtu = (enum path_mtu)message->path_mtu;
    attributes->destination = message->destination;
    attributes->access = message->access;
    attributes->max_reads_in = reads_in(qp, message);
    replay_set_limit(&qp->responder.reads->replay, attributes->max_reads_in);
    qp_set_mtu(qp);
}

static void begin(struct qp *qp, uint32_t from, const struct relay_message *message)
{
    qp->rare.deputy.principal = from;
    qp->rare.deputy.life = message->life;
    qp->attributes.max_reads_in = reads_in(qp, message);
    atomic_store(&qp->state, QP_RTR);
    responder_reset(qp, message->expected);
    qp->responder.msn = message->msn;
    qp->rare.executed = message->executed;
}

/* What lies before was executed by others. PSNs do not tell: while we had nothing to do they may
 * have gone any way round. */
static void skip(struct qp *qp, const struct relay_message *message)
{
    struct responder *responder = &qp->responder;
    struct replay *replay = &responder->reads->replay;
    uint64_t psns = message->executed - qp->rare.executed;
    if ((int64_t)psns <= 0) {
        return;
    }
    if (psns > PSN_MASK / 2) {
        replay_reset(replay, replay->limit);
    }
    qp->rare.executed = message->executed;
    responder->expected = message->expected;
    replay_pass(replay, responder->expected);
    responder->msn = message->msn;
    acknowledge_reset(&responder->acknowledge);
}

/* Our answer was lost, or is not due yet. */
static void answer_again(struct qp *qp)
{
    acknowledge_duplicate(&qp->responder.acknowledge);
    if (replay_pending(&qp->responder.reads->replay) != NULL) {
        struct relay_message message = message_of(qp, RELAY_WAIT);
        send(qp, &message);
    }
}

static void execute(struct qp *qp, const struct packet *packet)
{
    struct acknowledge *acknowledge = &qp->responder.acknowledge;
    responder_receive(qp, packet);
    if (psn_distance(packet->psn, qp->responder.expected) > 0) {
        acknowledge_duplicate(acknowledge); /* the target waits for each, READs too */
    }
    if (qp_state_now(qp) == QP_ERROR && !acknowledge->failed) {
        acknowledge_fail(acknowledge, NAK_REMOTE_OPERATION, packet->psn); /* an overrun */
    }
}

void deputy_receive(struct qp *qp, uint32_t from, const struct relay_message *message,
                    const struct packet *packet)
{
    if (!deputy_is_of(qp, from, message->life)) {
        begin(qp, from, message);
    }
    qp->rare.deputy.heard = qp->environment->now;
    qp_schedule(qp);
    qp_set_deadline(qp, instant_after(qp->environment->now, LOOK_NS));
    if (qp_state_now(qp) == QP_ERROR) {
        responder_receive_in_error(qp, packet);
        return;
    }
    take_attributes(qp, message);
    skip(qp, message);
    bool was_executed = psn_distance(qp->responder.expected, packet->psn) < 0;
    if (message->is_repeat) {
        qp->rare.deputy.repeats = message->repeats;
        if (was_executed) {
            responder_receive(qp, packet);
        }
        acknowledge_duplicate(&qp->responder.acknowledge);
    } else if (was_executed) {
        answer_again(qp);
    } else {
        execute(qp, packet);
    }
}

static bool is_idle(struct qp *qp)
{
    return qp->responder.inbound == INBOUND_NONE && !qp->responder.receive_taken &&
           replay_pending(&qp->responder.reads->replay) == NULL;
}

bool deputy_is_forgettable(struct qp *qp)
{
    return is_idle(qp) &&
           instant_elapsed_ns(qp->rare.deputy.heard, qp->environment->now) >= 2 * RELAY_PATIENCE_NS;
}

bool deputy_expire(struct qp *qp)
{
    struct relay_link *link = qp->environment->relay_link;
    if (is_idle(qp)) {
        return true;
    }
    qp_set_deadline(qp, instant_after(qp->environment->now, LOOK_NS));
    return link->lives(link, qp->rare.deputy.principal);
}
