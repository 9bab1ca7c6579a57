/* Attributes, posting, and the way of packets, time and turns to the machines. */
#include "rnic/transport/qp.h"

#include "rnic/transport/answer.h"
#include "rnic/transport/completer.h"
#include "rnic/transport/datagram.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"
#include "rnic/transport/repair.h"
#include "rnic/transport/short_way.h"
#include "rnic/transport/trouble.h"
#include "rnic/transport/unreliable.h"

struct qpn qp_number(const struct qp *qp)
{
    return qp->number;
}

enum qp_state qp_current_state(const struct qp *qp)
{
    return (enum qp_state)atomic_load(&qp->state);
}

enum service qp_service(const struct qp *qp)
{
    return qp->service;
}

struct domain qp_domain(const struct qp *qp)
{
    return qp->domain;
}

void *qp_context(const struct qp *qp)
{
    return qp->context;
}

const struct receive_queue *qp_receive_queue(const struct qp *qp)
{
    if (qp->is_target) {
        const struct xrc_queue *queue =
            xrc_find(qp->environment, qp->rare.xrc_domain, qp->rare.xrc_srq);
        return queue == NULL ? NULL : queue->receives;
    }
    return qp->receives;
}

void qp_set_context(struct qp *qp, void *context)
{
    qp->context = context;
}

void qp_block_own_multicast(struct qp *qp)
{
    qp->blocks_own_multicast = true;
}

bool qp_is_attached(const struct qp *qp)
{
    return qp->service == SERVICE_UD && qp->rare.multicast_groups > 0;
}

void qp_query(const struct qp *qp, struct qp_attributes *ret_attributes)
{
    *ret_attributes = qp->attributes;
    ret_attributes->state = qp_state_now(qp);
    ret_attributes->current_state = ret_attributes->state;
    ret_attributes->receive_psn = qp->responder.expected;
    ret_attributes->send_psn = qp->requester.frontier;
}

static bool offers(enum service service, const struct send_request *request)
{
    switch (service) {
    case SERVICE_RC:
        return true;
    case SERVICE_XRC:
        return request->kind != WORK_ATOMIC_WRITE;
    case SERVICE_UC:
        return request->kind == WORK_SEND || request->kind == WORK_SEND_IMMEDIATE ||
               request->kind == WORK_WRITE || request->kind == WORK_WRITE_IMMEDIATE ||
               request->kind == WORK_LOCAL_INVALIDATE || request->kind == WORK_BIND_WINDOW;
    default:
        return (request->kind == WORK_SEND || request->kind == WORK_SEND_IMMEDIATE) &&
               request->target != NULL;
    }
}

static bool is_atomic(enum work_kind kind)
{
    return kind == WORK_COMPARE_SWAP || kind == WORK_FETCH_ADD || kind == WORK_ATOMIC_WRITE;
}

/* All that can be said of a request without looking at the queue. */
static enum status check_send(const struct qp *qp, const struct send_request *request)
{
    if (qp->is_target || qp->matches_tags) {
        return STATUS_INVALID;
    }
    if (qp_current_state(qp) < QP_RTS) {
        return STATUS_STATE;
    }
    if (!offers(qp->service, request)) {
        return STATUS_INVALID;
    }
    bool holds_value = request->kind == WORK_ATOMIC_WRITE && request->sge_count == 0;
    if (is_atomic(request->kind) && !holds_value) {
        uint64_t length = 0;
        for (uint32_t i = 0; i < request->sge_count; i++) {
            length += request->sges[i].length;
        }
        if (length != sizeof(uint64_t)) {
            return STATUS_INVALID;
        }
    }
    return STATUS_OK;
}

enum status qp_check_send(const struct qp *qp, const struct send_request *request)
{
    enum status status = check_send(qp, request);
    return status != STATUS_OK ? status : send_queue_check(qp->sends, request);
}

enum status qp_post_send(struct qp *qp, const struct send_request *request)
{
    enum status status = check_send(qp, request);
    return status != STATUS_OK ? status : send_queue_post(qp->sends, request);
}

