/* Invariant while repairing: the scoreboard spans exactly unacked .. frontier, and the cursor is
 * the frontier. */
#include "rnic/transport/repair.h"

#include "rnic/base/check.h"
#include "rnic/transport/completer.h"
#include "rnic/transport/demand.h"
#include "rnic/transport/notice.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"
#include "rnic/transport/rate.h"
#include "rnic/transport/request.h"

/* Of what reports can speak of; the rest is for what waits to be repeated. */
#define SPAN_SHARE (REPORT_SPAN / 4 * 3)
#define DRAWN_NS   UINT64_C(1000000)

bool repair_is_on(const struct qp *qp)
{
    return qp->selective != NULL && qp->selective->repairing;
}

bool repair_is_due(const struct qp *qp)
{
    return repair_is_on(qp) && qp->selective->board.lost_count > 0;
}

/* Enters what is under way of one request, from its packet `index` on. */
static void enter_slot(struct qp *qp, struct instant now, const struct send_slot *slot,
                       uint32_t index)
{
    struct scoreboard *board = &qp->selective->board;
    bool demand = requester_awaits_response(slot->kind);
    while (index < slot->packet_count && !psn_equal(board->end, qp->requester.frontier)) {
        uint32_t count = demand ? demand_rest(qp, slot, index) : 1;
        scoreboard_sent(board, now, board->end, count, demand);
        index += count;
    }
}

/* A demand for a response by reference takes more PSNs than a report can speak of. */
static bool await_references(const struct qp *qp)
{
    uint64_t tail = send_queue_tail(qp->sends);
    for (uint64_t position = send_queue_head(qp->sends); position != tail; position++) {
        const struct send_slot *slot = send_queue_slot(qp->sends, position);
        if (!slot->started && position >= qp->requester.position) {
            return false;
        }
        if (slot->started && slot->kind == WORK_READ && demand_grid(qp, slot) > REPORT_SPAN / 4) {
            return true;
        }
    }
    return false;
}

void repair_begin(struct qp *qp, struct instant now)
{
    struct requester *requester = &qp->requester;
    if (qp->selective == NULL || qp->selective->repairing ||
        !psn_equal(requester->cursor, requester->frontier) ||
        psn_distance(requester->unacked, requester->frontier) > (int32_t)REPORT_SPAN) {
        return;
    }
    if (await_references(qp)) {
        return;
    }
    struct scoreboard *board = &qp->selective->board;
    scoreboard_reset(board, requester->unacked, qp->retransmit.shortest_ns);
    /* What was repeated before, however much of it came in vain, counts as one sign. */
    board->duplicates = qp->selective->peer_duplicates;
    board->duplicates -= board->duplicates > 0;
    uint32_t index = requester->answered;
    for (uint64_t position = send_queue_head(qp->sends);
         !psn_equal(board->end, requester->frontier); position++) {
        const struct send_slot *slot = send_queue_slot(qp->sends, position);
        if (slot->started) {
            enter_slot(qp, now, slot, index);
            index = 0;
        }
    }
    scoreboard_entered(board);
    share_init(&qp->selective->share, now, qp_mtu(qp), qp->congestion.window,
               qp->environment->window_max, SPAN_SHARE << qp->mtu_shift);
    qp->selective->repair_position = send_queue_head(qp->sends);
    qp->selective->begun = requester->frontier;
    qp->selective->has_begun = !psn_equal(requester->unacked, requester->frontier);
    qp->selective->repairing = true;
    retransmit_probe_first(&qp->retransmit);
}

/* Something may have arrived that tells how long the way is. */
static void measure(struct qp *qp, struct instant now)
{
    struct scoreboard *board = &qp->selective->board;
    if (board->took_is_fresh) {
        board->took_is_fresh = false;
        if (qp->environment->is_vague) {
            return;
        }
        retransmit_sample(&qp->retransmit, board->took_ns);
        share_measured(&qp->selective->share, now, board->took_ns);
    }
}

