/* How work ends: completions, failures, flushing. Declared in qp_private.h.
 *
 * Invariant: each posted request completes at most once, in posting order per queue; it does so
 * exactly once unless it succeeds unsignaled or the queue pair is reset. */
#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"
#include "rnic/transport/reference.h"
#include "rnic/transport/watch.h"

void qp_raise(struct qp *qp, enum event_kind kind)
{
    struct event_sink *events = qp->environment->events;
    if (events != NULL && !qp->is_deputy) {
        struct event event = {.kind = kind, .object = qp->context};
        events->raise(events, &event);
    }
}

void qp_push(struct qp *qp, struct completion_queue *queue, struct completion *completion,
             bool solicited)
{
    completion->time = qp->environment->now;
    environment_count(qp->environment, COUNTER_COMPLETIONS);
    if (!completion_queue_push(queue, completion, solicited) && qp_state_now(qp) != QP_ERROR) {
        qp_raise(qp, EVENT_QP_FATAL);
        qp_enter_error(qp);
    }
}

/* How many bytes the way takes, where a packet was longer; else 0. */
static uint32_t detail(struct requester *requester, enum completion_status status)
{
    uint32_t takes = 0;
    if (status == COMPLETION_SUCCESS) {
        return 0;
    }
    if (status == COMPLETION_RETRY_EXCEEDED) {
        takes = requester->way_takes;
    } else if (status == COMPLETION_LOCAL_LENGTH_ERROR) {
        takes = requester->interface_takes;
        requester->interface_takes = 0;
    }
    return takes;
}

/* `slot`: the oldest. */
static inline void complete(struct qp *qp, struct send_slot *slot, enum completion_status status)
{
    static const enum completion_kind kinds[WORK_KIND_COUNT] = {
        [WORK_SEND] = COMPLETED_SEND,
        [WORK_SEND_IMMEDIATE] = COMPLETED_SEND,
        [WORK_SEND_INVALIDATE] = COMPLETED_SEND,
        [WORK_WRITE] = COMPLETED_WRITE,
        [WORK_WRITE_IMMEDIATE] = COMPLETED_WRITE,
        [WORK_READ] = COMPLETED_READ,
        [WORK_COMPARE_SWAP] = COMPLETED_COMPARE_SWAP,
        [WORK_FETCH_ADD] = COMPLETED_FETCH_ADD,
        [WORK_ATOMIC_WRITE] = COMPLETED_ATOMIC_WRITE,
        [WORK_LOCAL_INVALIDATE] = COMPLETED_LOCAL_INVALIDATE,
        [WORK_BIND_WINDOW] = COMPLETED_BIND_WINDOW,
    };
    bool told = status != COMPLETION_SUCCESS || slot->signaled || qp->signal_all;
    struct completion spare, *completion = &spare;
    watch_send_ends(qp, slot);
    if (told && !qp->matches_tags) {
        completion = qp_open_completion(qp->send_completions, &spare);
    }
    if (told || qp->matches_tags) {
        *completion = (struct completion){
            .id = slot->id,
            .status = status,
            .kind = kinds[slot->kind],
            .byte_length = slot->length,
            .qpn = qp->number,
            .detail = detail(&qp->requester, status),
        };
    }
    send_queue_retire(qp->sends, slot);
    if (qp->matches_tags) {
        tag_sent(qp, completion);
    } else if (told) {
        qp_push_opened(qp, qp->send_completions, completion, completion == &spare,
                       status != COMPLETION_SUCCESS);
    }
}

void qp_complete_send(struct qp *qp, enum completion_status status)
{
    complete(qp, send_queue_oldest(qp->sends), status); /* retiring it checks that it is there */
}

void qp_succeed_send(struct qp *qp, struct send_slot *slot)
{
    complete(qp, slot, COMPLETION_SUCCESS);
}

static void flush_sends(struct qp *qp)
{
    while (send_queue_head(qp->sends) != send_queue_tail(qp->sends)) {
        qp_complete_send(qp, COMPLETION_FLUSHED);
    }
}

static void flush_receives(struct qp *qp)
{
    if (qp->responder.receive_taken) {
        responder_complete_receive(qp, COMPLETION_FLUSHED, NULL);
    }
    while (!qp->receives_are_shared && responder_take_receive(qp)) {
        responder_complete_receive(qp, COMPLETION_FLUSHED, NULL);
    }
}

void qp_flush(struct qp *qp)
{
    flush_sends(qp);
    if (qp_state_now(qp) == QP_ERROR) {
        flush_receives(qp);
    }
}

/* Either we see the work now, or its poster, in qp_wants_flush, sees the error, and rings. Who has
 * been told just now not to have a fence may not have heard otherwise before the last one ends. */
static void order_with_posters(struct environment *environment)
{
    if (atomic_load_explicit(&environment->posters_fence, memory_order_relaxed)) {
        atomic_thread_fence(memory_order_seq_cst);
    } else if (!environment->heavy_fence()) {
        atomic_store_explicit(&environment->posters_fence, true, memory_order_relaxed);
        (void)environment->heavy_fence();
    }
}

void qp_enter_error(struct qp *qp)
{
    if (qp_state_now(qp) == QP_ERROR) {
        return;
    }
    atomic_store(&qp->state, QP_ERROR);
    order_with_posters(qp->environment);
    direct_refresh(qp);
    timers_cancel(&qp->environment->timers, &qp->timer);
    reference_withdraw(qp, false);
    relay_end(qp, true);
    selective_end(qp);
    responder_abandon(qp);
    qp_flush(qp);
    if (qp->receives != NULL && qp->receives_are_shared) {
        qp_raise(qp, EVENT_QP_LAST_RECEIVE_REACHED);
    }
}

void qp_fail_send(struct qp *qp, enum completion_status status)
{
    if (service_is_reliable(qp->service)) {
        qp_complete_send(qp, status);
        qp_enter_error(qp);
        return;
    }
    /* The receiving side of an unreliable queue pair goes on. [IBA 10.3.1.6] */
    atomic_store(&qp->state, QP_SQE);
    qp_complete_send(qp, status);
    flush_sends(qp);
}