struct send_slot *qp_open_send(struct qp *qp, uint32_t ahead)
{
    bool plain = qp->service == SERVICE_RC && !qp->matches_tags && qp_state_now(qp) >= QP_RTS;
    return plain ? send_queue_open(qp->sends, ahead) : NULL;
}

enum status qp_post_opened(struct qp *qp, uint32_t count)
{
    if (qp_current_state(qp) < QP_RTS) {
        return STATUS_STATE;
    }
    send_queue_post_opened(qp->sends, count);
    return STATUS_OK;
}

uint32_t qp_send_room(const struct qp *qp)
{
    uint64_t used = send_queue_tail(qp->sends) - send_queue_head(qp->sends);
    return send_queue_capacity(qp->sends) - (uint32_t)used;
}

enum status qp_post_receive(struct qp *qp, const struct receive_request *request)
{
    if (qp_current_state(qp) == QP_RESET) {
        return STATUS_STATE;
    }
    if (qp->receives_are_shared) {
        return STATUS_INVALID;
    }
    return receive_queue_post(qp->receives, request);
}

struct sge *qp_open_receive(struct qp *qp, uint32_t sge_count)
{
    bool plain = qp->receives != NULL && !qp->receives_are_shared && qp_state_now(qp) != QP_RESET;
    return plain ? receive_queue_open(qp->receives, sge_count) : NULL;
}

void qp_post_opened_receive(struct qp *qp, uint64_t id, uint32_t sge_count)
{
    receive_queue_post_opened(qp->receives, id, sge_count);
}

bool qp_wants_flush(const struct qp *qp)
{
    /* Pairs with order_with_posters. */
    if (atomic_load_explicit(&qp->environment->posters_fence, memory_order_relaxed)) {
        atomic_thread_fence(memory_order_seq_cst);
    } else {
        atomic_signal_fence(memory_order_seq_cst);
    }
    return qp_state_now(qp) == QP_ERROR;
}

/* [IBA 10.3.1.5] What was begun is finished, then the application may be told. */
static void check_drained(struct qp *qp)
{
    if (qp->drain_pending && qp_state_now(qp) == QP_SQD && requester_is_drained(qp)) {
        qp->drain_pending = false;
        qp_raise(qp, EVENT_SQ_DRAINED);
    }
}

static bool comes_from_peer(const struct qp *qp, const struct arrival *arrival)
{
    return gid_equal(&arrival->path.remote, &qp->attributes.path.remote) &&
           gid_equal(&arrival->path.local, &qp->attributes.path.local);
}

static void receive_reliable(struct qp *qp, struct instant now, const struct packet *packet)
{
    if (packet->info->is_request) {
        responder_receive(qp, packet);
    } else if (qp_state_sends(qp_state_now(qp))) {
        completer_receive(qp, now, packet);
        repair_take_responses(qp, now);
    } else {
        environment_refuse(qp->environment, REFUSED_SEQUENCE);
    }
}

/* Its PSN is the one expected next, or answers what is outstanding: nobody but the peer knows it.
 * Of unreliable connections nothing can be said, for what they expect follows whatever comes. */
static bool is_due(const struct qp *qp, const struct packet *packet)
{
    const struct requester *requester = &qp->requester;
    if (!service_is_reliable(qp->service)) {
        return false;
    }
    if (packet->info->is_request) {
        return psn_equal(packet->psn, qp->responder.expected);
    }
    int32_t ahead = psn_distance(requester->unacked, packet->psn);
    return ahead >= 0 && ahead < psn_distance(requester->unacked, requester->frontier);
}

/* It proves that the peer is up. */
static bool begins_traffic(const struct qp *qp, const struct packet *packet, bool due)
{
    return packet->info->is_request && (!service_is_reliable(qp->service) || due);
}

/* [RoCEv2 annex A17.9.3] A network marks only what says that it heeds marks. */
static void receive_notice(struct qp *qp, struct instant now)
{
    if (notice_may_come(&qp->attributes.path)) {
        notice_receive(qp, now);
    } else {
        environment_refuse(qp->environment, REFUSED_SEQUENCE);
    }
}