static void delivered(struct qp *qp, struct instant now, uint32_t packets)
{
    struct selective *selective = qp->selective;
    uint32_t bytes = packets << qp->mtu_shift;
    uint32_t in_flight = scoreboard_in_flight(&selective->board) << qp->mtu_shift;
    bool busy = in_flight + bytes >= selective->share.window / 2;
    share_delivered(&selective->share, now, bytes, busy);
}

/* The youngest of them had left `waited_ns` ago. */
static void lost(struct qp *qp, struct instant now, uint32_t packets, uint64_t waited_ns)
{
    struct instant left = {now.ns > waited_ns ? now.ns - waited_ns : 0};
    share_lost(&qp->selective->share, now, packets << qp->mtu_shift, left);
    qp_schedule(qp);
}

static void look(struct qp *qp, struct instant now)
{
    struct selective *selective = qp->selective;
    struct scoreboard_losses losses =
        scoreboard_find_lost(&selective->board, now, qp->retransmit.shortest_ns);
    selective->look = losses.look;
    if (losses.count > 0) {
        lost(qp, now, losses.count, losses.waited_ns);
    }
    qp_set_deadline(qp, selective->look);
}

/* There were so many probes, some of which are known to have been in vain now. */
static void heed_probes(struct qp *qp, uint32_t before)
{
    retransmit_probed_in_vain(&qp->retransmit, before - qp->selective->board.probes);
}

/* Of what left before repairing began it is not known when. */
static void responded(struct qp *qp, struct instant now, struct psn psn)
{
    struct selective *selective = qp->selective;
    uint32_t probes = selective->board.probes;
    if (!selective->has_begun || !psn_before(psn, selective->begun)) {
        scoreboard_responded(&selective->board, now, psn);
        heed_probes(qp, probes);
    }
}

void repair_answered(struct qp *qp, struct instant now, uint32_t count)
{
    struct selective *selective = qp->selective;
    responded(qp, now, selective->board.first);
    early_forget(&selective->responses, &qp->environment->selective.early, selective->board.first,
                 count);
    uint32_t news = scoreboard_answered(&selective->board, now, count);
    selective->held_most = 0;
    selective->has_begun &= psn_before(selective->board.first, selective->begun);
    measure(qp, now);
    delivered(qp, now, news);
    look(qp, now);
}

/* After a timeout, that the peer has again what it had before is no progress: its responses may be
 * what never comes, and then the retry count is to end it. */
static bool gets_on(struct qp *qp)
{
    struct selective *selective = qp->selective;
    uint32_t held = selective->board.held_count;
    bool more = held > selective->held_most;
    selective->held_most = more ? held : selective->held_most;
    return more || qp->retransmit.expiries == 0;
}

void repair_receive_report(struct qp *qp, struct instant now, const struct report *report)
{
    struct requester *requester = &qp->requester;
    struct psn answered = psn_next(report->acknowledged);
    if (psn_before(report->expected, requester->unacked)) {
        return; /* overtaken by a later one */
    }
    if (psn_before(requester->unacked, answered) && !psn_before(requester->frontier, answered)) {
        (void)completer_answer_before(qp, now, answered);
    }
    if (qp_state_now(qp) == QP_ERROR) {
        return;
    }
    repair_begin(qp, now);
    if (!repair_is_on(qp)) {
        if (report->bitmap_length > 0) {
            completer_answer_gap(qp, now);
        }
        return;
    }
    struct scoreboard *board = &qp->selective->board;
    uint32_t probes = board->probes;
    uint32_t news = scoreboard_report(board, now, report);
    heed_probes(qp, probes);
    if (news > 0) {
        measure(qp, now);
        delivered(qp, now, news);
        if (gets_on(qp)) {
            requester_heard(qp, now, !psn_equal(requester->unacked, requester->frontier));
        }
        qp_schedule(qp);
    }
    look(qp, now);
    qp_set_deadline(qp, qp->retransmit.deadline);
}

