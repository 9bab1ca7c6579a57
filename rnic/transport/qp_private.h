/* struct qp, shared by the machines of a queue pair and by the device's lists of them, and the few
 * acts that more than one machine does: send a packet, complete, fail. */
#ifndef WEIR_TRANSPORT_QP_PRIVATE_H
#define WEIR_TRANSPORT_QP_PRIVATE_H

#include <stdatomic.h>

#include "rnic/base/check.h"
#include "rnic/base/list.h"
#include "rnic/base/prefetch.h"
#include "rnic/base/timers.h"
#include "rnic/queue/completion_queue.h"
#include "rnic/transport/acknowledge.h"
#include "rnic/transport/congestion.h"
#include "rnic/transport/doorbell.h"
#include "rnic/transport/environment.h"
#include "rnic/transport/notice.h"
#include "rnic/transport/qp.h"
#include "rnic/transport/rate.h"
#include "rnic/transport/replay.h"
#include "rnic/transport/requester.h"
#include "rnic/transport/responder.h"
#include "rnic/transport/retransmit.h"
#include "rnic/transport/selective.h"
#include "rnic/transport/step.h"

/* Of a deputy: whose it is. */
struct deputy {
    uint32_t principal; /* the target's process */
    uint64_t life;
    struct instant heard; /* its latest request */
    uint32_t repeats;     /* requests for a response again that have come */
};

/* In the order of use: where there are thousands of these, each line that a message touches is one
 * that the processor waits for. What only some kinds of queue pairs have is `rare`: the others have
 * memory up to it. Behind it are the SGEs of the receive under way. */
struct qp {
    struct environment *environment;
    struct qpn number;
    _Atomic int state; /* enum qp_state; written under the engine's lock, read by posters */
    enum service service : 8;
    bool signal_all;
    bool is_target; /* XRC: executes requests and sends none */
    bool is_deputy; /* a target that acts for one of another process */
    bool receives_are_shared;
    uint8_t mtu_shift; /* of attributes.path_mtu, in force */
    bool matches_tags; /* else the receives are in posting order */
    bool is_rare : 1;  /* has the last part */
    bool is_lent : 1;  /* its memory is, see QP_BESIDE */
    bool sends_behind : 1;
    bool has_references[2]; /* sent, see reference.h: in requests, in responses */
    bool established_raised : 1;
    bool drain_pending : 1;  /* SQD was entered and EVENT_SQ_DRAINED is due */
    bool requests_first : 1; /* answers filled the last turn, so requests begin the next */
    bool peer_died : 1;      /* see trouble.h */
    bool peer_is_near : 1;   /* its latest packet came by such a link, see arrival */
    bool is_held : 1;        /* it is not to be shown, see direct.h */
    bool was_shown : 1;      /* ... it was since somebody has waited for who may be at it */
    bool blocks_own_multicast : 1;
    bool owes_notice : 1;
    bool went_directly : 1; /* its latest WRITE or READ did, see direct.h */
    struct domain domain;
    struct send_queue *sends;
    struct doorbell_link doorbell;

    struct list_node active;           /* in environment->active: it may have something to send */
    struct timer timer;                /* never later than what is due; it may be earlier */
    uintptr_t after[SUCCESSION_COUNT]; /* where those lie that come soon, see succession.h */
    struct selective *selective;       /* NULL: the peer is not known to speak it */

    struct requester requester;
    struct qp_attributes attributes;
    struct responder responder;
    struct retransmit retransmit;
    struct congestion congestion;
    struct domain receive_domain; /* of the receives' buffers */
    struct completion_queue *send_completions;
    struct completion_queue *receive_completions;
    struct receive_queue *receives; /* NULL: XRC */
    struct agreement agreement;
    struct instant notice_sent; /* NEVER: none was */
    struct rate *rate;          /* NULL: the network may not mark what it sends */

    void *context;
    struct instant death_counts_from; /* the peer's; NEVER: not before a goodbye */