/* It is for this queue pair as it stands, and from its peer. What is refused is counted. */
static bool admits(struct qp *qp, const struct arrival *arrival, const struct packet *packet,
                   bool is_notice)
{
    struct environment *environment = qp->environment;
    enum qp_state state = qp_state_now(qp);
    bool answers_none = qp->service == SERVICE_XRC && packet->info->is_request != qp->is_target;
    if (!is_notice && (packet->info->service != qp->service || answers_none)) {
        environment_refuse(environment, REFUSED_SERVICE);
        return false;
    }
    if (qp->service != SERVICE_UD && state >= QP_RTR && !comes_from_peer(qp, arrival)) {
        environment_refuse(environment, REFUSED_ADDRESS);
        return false;
    }
    if (!qp_state_receives(state)) {
        environment_refuse(environment, REFUSED_STATE);
        if (state == QP_ERROR && service_is_reliable(qp->service) && packet->info->is_request) {
            responder_receive_in_error(qp, packet);
        }
        return false;
    }
    return true;
}

/* What rides on a packet that was admitted comes before it. False: it has ended the queue pair. */
static bool take_ride(struct qp *qp, struct instant now, const struct arrival *arrival)
{
    qp->peer_is_near = arrival->is_near;
    if (arrival->acknowledges && service_is_reliable(qp->service) &&
        qp_state_sends(qp_state_now(qp))) {
        completer_acknowledged(qp, now, arrival->acknowledged);
    }
    bool lives = qp_state_receives(qp_state_now(qp));
    if (!lives) {
        environment_refuse(qp->environment, REFUSED_STATE);
    }
    return lives;
}

bool qp_admit(struct qp *qp, struct instant now, const struct arrival *arrival,
              const struct packet *packet)
{
    return admits(qp, arrival, packet, false) && take_ride(qp, now, arrival);
}

bool qp_receive(struct qp *qp, struct instant now, const struct arrival *arrival,
                const struct packet *packet)
{
    struct environment *environment = qp->environment;
    bool is_notice = packet->info->operation == OPERATION_CONGESTION && qp->service != SERVICE_UD;
    if (!admits(qp, arrival, packet, is_notice)) {
        return false;
    }
    if (is_notice) {
        receive_notice(qp, now);
        return false;
    }
    if (!take_ride(qp, now, arrival)) {
        return false;
    }
    enum qp_state state = qp_state_now(qp);
    bool due = is_due(qp, packet);
    if (arrival->congestion_experienced && (due || qp->service == SERVICE_UC)) {
        notice_marked(qp, now);
    }
    if (state == QP_RTR && !qp->established_raised && begins_traffic(qp, packet, due)) {
        qp->established_raised = true;
        direct_refresh(qp);
        qp_raise(qp, EVENT_COMMUNICATION_ESTABLISHED);
    }
    environment->counters.values[COUNTER_BYTES_RECEIVED] += packet->payload_length;
    switch (qp->service) {
    case SERVICE_RC:
    case SERVICE_XRC:
        receive_reliable(qp, now, packet);
        break;
    case SERVICE_UC:
        unreliable_receive(qp, packet);
        break;
    default:
        datagram_receive(qp, arrival, packet);
        break;
    }
    check_drained(qp);
    return due;
}

void qp_receive_report(struct qp *qp, struct instant now, const struct arrival *arrival,
                       const struct report *report)
{
    enum packet_refusal refusal = qp->service != SERVICE_RC              ? REFUSED_SERVICE
                                  : !qp_state_receives(qp_state_now(qp)) ? REFUSED_STATE
                                  : !comes_from_peer(qp, arrival)        ? REFUSED_ADDRESS
                                                                         : REFUSED_NOT;
    if (refusal != REFUSED_NOT) {
        environment_refuse(qp->environment, refusal);
        return;
    }
    selective_receive(qp, now, report);
    repair_take_responses(qp, now);
    check_drained(qp);
}

void qp_look(struct qp *qp)
{
    enum qp_state state = qp_state_now(qp);
    if (state == QP_ERROR || state == QP_SQE) {
        qp_flush(qp);
    } else if (qp_state_sends(state)) {
        qp_schedule(qp);
    }
}