/* An answer to the packet is a response to a READ or to an atomic, or waits behind one. */
static bool waits_for_response(const struct scoreboard *board, struct psn psn)
{
    bool waits = scoreboard_is_drawn(board, board->first);
    for (struct psn at = board->first; !waits && !psn_before(psn, at); at = psn_next(at)) {
        waits = scoreboard_is_demand(board, at);
    }
    return waits;
}

/* A probe that draws more than a packet is dear, and its answer may only be slow; so may any
 * response of a peer that was told to slow down: for as long as a packet takes at the least rate,
 * behind one of the peer's own requests. */
static uint64_t patience_ns(const struct qp *qp, struct instant now, struct psn psn)
{
    const struct scoreboard *board = &qp->selective->board;
    struct psn next = psn_next(psn);
    bool draws = !psn_equal(next, board->end) && scoreboard_is_drawn(board, next);
    if (notice_is_recent(qp, now) && (draws || waits_for_response(board, psn))) {
        return DRAWN_NS + 2 * (qp_mtu(qp) + PACKET_HEADER_MAX) * MILLISECOND_NS / RATE_FLOOR;
    }
    return draws ? DRAWN_NS : 0;
}

/* When `psn`, the last packet in doubt, is worth a probe; not after `now`: at once. NEVER: nothing
 * of what is under way has asked yet, and what will ask waits for the rate, or for the link. Where
 * one of them has only just let the packet go, silence before says nothing of it; one that left
 * late is waited for as long as if the wait had begun with it. */
static struct instant probe_time(const struct qp *qp, struct instant now, struct psn psn)
{
    const struct requester *requester = &qp->requester;
    int32_t under_way = psn_distance(requester->unacked, requester->frontier);
    if ((int32_t)requester->unrequested >= under_way) {
        return INSTANT_NEVER;
    }
    uint64_t out_ns = scoreboard_out_ns(&qp->selective->board, now, psn);
    uint64_t due_ns = retransmit_expected_ns(&qp->retransmit);
    bool is_late = instant_elapsed_ns(qp->retransmit.last_progress, now) > out_ns + due_ns;
    due_ns = is_late ? retransmit_probe_ns(&qp->retransmit) : due_ns;
    if (out_ns < due_ns) {
        return instant_after(now, due_ns - out_ns);
    }
    uint64_t patience = patience_ns(qp, now, psn);
    return patience > 0 ? instant_after(qp->retransmit.last_progress, patience) : now;
}

/* The peer lives, and whatever left so long ago that it has not told of is not under way, and what
 * is to leave again does not wait for its room in the window. What a probe has overtaken would tell
 * as much, but for a way that is shorter now than when it was measured: there whatever left again
 * may have come as an earlier copy. */
static void lose_old(struct qp *qp, struct instant now)
{
    struct scoreboard_losses losses =
        scoreboard_lose_old(&qp->selective->board, now, retransmit_expected_ns(&qp->retransmit));
    if (losses.count > 0) {
        lost(qp, now, losses.count, losses.waited_ns);
    }
}

/* The last packet in doubt tells most when it comes, but a peer that has no place for it drops it
 * in silence. So each other time it is the first, if that is worth a probe, too. */
static void prefer_first(struct qp *qp, struct instant now)
{
    struct scoreboard *board = &qp->selective->board;
    if (qp->retransmit.probed % 2 == 0 && !instant_before(now, probe_time(qp, now, board->first))) {
        scoreboard_mark_lost(board, board->first);
    }
}

