/* The cursor and the windows. Invariant: unacked <= cursor <= frontier, the slot at the send
 * queue's head holds `unacked`, and `position` is not before the head. */
#include "rnic/transport/requester.h"

#include "rnic/base/check.h"
#include "rnic/base/seldom.h"
#include "rnic/memory/window.h"
#include "rnic/transport/demand.h"
#include "rnic/transport/direct.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/reference.h"
#include "rnic/transport/repair.h"
#include "rnic/transport/request.h"
#include "rnic/transport/segment.h"
#include "rnic/transport/trouble.h"

void requester_reset(struct qp *qp, struct psn first)
{
    cursors_forget(&qp->environment->cursors, qp);
    qp->requester = (struct requester){
        .unacked = first,
        .cursor = first,
        .frontier = first,
        .position = send_queue_head(qp->sends),
        .rnr_resume = INSTANT_NEVER,
    };
}

void requester_go_back(struct qp *qp)
{
    struct requester *requester = &qp->requester;
    if (repair_is_on(qp)) {
        repair_all(qp);
        return;
    }
    requester->cursor = requester->unacked;
    requester->position = send_queue_head(qp->sends);
    requester->packet = requester->answered;
    requester->repeats = true;
    requester->doubted = requester->frontier;
    requester->reads_out = 0;
    requester->unrequested = 0;
    retransmit_rewound(&qp->retransmit);
    qp_schedule(qp);
}

void requester_repeat(struct qp *qp)
{
    qp->requester.doubts = true;
    requester_go_back(qp);
}

bool requester_awaits_response(enum work_kind kind)
{
    return kind == WORK_READ || kind == WORK_COMPARE_SWAP || kind == WORK_FETCH_ADD ||
           kind == WORK_ATOMIC_WRITE;
}

/* Assigns PSNs to the request at the cursor. False: it must wait, or has failed. */
static bool begin(struct qp *qp, struct send_slot *slot)
{
    struct requester *requester = &qp->requester;
    if (slot->fence && requester->reads_out > 0) {
        return false;
    }
    bool reads = requester_awaits_response(slot->kind);
    if (reads && qp->attributes.max_reads_out == 0 && slot->moved == 0) {
        slot->status = COMPLETION_LOCAL_QP_OPERATION_ERROR;
        slot->finished = true;
        return false;
    }
    slot->first_psn = requester->frontier;
    slot->packet_count =
        reads && slot->kind != WORK_READ ? 1 : segment_packet_count(slot->length, qp->mtu_shift);
    slot->demand_shift = demand_shift(qp, slot);
    slot->started = true;
    return true;
}

static bool is_local(enum work_kind kind)
{
    return kind == WORK_LOCAL_INVALIDATE || kind == WORK_BIND_WINDOW;
}

/* Does what sends no packet: the request at the cursor, in its order. False: it must wait, or has
 * failed. What follows is not begun before it has succeeded. [IBA 10.8.3.3] */
static bool execute_locally(struct qp *qp, struct send_slot *slot)
{
    struct requester *requester = &qp->requester;
    struct memory *memory = qp->environment->memory;
    if (!slot->finished) {
        if ((slot->fence && requester->reads_out > 0) || qp_state_now(qp) == QP_SQD) {
            return false;
        }
        enum status status =
            slot->kind == WORK_BIND_WINDOW
                ? window_bind(memory, qp->domain, qp->number, send_slot_bind(slot))
                : window_invalidate(memory, qp->domain, qp->number, slot->invalidate);
        slot->status = status == STATUS_OK ? COMPLETION_SUCCESS : COMPLETION_WINDOW_BIND_ERROR;
        slot->finished = true;
    }
    bool succeeded = slot->status == COMPLETION_SUCCESS;
    if (succeeded) {
        requester->position++;
    }
    requester_settle(qp);
    return succeeded && qp_state_now(qp) != QP_ERROR;
}