/* Between Weir ends a stream leaves others room in this host's own queue, too. */
static bool host_has_room(struct qp *qp, struct instant now)
{
    struct packet_sink *sink = qp->environment->sink;
    struct throttle *hold = &qp->selective->hold;
    const struct qp_attributes *attributes = &qp->attributes;
    if (sink->hold_ns == NULL || qp->peer_is_near) {
        hold->waiting = false;
        return true;
    }
    if (throttle_may_pass(hold, now)) {
        uint64_t ns = sink->hold_ns(sink, &attributes->path, attributes->destination,
                                    &qp->selective->hold_mark);
        if (ns == 0) {
            return true;
        }
        throttle_hold(hold, instant_after(now, ns));
    }
    qp_set_deadline(qp, hold->resume);
    return false;
}

bool qp_may_send_data(struct qp *qp, struct instant now)
{
    bool may = qp->rate == NULL || rate_may_send(qp->rate, now);
    if (!may) {
        qp_set_deadline(qp, qp->rate->throttle.resume);
    }
    return may && (qp->selective == NULL || host_has_room(qp, now));
}

/* What waits for its time. */
static void resume(struct qp *qp, const struct throttle *throttle, struct instant now)
{
    if (!throttle->waiting) {
        return;
    }
    if (instant_before(now, throttle->resume)) {
        qp_set_deadline(qp, throttle->resume);
    } else {
        qp_schedule(qp);
    }
}

void qp_expire(struct qp *qp, struct instant now)
{
    resume(qp, &qp->responder.reads->pace.throttle, now);
    if (qp->rate != NULL) {
        resume(qp, &qp->rate->throttle, now);
    }
    if (qp->selective != NULL) {
        resume(qp, &qp->selective->hold, now);
    }
    if (qp_relay(qp) != NULL) {
        relay_expire(qp, now);
    }
    struct requester *requester = &qp->requester;
    struct retransmit *retransmit = &qp->retransmit;
    if (!qp_state_sends(qp_state_now(qp)) || trouble_ends(qp)) {
        return;
    }
    repair_expire(qp, now);
    if (!instant_is_never(requester->rnr_resume)) {
        if (requester->rnr_is_vague) {
            completer_wait_for_receives(qp, now);
        } else if (!instant_before(now, requester->rnr_resume)) {
            requester->rnr_resume = INSTANT_NEVER;
            repair_resume(qp, now);
            qp_schedule(qp);
        }
        qp_set_deadline(qp, requester->rnr_resume);
        return;
    }
    if (instant_is_never(retransmit->deadline) || instant_before(now, retransmit->deadline)) {
        qp_set_deadline(qp, retransmit->deadline);
        return;
    }
    if (retransmit_begins(retransmit, now)) {
        qp_set_deadline(qp, retransmit->deadline);
        return;
    }
    if (repair_probe(qp, now)) {
        return;
    }
    environment_count(qp->environment, COUNTER_TIMEOUTS);
    if (retransmit_expired(retransmit, now) || requester->way_takes != 0) {
        environment_count(qp->environment, COUNTER_RETRIES_EXCEEDED);
        qp_fail_send(qp, COMPLETION_RETRY_EXCEEDED);
        return;
    }
    if (repair_is_on(qp)) {
        repair_silence(qp, now);
        return;
    }
    congestion_timed_out(&qp->congestion, requester->frontier);
    selective_want(qp); /* a probe would have come sooner */
    requester_repeat(qp);
}

static enum step transmit_request(struct qp *qp, struct instant now)
{
    enum step step;
    if (!qp_state_sends(qp_state_now(qp))) {
        return STEP_IDLE;
    }
    switch (qp->service) {
    case SERVICE_RC:
        step = short_way_transmit(qp, now);
        return step != STEP_IDLE ? step : requester_transmit(qp, now);
    case SERVICE_XRC:
        return requester_transmit(qp, now);
    case SERVICE_UC:
        return unreliable_transmit(qp, now);
    default:
        return datagram_transmit(qp);
    }
}

/* In error, only the NAK that says so. */
static bool may_answer(const struct qp *qp)
{
    enum qp_state state = qp_state_now(qp);
    return service_is_reliable(qp->service) &&
           (qp_state_receives(state) || (state == QP_ERROR && qp->responder.acknowledge.failed));
}