bool repair_probe(struct qp *qp, struct instant now)
{
    if (!repair_is_on(qp) || !retransmit_probe(&qp->retransmit, now)) {
        return false;
    }
    struct scoreboard *board = &qp->selective->board;
    struct psn psn = board->first;
    bool found = scoreboard_last_in_doubt(board, &psn);
    struct instant time = found ? probe_time(qp, now, psn) : INSTANT_NEVER;
    if (!instant_before(now, time)) {
        prefer_first(qp, now);
    }
    if (board->lost_count > 0 || !instant_before(now, time)) {
        environment_count(qp->environment, COUNTER_PROBES);
        if (scoreboard_only_probe_came(board)) {
            lose_old(qp, now);
        }
        scoreboard_probe(board, psn);
        qp_schedule(qp);
    } else if (!instant_is_never(time)) {
        retransmit_put_off(&qp->retransmit, time);
    }
    qp_set_deadline(qp, qp->retransmit.deadline);
    return true;
}

void repair_silence(struct qp *qp, struct instant now)
{
    share_timed_out(&qp->selective->share, now);
    repair_all(qp);
}

void repair_all(struct qp *qp)
{
    scoreboard_lost_before(&qp->selective->board, qp->requester.frontier);
    qp->requester.unrequested = 0;
    qp_schedule(qp);
}

void repair_unready(struct qp *qp)
{
    struct selective *selective = qp->selective;
    struct psn kept = psn_next(qp->requester.unacked);
    scoreboard_lost_before(&selective->board, selective->has_begun ? selective->begun : kept);
    selective->has_begun = false; /* what is sent again is kept, too */
    qp_schedule(qp);
}

void repair_dropped(struct qp *qp, struct instant now)
{
    struct selective *selective = qp->selective;
    struct scoreboard *board = &selective->board;
    if (!selective->has_begun) {
        uint64_t out_ns = scoreboard_out_ns(board, now, board->first);
        if (!scoreboard_lose_first(board, now, qp->retransmit.shortest_ns)) {
            return; /* it is on its way again, or about to be */
        }
        lost(qp, now, 1, out_ns);
        lose_old(qp, now);
    }
    repair_unready(qp);
}

/* The request that `psn` belongs to, and where it stands. */
static struct send_slot *find_slot(struct qp *qp, struct psn psn)
{
    uint64_t head = send_queue_head(qp->sends);
    uint64_t *position = &qp->selective->repair_position;
    *position = *position < head ? head : *position;
    struct send_slot *slot = send_queue_slot(qp->sends, *position);
    if (!slot->started || psn_before(psn, slot->first_psn)) {
        *position = head;
        slot = send_queue_slot(qp->sends, head);
    }
    while (!slot->started || (uint32_t)psn_distance(slot->first_psn, psn) >= slot->packet_count) {
        (*position)++;
        CHECK(*position != send_queue_tail(qp->sends));
        slot = send_queue_slot(qp->sends, *position);
    }
    return slot;
}

enum step repair_transmit(struct qp *qp, struct instant now)
{
    struct psn psn;
    if (!repair_is_on(qp) || !scoreboard_first_lost(&qp->selective->board, &psn)) {
        return STEP_IDLE;
    }
    struct send_slot *slot = find_slot(qp, psn);
    if (slot->finished) {
        return STEP_IDLE; /* the end: it fails once all before it have completed */
    }
    uint32_t index = (uint32_t)psn_distance(slot->first_psn, psn);
    return requester_send_again(qp, now, slot, qp->selective->repair_position, index);
}

static uint64_t response_patience_ns(const struct qp *qp)
{
    return scoreboard_patience_ns(&qp->selective->board, qp->retransmit.shortest_ns);
}

/* A round trip as it is now, and a bit. */
static uint64_t response_due_ns(const struct qp *qp)
{
    const struct scoreboard *board = &qp->selective->board;
    uint64_t took_ns =
        board->took_ns > 0 ? board->took_ns : retransmit_round_trip_ns(&qp->retransmit);
    return took_ns + response_patience_ns(qp);
}

/* How much longer the first response may take than it has: it left so long ago as what came last
 * took, and a bit, or is about to leave again. */