    union {
        struct {
            struct tag_matcher *matcher;
            struct tag_message tagged; /* the receive of the message under way */
        };
        struct {                          /* of XRC */
            struct xrc_domain xrc_domain; /* of a target */
            struct relay *relay;          /* NULL: every request is our own */
            uint32_t xrc_srq;             /* of the message under way */
            uint64_t executed;            /* PSNs before the expected one, which wraps */
            struct deputy deputy;
        };
        uint32_t multicast_groups; /* of UD: that it is attached to; the device's */
    } rare;
};

BUILD_CHECK(offsetof(struct qp, rare) % sizeof(uint64_t) == 0);
BUILD_CHECK(offsetof(struct qp, rare) + sizeof(struct sge) == QP_USUAL_BYTES);

/* A packet for it comes soon, or its turn. */
static inline void qp_prefetch(const struct qp *qp)
{
    prefetch(qp, offsetof(struct qp, context));
}

/* ... so soon that the queue pair itself is there. */
static inline void qp_prefetch_sends(const struct qp *qp)
{
    prefetch(qp->sends, SEND_QUEUE_PREFETCH);
}

/* A packet for it is here, which its application may answer. All addresses are known before
 * anything of it has come, so the processor waits for one line instead of one after the other. */
static inline void qp_prefetch_all(const struct qp *qp)
{
    qp_prefetch(qp);
    if (qp->is_lent) {
        prefetch((const uint8_t *)qp - QP_BESIDE, QP_BESIDE);
    }
    if (qp->sends_behind) {
        prefetch((const uint8_t *)qp + QP_USUAL_BYTES, SEND_QUEUE_PREFETCH);
    }
}

static inline enum qp_state qp_state_now(const struct qp *qp)
{
    return (enum qp_state)atomic_load_explicit(&qp->state, memory_order_relaxed);
}

static inline uint32_t qp_mtu(const struct qp *qp)
{
    return 1u << qp->mtu_shift;
}

/* From attributes.path_mtu. */
void qp_set_mtu(struct qp *qp);

static inline struct sge *qp_receive_sges(const struct qp *qp)
{
    return (struct sge *)((uint8_t *)(uintptr_t)qp +
                          (qp->is_rare ? sizeof *qp : offsetof(struct qp, rare)));
}

/* NULL: every request is our own. */
static inline struct relay *qp_relay(const struct qp *qp)
{
    return qp->is_target ? qp->rare.relay : NULL;
}

/* Puts the queue pair in line for a turn. */
static inline void qp_schedule(struct qp *qp)
{
    if (!list_node_is_linked(&qp->active)) {
        list_append(&qp->environment->active, &qp->active);
    }
}

/* The timer is to go off at `deadline` or before. */
static inline void qp_set_deadline(struct qp *qp, struct instant deadline)
{
    if (instant_is_never(deadline)) {
        return;
    }
    if (!timer_is_set(&qp->timer) || instant_before(deadline, qp->timer.deadline)) {
        timers_set(&qp->environment->timers, &qp->timer, deadline);
    }
}

/* The timer may have been set for something else than an answer. */
static inline bool qp_timer_has_other_use(const struct qp *qp)
{
    return qp->rate != NULL || qp->selective != NULL || qp->is_target || qp->peer_died ||
           !instant_is_never(qp->requester.rnr_resume) ||
           qp->responder.reads->pace.throttle.waiting;
}

/* Nothing is unanswered. A timer that goes off for nothing costs less than setting one for each
 * packet, but not where many do: then this one is cancelled. */
static inline void qp_rest(struct qp *qp)
{
    struct timers *timers = &qp->environment->timers;
    if (timer_is_set(&qp->timer) && !timers_have_only(timers, &qp->timer) &&
        !qp_timer_has_other_use(qp)) {
        timers_cancel(timers, &qp->timer);
    }
}

/* Whether data may leave now; else the timer is set for when they may. */
bool qp_may_send_data(struct qp *qp, struct instant now);

/* Bytes per millisecond; 0: no limit. */
static inline uint64_t qp_rate(const struct qp *qp)
{
    return qp->rate == NULL ? 0 : qp->rate->current;
}

static inline void qp_sent_data(struct qp *qp, struct instant now, uint32_t bytes)
{
    if (qp->rate != NULL) {
        rate_sent(qp->rate, now, bytes);
    }
    if (qp->selective != NULL) {
        qp->selective->data_sent++;
    }
}