static enum step transmit_answer(struct qp *qp, struct instant now)
{
    enum step step = short_way_answer(qp);
    if (step != STEP_IDLE) {
        return step;
    }
    if (qp->owes_notice && qp_state_receives(qp_state_now(qp))) {
        return notice_transmit(qp, now);
    }
    return may_answer(qp) ? answer_transmit(qp, now) : STEP_IDLE;
}

/* Whether there may be something to send, for most turns have only one of the two to do. */
static bool may_have_some(const struct qp *qp, bool requests)
{
    return requests ? qp_has_requests(qp) : qp_owes_answer(qp);
}

bool qp_has_requests(const struct qp *qp)
{
    bool reliable = service_is_reliable(qp->service);
    uint64_t next = reliable ? qp->requester.position : send_queue_head(qp->sends);
    return next != send_queue_tail(qp->sends) || repair_is_due(qp);
}

bool qp_owes_answer(const struct qp *qp)
{
    const struct responder *responder = &qp->responder;
    return responder->acknowledge.owed != OWED_NOTHING ||
           replay_may_be_pending(&responder->reads->replay) || qp->owes_notice ||
           qp->agreement.owes || qp_relay(qp) != NULL;
}

bool qp_has_turn(const struct qp *qp)
{
    return qp_has_requests(qp) || qp_owes_answer(qp);
}

/* Until there are none, the sink is full or the burst is over. */
static enum step transmit_phase(struct qp *qp, struct instant now, bool requests, uint32_t burst,
                                uint32_t *sent)
{
    enum step step = STEP_SENT;
    while (*sent < burst && step == STEP_SENT) {
        if (!may_have_some(qp, requests)) {
            return STEP_IDLE;
        }
        step = requests ? transmit_request(qp, now) : transmit_answer(qp, now);
        *sent += (step == STEP_SENT) + qp->environment->extra_packets;
        qp->environment->extra_packets = 0;
    }
    return step;
}

/* Something lets data pass now and then only: the rate, or this host's queue. */
static bool is_limited(const struct qp *qp)
{
    return qp_rate(qp) != 0 || (qp->selective != NULL && qp->selective->hold.waiting);
}

/* Moves with each packet of data, where something may limit them. */
static uint64_t data_passed(const struct qp *qp)
{
    uint64_t due_ns = qp->rate == NULL ? 0 : qp->rate->throttle.due.ns;
    return due_ns + (qp->selective == NULL ? 0 : qp->selective->data_sent);
}

/* Answers first: programs expect that their send completes before what it asked for arrives, as it
 * does with hardware. (ib_send_lat -e waits for ever if it does not.) One that a request brings is
 * taken before it. */
enum step qp_transmit(struct qp *qp, struct instant now, uint32_t burst, uint32_t *ret_sent)
{
    uint32_t sent = 0;
    bool rides = !qp->requests_first && answer_may_ride(qp) && may_have_some(qp, true);
    bool requests = qp->requests_first || rides;
    uint64_t before = data_passed(qp);
    enum step step = transmit_phase(qp, now, requests, burst, &sent);
    if (step == STEP_SENT && rides && answer_may_ride(qp)) {
        step = transmit_answer(qp, now); /* what was done directly carries nothing */
    }
    bool passed = data_passed(qp) != before, answered = !requests;
    if (step == STEP_IDLE) {
        requests = !requests;
        before = data_passed(qp);
        step = sent < burst ? transmit_phase(qp, now, requests, burst, &sent) : STEP_SENT;
        answered = data_passed(qp) != before ? !requests : answered;
        passed |= data_passed(qp) != before;
    }
    /* Where the rate lets one packet of data pass at a time, or the host's queue a run, a turn is
     * that, however often it is looked for before its time, and whatever else leaves until then,
     * such as a CNP; but a whole burst of what no rate counts, such as demands, is one, too. */
    if (is_limited(qp) && passed) {
        qp->requests_first = answered;
    } else if (is_limited(qp)) {
        qp->requests_first = step == STEP_SENT ? !requests : qp->requests_first;
    } else if (sent > 0 || step == STEP_IDLE) {
        qp->requests_first = step != STEP_IDLE && !requests;
    }
    check_drained(qp);
    *ret_sent = sent;
    return step;
}