static uint64_t response_rest_ns(const struct qp *qp, struct instant now)
{
    const struct scoreboard *board = &qp->selective->board;
    uint64_t due_ns = response_due_ns(qp);
    uint64_t out_ns = scoreboard_out_ns(board, now, board->first);
    if (scoreboard_is_lost(board, board->first)) {
        return due_ns;
    }
    return out_ns < due_ns ? due_ns - out_ns : 0;
}

static void wait_for_response(struct qp *qp, struct instant now, uint64_t wait_ns)
{
    struct selective *selective = qp->selective;
    selective->gap_psn = qp->requester.unacked;
    selective->gap_due = instant_after(now, wait_ns);
    qp_set_deadline(qp, selective->gap_due);
}

/* So many packets are newly known not to be under way. */
static void heard_of(struct qp *qp, struct instant now, uint32_t news)
{
    if (news > 0) {
        measure(qp, now);
        delivered(qp, now, news);
        qp_schedule(qp);
    }
    look(qp, now);
}

void repair_await_response(struct qp *qp, struct instant now, struct psn psn)
{
    struct selective *selective = qp->selective;
    if (!selective->acknowledged_beyond || psn_before(selective->acknowledged, psn)) {
        selective->acknowledged_beyond = true;
        selective->acknowledged = psn;
        heard_of(qp, now, scoreboard_acknowledged(&selective->board, now, psn));
    }
    if (instant_is_never(selective->gap_due) ||
        !psn_equal(selective->gap_psn, qp->requester.unacked)) {
        wait_for_response(qp, now, response_patience_ns(qp));
    }
}

/* False: it is not to be, or there is no room. */
static bool keep(struct qp *qp, const struct packet *packet)
{
    if (!repair_is_on(qp) || psn_equal(packet->psn, qp->requester.unacked) ||
        psn_distance(qp->requester.unacked, packet->psn) >= (int32_t)REPORT_SPAN ||
        !selective_is_tagged(qp, packet)) {
        return false;
    }
    if (!early_keep(&qp->selective->responses, &qp->environment->selective.early, packet)) {
        qp->selective->left_out = true;
        return false;
    }
    environment_count(qp->environment, COUNTER_EARLY_PACKETS);
    return true;
}

void repair_keep_refusal(struct qp *qp, const struct packet *packet)
{
    (void)keep(qp, packet);
}

void repair_keep_response(struct qp *qp, struct instant now, const struct packet *packet)
{
    if (!keep(qp, packet)) {
        return;
    }
    responded(qp, now, packet->psn);
    heard_of(qp, now, scoreboard_came(&qp->selective->board, now, packet->psn));
}

void repair_came_again(struct qp *qp, const struct packet *packet)
{
    bool is_response = packet->info->operation != OPERATION_ACKNOWLEDGE;
    if (is_response && repair_is_on(qp) && psn_before(packet->psn, qp->requester.unacked)) {
        uint32_t probes = qp->selective->board.probes;
        scoreboard_came_again(&qp->selective->board);
        heed_probes(qp, probes);
    }
}

static void take_due(struct qp *qp, struct instant now)
{
    struct early_stock *stock = &qp->environment->selective.early;
    while (qp->selective != NULL && early_has(&qp->selective->responses, qp->requester.unacked)) {
        struct early_packet *early =
            early_take(&qp->selective->responses, stock, qp->requester.unacked);
        completer_receive(qp, now, &early->packet);
        early_release(stock, early);
    }
}

static void answer_beyond(struct qp *qp, struct instant now)
{
    struct selective *selective = qp->selective;
    if (selective != NULL && selective->acknowledged_beyond &&
        completer_answer_before(qp, now, selective->acknowledged)) {
        selective->acknowledged_beyond = false;
    }
}