/* Hands a packet to the sink along `path`. False: full. */
bool qp_emit(struct qp *qp, const struct path *path, const struct packet *packet,
             const struct fragment_list *payload);
/* A train that begins with `packet`, whose payloads begin at `bytes`, to the peer. Returns how many
 * of its packets the sink has taken. */
uint32_t qp_emit_train(struct qp *qp, const struct packet *packet, const uint8_t *bytes,
                       uint32_t count, uint32_t under_way);
/* One that nobody answers: where the host's own interface is too narrow for it, its message fails
 * (STEP_IDLE) with LOCAL_LENGTH_ERROR and the bytes that the interface takes as its detail. */
enum step qp_emit_unanswered(struct qp *qp, const struct path *path, const struct packet *packet,
                             const struct fragment_list *payload);
/* A request to the peer; it takes along what is owed as an acknowledgement, where it can. */
bool qp_emit_request(struct qp *qp, const struct packet *packet,
                     const struct fragment_list *payload);

void qp_raise(struct qp *qp, enum event_kind kind);

/* Pushes and, if the queue has overrun, fails the queue pair. */
void qp_push(struct qp *qp, struct completion_queue *queue, struct completion *completion,
             bool solicited);

/* The same in two steps: the record where it is to lie, to be written whole, or `spare` if that
 * must be found out while pushing. What is written in small pieces and copied in large ones is
 * waited for. */
static inline struct completion *qp_open_completion(struct completion_queue *queue,
                                                    struct completion *spare)
{
    struct completion *record = completion_queue_open(queue);
    return record != NULL ? record : spare;
}
static inline void qp_push_opened(struct qp *qp, struct completion_queue *queue,
                                  struct completion *completion, bool is_spare, bool solicited)
{
    if (is_spare) {
        qp_push(qp, queue, completion, solicited);
        return;
    }
    completion->time = qp->environment->now;
    environment_count(qp->environment, COUNTER_COMPLETIONS);
    completion_queue_push_opened(queue, solicited);
}

/* Completes the oldest send, successfully if `status` is SUCCESS, and gives its slot back. */
void qp_complete_send(struct qp *qp, enum completion_status status);
/* The same where the oldest is known, and has succeeded. */
void qp_succeed_send(struct qp *qp, struct send_slot *slot);

/* To the error state: everything outstanding is flushed in order. Nothing happens twice. */
void qp_enter_error(struct qp *qp);
/* The oldest send has failed. What follows depends on the service. */
void qp_fail_send(struct qp *qp, enum completion_status status);
/* Flushes what was posted to a queue pair in error. */
void qp_flush(struct qp *qp);

/* Called by the device. */
enum status qp_create(struct environment *environment, const struct qp_init *init,
                      struct qpn number, struct qp **ret_qp) MUST_USE;
void qp_destroy(struct qp *qp);
/* A packet that parsed well and is addressed to this queue pair. True: it is surely the peer's, see
 * device_receive. */
bool qp_receive(struct qp *qp, struct instant now, const struct arrival *arrival,
                const struct packet *packet);
/* The first step of that: it is the peer's, and what rides on it has been taken; false: refused. */
bool qp_admit(struct qp *qp, struct instant now, const struct arrival *arrival,
              const struct packet *packet);
/* A report that is addressed to it. */
void qp_receive_report(struct qp *qp, struct instant now, const struct arrival *arrival,
                       const struct report *report);
/* The doorbell was rung. */
void qp_look(struct qp *qp);
/* The timer went off. */
void qp_expire(struct qp *qp, struct instant now);
/* It may have something to send: */
bool qp_has_turn(const struct qp *qp);
/* a request, or */
bool qp_has_requests(const struct qp *qp);
/* what is none. */
bool qp_owes_answer(const struct qp *qp);
/* One turn: up to `burst` packets. Answers come before requests, but where they filled one turn the
 * requests begin the next, so that neither keeps the other waiting for ever. STEP_SENT: there may
 * be more. */
enum step qp_transmit(struct qp *qp, struct instant now, uint32_t burst, uint32_t *ret_sent);

#endif