struct send_slot *requester_next(struct qp *qp)
{
    struct requester *requester = &qp->requester;
    while (requester->position != send_queue_tail(qp->sends)) {
        struct send_slot *slot = send_queue_slot(qp->sends, requester->position);
        if (slot->finished && slot->status != COMPLETION_SUCCESS) {
            return NULL; /* the end: it fails once all before it have completed */
        }
        if (is_local(slot->kind)) {
            if (!execute_locally(qp, slot)) {
                return NULL;
            }
            continue;
        }
        if (!slot->started) {
            if (qp_state_now(qp) == QP_SQD && slot->moved == 0) {
                return NULL;
            }
            if (direct_is_worth_waiting(qp, slot)) {
                return NULL;
            }
            if (!begin(qp, slot)) {
                requester_settle(qp);
                return NULL;
            }
        }
        return slot;
    }
    return NULL;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t window_packets(const struct qp *qp)
{
    uint32_t window = repair_is_on(qp) ? qp->selective->share.window : qp->congestion.window;
    return window >> qp->mtu_shift;
}

static uint32_t in_flight(const struct qp *qp)
{
    const struct requester *requester = &qp->requester;
    return repair_is_on(qp) ? scoreboard_in_flight(&qp->selective->board)
                            : (uint32_t)psn_distance(requester->unacked, requester->cursor);
}

/* A packet to be sent, new or again: which of which request. */
struct turn {
    struct send_slot *slot;
    uint64_t position; /* of the slot */
    uint32_t index;
    bool again; /* not at the cursor, see repair.h */
};

/* The windows: of congestion, and of what a report can speak of. Something may always be under way,
 * or nothing would ever open them. */
static bool may_leave(const struct qp *qp, const struct turn *turn, uint32_t packets,
                      bool by_reference)
{
    const struct requester *requester = &qp->requester;
    uint32_t under_way = in_flight(qp);
    uint32_t span = (uint32_t)psn_distance(requester->unacked, requester->frontier);
    if (repair_is_on(qp) && !turn->again && span + packets > REPORT_SPAN) {
        return false;
    }
    if (turn->again && qp->selective->board.probing) {
        return true; /* only what it tells opens the window */
    }
    if (turn->again) { /* the rest of what it draws is under way already */
        struct psn psn = psn_add(turn->slot->first_psn, turn->index);
        if (psn_equal(psn, requester->unacked)) {
            return true; /* all that has come behind it waits for it, and so does the window */
        }
        packets = scoreboard_count_lost(&qp->selective->board, psn, packets);
    }
    uint32_t window = by_reference ? reference_window(qp) : window_packets(qp);
    return under_way == 0 || under_way + packets <= window;
}

/* A link that joins packets sends few as dearly as many: where the window has room for less than a
 * run, and most of it is under way and will be acknowledged, the next run waits for the rest of its
 * room. */
static bool waits_for_run(struct qp *qp, const struct turn *turn)
{
    struct requester *requester = &qp->requester;
    const struct packet_sink *sink = qp->environment->sink;
    if (requester->run_left > 0 || sink->run_packets == 0 || qp->peer_is_near || turn->again) {
        return false;
    }
    uint32_t run = sink->run_bytes / (qp_mtu(qp) + BTH_LENGTH + ICRC_LENGTH);
    run = smaller(run, sink->run_packets);
    uint32_t window = window_packets(qp), under_way = in_flight(qp);
    uint32_t rest = turn->slot->packet_count - turn->index;
    if (4 * run <= window && under_way + (run < rest ? run : rest) > window) {
        return true;
    }
    requester->run_left = (uint16_t)(run < rest ? run : rest);
    return false;
}

/* So many packets of a long message ask for no acknowledgement. Where losses are repaired, what
 * waits behind a gap is told of where one asks; while there is none, that pays only where packets
 * leave one by one: with half as many asked for, the end of the window asks for more instead. */
static uint32_t unasked_max(const struct qp *qp)
{
    bool often = repair_is_on(qp) && (qp->environment->sink->run_packets == 0 ||
                                      scoreboard_has_gap(&qp->selective->board));
    return window_packets(qp) / (often ? 4 : 2);
}

/* Something is under way, and nothing of it has asked. */
static bool none_has_asked(const struct requester *requester)
{
    int32_t under_way = psn_distance(requester->unacked, requester->cursor);
    return under_way > 0 && requester->unrequested >= (uint32_t)under_way;
}

/* Asked of few packets. */
static SELDOM bool is_silent(const struct qp *qp, struct instant now)
{
    return retransmit_is_silent(&qp->retransmit, now);
}

/* Soon our own silence would look like a loss: the link lets packets go slowly, or this process
 * gets no processor. */
static bool is_slow_to_ask(const struct qp *qp, struct instant now)
{
    return none_has_asked(&qp->requester) && is_silent(qp, now);
}

/* Whether a packet asks for an acknowledgement: what is sent again, at the end of a message, when
 * the window closes, at least twice in a window, and now and then at a limited rate or where
 * packets leave slowly, or the silence before a slow message's end would look like a loss. */
static bool asks_acknowledgement(const struct qp *qp, struct instant now, const struct turn *turn)
{
    uint32_t window = window_packets(qp);
    uint64_t unrequested = (qp->requester.unrequested + UINT64_C(1)) << qp->mtu_shift;
    uint64_t rate = qp_rate(qp);
    if (rate != 0 &&
        unrequested * MILLISECOND_NS >= rate * retransmit_silence_ns(&qp->retransmit)) {
        return true;
    }
    return turn->again || turn->index + 1 == turn->slot->packet_count ||
           in_flight(qp) + 1 >= window || qp->requester.unrequested + 1 >= unasked_max(qp) ||
           is_slow_to_ask(qp, now);
}

static void advance(struct requester *requester, const struct send_slot *slot, uint32_t packets)
{
    requester->cursor = psn_add(requester->cursor, packets);
    requester->packet += packets;
    if (requester->packet == slot->packet_count) {
        requester->packet = 0;
        requester->position++;
    }
    if (psn_before(requester->frontier, requester->cursor)) {
        requester->frontier = requester->cursor;
    }
}

static SELDOM void repeated_packet(struct requester *requester, struct instant now, struct psn psn)
{
    if (psn_equal(psn, requester->unacked)) {
        requester->repeated = now;
        requester->rnr_copies = 0;
    }
}

/* Behind packets that did not ask. Repetitions put nothing off: who refuses each would never be
 * given up. */
static SELDOM void asked(struct qp *qp, struct instant now, bool fresh)
{
    if (fresh && !repair_is_on(qp) && none_has_asked(&qp->requester)) {
        retransmit_asked(&qp->retransmit, now);
    }
}

static void passed(struct qp *qp, struct instant now, const struct turn *turn, uint32_t packets,
                   bool answered)
{
    struct requester *requester = &qp->requester;
    bool demand = requester_awaits_response(turn->slot->kind);
    struct psn psn = turn->again ? psn_add(turn->slot->first_psn, turn->index) : requester->cursor;
    bool fresh = !psn_before(psn, requester->frontier);
    bool repairing = repair_is_on(qp);
    if (!fresh) {
        environment_count(qp->environment, COUNTER_RETRANSMITTED_PACKETS);
        repeated_packet(requester, now, psn);
    }
    bool timed = fresh && answered && !repairing && !qp->environment->is_vague;
    struct retransmit *retransmit = &qp->retransmit;
    if (instant_is_never(retransmit->deadline)) {
        retransmit->is_vague = qp->environment->is_vague;
    }
    retransmit_sent(retransmit, now, psn, timed);
    if (answered && requester->unrequested > 0) {
        asked(qp, now, fresh);
    }
    qp_set_deadline(qp, retransmit->deadline);
    requester->unrequested = answered ? 0 : requester->unrequested + packets;
    requester->run_left -= smaller(packets, requester->run_left);
    if (repairing) {
        scoreboard_sent(&qp->selective->board, now, psn, packets, demand);
    }
    if (!turn->again) {
        advance(requester, turn->slot, packets);
        repair_begin(qp, now);
    }
}

void requester_sent_short(struct qp *qp, struct instant now, struct send_slot *slot)
{
    struct requester *requester = &qp->requester;
    struct retransmit *retransmit = &qp->retransmit;
    struct psn psn = requester->frontier;
    bool is_vague = qp->environment->is_vague;
    slot->first_psn = psn;
    slot->packet_count = 1;
    slot->started = true;
    qp_sent_data(qp, now, slot->length);
    if (qp->selective != NULL) { /* it may be repaired, and has a place on the scoreboard */
        struct turn turn = {.slot = slot, .position = requester->position};
        passed(qp, now, &turn, 1, true);
        return;
    }
    if (instant_is_never(retransmit->deadline)) {
        retransmit->is_vague = is_vague;
    }
    retransmit_sent(retransmit, now, psn, !is_vague);
    qp_set_deadline(qp, retransmit->deadline);
    requester->unrequested = 0;
    requester->cursor = requester->frontier = psn_next(psn);
    requester->position++;
}

/* No key grants what the request is to send. */
static void fail_locally(struct qp *qp, struct send_slot *slot)
{
    slot->status = COMPLETION_LOCAL_PROTECTION_ERROR;
    slot->finished = true;
    requester_settle(qp);
}

/* Packets of the turn's request from there on that may leave as one, by reference. */
static uint32_t span(struct qp *qp, const struct turn *turn)
{
    struct requester *requester = &qp->requester;
    if (requester->doubts && !psn_before(requester->cursor, requester->doubted)) {
        requester->doubts = false;
    }
    if (requester->doubts || turn->slot->inline_data || qp->selective != NULL) {
        return 1;
    }
    return reference_span(qp, turn->slot->length - (turn->index << qp->mtu_shift));
}

/* False: it cannot be sent so. */
static bool gather(struct qp *qp, const struct turn *turn, uint32_t length,
                   struct fragment_list *list, bool by_reference)
{
    if (request_gather(qp, turn->slot, turn->position, turn->index, length, list) !=
        MEMORY_GRANTED) {
        return false;
    }
    for (uint32_t i = 0; by_reference && i < list->count; i++) {
        if (list->fragments[i].bytes == NULL) {
            return false; /* memory that is none */
        }
    }
    return true;
}

/* How many packets from the turn's on may leave as a train: new ones in the middle of their
 * message, within the run and the windows, none of which asks for an acknowledgement. */
static uint32_t train_span(const struct qp *qp, struct instant now, const struct turn *turn)
{
    const struct requester *requester = &qp->requester;
    if (requester->run_left == 0 || turn->again || turn->index == 0 || qp_rate(qp) != 0 ||
        !psn_equal(requester->cursor, requester->frontier) || is_slow_to_ask(qp, now)) {
        return 0;
    }
    uint32_t window = window_packets(qp), before_asking = in_flight(qp) + 1;
    uint32_t asks_at = unasked_max(qp), unasked = requester->unrequested + 1;
    uint32_t most = smaller(TRAIN_MAX, TRAIN_BYTES >> qp->mtu_shift);
    uint32_t span = smaller(turn->slot->packet_count - 1 - turn->index, most);
    span = smaller(span, requester->run_left);
    span = smaller(span, window > before_asking ? window - before_asking : 0);
    span = smaller(span, asks_at > unasked ? asks_at - unasked : 0);
    uint32_t speakable = (uint32_t)psn_distance(requester->unacked, requester->frontier);
    return repair_is_on(qp) ? smaller(span, REPORT_SPAN - smaller(speakable, REPORT_SPAN)) : span;
}

/* Where the payloads of so many packets lie, or of the first of them that lie one behind the other;
 * returns how many. Asks for so many packets at once. */
static uint32_t gather_in_pieces(struct qp *qp, const struct turn *turn, uint32_t span,
                                 uint32_t piece, const uint8_t **ret_bytes)
{
    uint32_t done = 0, count;
    for (; done < span; done += count) {
        struct fragment fragment;
        struct fragment_list list = {&fragment, 1, 0};
        count = smaller(piece, span - done);
        if (request_gather(qp, turn->slot, turn->position, turn->index + done,
                           count << qp->mtu_shift, &list) != MEMORY_GRANTED) {
            break;
        }
        if (done == 0) {
            *ret_bytes = fragment.bytes;
        } else if (fragment.bytes != *ret_bytes + ((size_t)done << qp->mtu_shift)) {
            break;
        }
    }
    return done;
}

/* Where pages may be missing, only of pieces of a packet is it said whether they are there. */
static uint32_t gather_train(struct qp *qp, const struct turn *turn, uint32_t span,
                             const uint8_t **ret_bytes)
{
    uint32_t count = 0;
    if (request_is_steady(qp, turn->slot)) {
        count = gather_in_pieces(qp, turn, span, span, ret_bytes);
    }
    return count > 0
               ? count
               : gather_in_pieces(qp, turn, span, PACKET_PAYLOAD_MAX >> qp->mtu_shift, ret_bytes);
}

/* False: the packet at the turn has to go by itself. */
static bool send_train(struct qp *qp, struct instant now, const struct turn *turn)
{
    uint32_t span = train_span(qp, now, turn);
    const uint8_t *bytes;
    span = span < 2 ? 0 : gather_train(qp, turn, span, &bytes);
    if (span < 2) {
        return false;
    }
    struct packet packet;
    request_describe_data(qp, turn->slot, turn->index, 1, &packet);
    uint32_t taken = qp_emit_train(qp, &packet, bytes, span, in_flight(qp) << qp->mtu_shift);
    if (taken == 0) {
        return false;
    }
    qp_sent_data(qp, now, taken << qp->mtu_shift);
    passed(qp, now, turn, taken, false);
    qp->environment->extra_packets = taken - 1;
    return true;
}

static enum step send_packets(struct qp *qp, struct instant now, const struct turn *turn,
                              uint32_t count)
{
    bool by_reference = count > 1;
    if (!may_leave(qp, turn, count, by_reference) || (!by_reference && waits_for_run(qp, turn)) ||
        !qp_may_send_data(qp, now)) {
        return STEP_IDLE;
    }
    if (!by_reference && send_train(qp, now, turn)) {
        return STEP_SENT;
    }
    struct packet packet;
    request_describe_data(qp, turn->slot, turn->index, count, &packet);
    packet.ack_request = by_reference || asks_acknowledgement(qp, now, turn);

    struct fragment fragments[OUTGOING_FRAGMENT_MAX];
    struct fragment_list payload = {fragments, OUTGOING_FRAGMENT_MAX, 0};
    if (!gather(qp, turn, packet.payload_length, &payload, by_reference)) {
        if (by_reference) {
            return send_packets(qp, now, turn, 1);
        }
        fail_locally(qp, turn->slot);
        return STEP_IDLE;
    }
    if (!qp_emit_request(qp, &packet, &payload)) {
        return STEP_FULL;
    }
    qp_sent_data(qp, now, packet.payload_length);
    passed(qp, now, turn, count, packet.ack_request);
    return STEP_SENT;
}

static enum step send_data(struct qp *qp, struct instant now, const struct turn *turn)
{
    return send_packets(qp, now, turn, span(qp, turn));
}

/* A READ chunk or an atomic: one packet that draws `count` packets of response. What was begun goes
 * on, one at a time where the application allows none any more. */
static enum step send_demand(struct qp *qp, struct instant now, const struct turn *turn)
{
    struct requester *requester = &qp->requester;
    struct send_slot *slot = turn->slot;
    if (!turn->again && requester->reads_out >= qp->attributes.max_reads_out &&
        requester->reads_out > 0) {
        return STEP_IDLE;
    }
    struct packet packet;
    struct fragment fragments[OUTGOING_FRAGMENT_MAX];
    struct fragment_list payload = {fragments, OUTGOING_FRAGMENT_MAX, 0};
    uint32_t count = 1;
    if (slot->kind == WORK_ATOMIC_WRITE) {
        if (request_describe_atomic_write(qp, slot, turn->position, &packet, &payload) !=
            MEMORY_GRANTED) {
            fail_locally(qp, slot);
            return STEP_IDLE;
        }
    } else if (slot->kind == WORK_READ) {
        count =
            turn->again ? repair_demand(qp, slot, turn->index) : demand_next(qp, slot, turn->index);
        request_describe_read(qp, slot, turn->index, turn->index + count, &packet);
    } else {
        request_describe_atomic(qp, slot, &packet);
    }
    if (!may_leave(qp, turn, count, demand_is_by_reference(slot))) {
        return STEP_IDLE;
    }
    if (!qp_emit_request(qp, &packet, &payload)) {
        return STEP_FULL;
    }
    requester->reads_out += !turn->again;
    passed(qp, now, turn, count, true);
    return STEP_SENT;
}

static enum step send(struct qp *qp, struct instant now, const struct turn *turn)
{
    return requester_awaits_response(turn->slot->kind) ? send_demand(qp, now, turn)
                                                       : send_data(qp, now, turn);
}

enum step requester_send_again(struct qp *qp, struct instant now, struct send_slot *slot,
                               uint64_t position, uint32_t index)
{
    struct turn turn = {.slot = slot, .position = position, .index = index, .again = true};
    return send(qp, now, &turn);
}

enum step requester_transmit(struct qp *qp, struct instant now)
{
    if (trouble_ends(qp) || !instant_is_never(qp->requester.rnr_resume)) {
        return STEP_IDLE;
    }
    if (repair_is_due(qp)) {
        return repair_transmit(qp, now);
    }
    if (direct_transmit(qp) == STEP_SENT) {
        return STEP_SENT;
    }
    struct send_slot *slot = requester_next(qp);
    if (slot == NULL) {
        return STEP_IDLE;
    }
    struct turn turn = {
        .slot = slot, .position = qp->requester.position, .index = qp->requester.packet};
    return send(qp, now, &turn);
}