/* What is acknowledged may be all that the next response that is kept had to wait for. */
void repair_take_responses(struct qp *qp, struct instant now)
{
    do {
        take_due(qp, now);
        answer_beyond(qp, now);
    } while (qp->selective != NULL && early_has(&qp->selective->responses, qp->requester.unacked));
}

/* What the first response that is missing, and what others have overtaken as long after it was
 * demanded, come to: lost; where some found no place, whatever was demanded as long ago. */
static struct scoreboard_losses lose_responses(struct qp *qp, struct instant now)
{
    struct selective *selective = qp->selective;
    struct scoreboard *board = &selective->board;
    struct scoreboard_losses losses = {.count = 1,
                                       .waited_ns = scoreboard_out_ns(board, now, board->first)};
    uint32_t kept = selective->responses.count;
    uint64_t due_ns = response_due_ns(qp);
    bool all = selective->left_out;
    selective->left_out = false;
    scoreboard_mark_lost(board, board->first);
    for (struct psn psn = psn_next(board->first); (all || kept > 0) && psn_before(psn, board->end);
         psn = psn_next(psn)) {
        uint64_t out_ns = scoreboard_out_ns(board, now, psn);
        if (early_has(&selective->responses, psn)) {
            kept--;
        } else if (scoreboard_is_demand(board, psn) && !scoreboard_is_lost(board, psn) &&
                   out_ns >= due_ns) {
            scoreboard_mark_lost(board, psn);
            losses.count++;
            losses.waited_ns = out_ns < losses.waited_ns ? out_ns : losses.waited_ns;
        }
    }
    return losses;
}

uint32_t repair_demand(const struct qp *qp, const struct send_slot *slot, uint32_t index)
{
    const struct selective *selective = qp->selective;
    struct psn psn = psn_add(slot->first_psn, index);
    uint32_t count = demand_rest(qp, slot, index);
    uint32_t wanted = 1;
    bool some_came = false;
    for (uint32_t i = 1; i < count; i++) {
        struct psn at = psn_add(psn, i);
        some_came |= early_has(&selective->responses, at);
        wanted = scoreboard_is_lost(&selective->board, at) ? i + 1 : wanted;
    }
    return some_came ? wanted : count;
}

static void expire_gap(struct qp *qp, struct instant now)
{
    struct selective *selective = qp->selective;
    struct requester *requester = &qp->requester;
    bool missing = psn_equal(selective->gap_psn, requester->unacked) &&
                   !psn_equal(requester->unacked, requester->frontier);
    uint64_t rest_ns = response_rest_ns(qp, now);
    selective->gap_due = INSTANT_NEVER;
    if (!missing || rest_ns > 0) {
        if (missing || selective->responses.count > 0) {
            wait_for_response(qp, now, rest_ns > 0 ? rest_ns : response_patience_ns(qp));
        }
        return;
    }
    /* A peer that has failed is not asked for ever; then the timeout alone repeats. [IBA 9.9.2] */
    if (requester->gaps_answered > qp->attributes.retry_count) {
        return;
    }
    requester->gaps_answered++;
    struct scoreboard_losses losses = lose_responses(qp, now);
    lost(qp, now, losses.count, losses.waited_ns);
    wait_for_response(qp, now, response_due_ns(qp));
}

void repair_resume(struct qp *qp, struct instant now)
{
    const struct requester *requester = &qp->requester;
    if (repair_is_on(qp) && !psn_equal(requester->unacked, requester->frontier)) {
        requester_heard(qp, now, true);
        qp_set_deadline(qp, qp->retransmit.deadline);
    }
}

void repair_expire(struct qp *qp, struct instant now)
{
    struct selective *selective = qp->selective;
    if (!repair_is_on(qp)) {
        return;
    }
    if (!instant_before(now, selective->gap_due)) {
        expire_gap(qp, now);
    }
    qp_set_deadline(qp, selective->gap_due);
    if (!instant_before(now, selective->look)) {
        look(qp, now);
    }
    qp_set_deadline(qp, selective->look);
}
