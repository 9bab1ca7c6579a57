/* The receive that a message goes to: taken when it begins, completed when it ends. Declared in
 * responder.h. */
#include "rnic/transport/qp_private.h"
#include "rnic/transport/responder.h"

/* Where a target takes receives from now; NULL: it went away during the message. */
static const struct xrc_queue *xrc_queue_now(const struct qp *qp)
{
    return xrc_find(qp->environment, qp->rare.xrc_domain, qp->rare.xrc_srq);
}

bool responder_take_receive(struct qp *qp)
{
    struct responder *responder = &qp->responder;
    struct receive_queue *receives = qp->receives;
    if (qp->is_target) {
        receives = xrc_queue_now(qp)->receives; /* check_shared_queue has found it */
    }
    if (!responder->receive_taken) {
        struct receive_slot receive;
        if (!receive_queue_take(receives, &receive, qp_receive_sges(qp))) {
            return false;
        }
        responder->receive_id = receive.id;
        responder->receive_sge_count = (uint16_t)receive.sge_count;
        responder->receive_taken = true;
    }
    responder_begin_receive(qp);
    return true;
}

void responder_begin_receive(struct qp *qp)
{
    const struct responder *responder = &qp->responder;
    struct cursor *cursor = &qp->environment->cursors.receive;
    struct domain domain = qp->is_target ? responder->domain : qp->receive_domain;
    scatter_init(&cursor->scatter, qp->environment->memory, domain, qp_receive_sges(qp),
                 responder->receive_sge_count);
    cursor->owner = qp;
}

struct scatter *responder_place(struct qp *qp)
{
    struct cursor *cursor = &qp->environment->cursors.receive;
    if (!cursor_is_of(cursor, qp, 0)) {
        responder_begin_receive(qp);
        scatter_seek(&cursor->scatter, qp->responder.done);
    }
    return &cursor->scatter;
}

void responder_complete_receive(struct qp *qp, enum completion_status status,
                                const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    struct completion completion = {
        .id = responder->receive_id,
        .status = status,
        .kind = COMPLETED_RECEIVE,
        .byte_length = responder->done,
        .qpn = qp->number,
        .source = qp->attributes.destination,
    };
    if (packet != NULL) {
        if (packet->info->operation == OPERATION_WRITE) {
            completion.kind = COMPLETED_RECEIVE_WRITE_IMMEDIATE;
        }
        completion.has_immediate = packet->info->has_immediate;
        completion.immediate = packet->immediate;
        completion.has_invalidated = packet->info->has_invalidate;
        completion.invalidated = packet->invalidate;
    }
    tag_describe(qp, packet, &completion);
    if (packet == NULL) {
        tag_forget(qp);
    }
    tag_end(qp);
    responder->receive_taken = false;
    struct completion_queue *queue = qp->receive_completions;
    if (qp->is_target) {
        const struct xrc_queue *shared = xrc_queue_now(qp);
        if (shared == NULL) {
            return; /* the receive has vanished with its queue */
        }
        queue = shared->completions;
    }
    qp_push(qp, queue, &completion,
            status != COMPLETION_SUCCESS || (packet != NULL && packet->solicited));
}
