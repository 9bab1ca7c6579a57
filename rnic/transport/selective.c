/* The stock of agreed queue pairs' state is a free list behind a mark that rises, like that of
 * early packets. */
#include "rnic/transport/selective.h"

#include <string.h>

#include "rnic/transport/answer.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/qp_state.h"
#include "rnic/transport/reference.h"
#include "rnic/transport/repair.h"

#define REASONS_MAX (32768u * SELECTIVE_SMALL_REASONS)
#define BEHIND_MAX  65536 /* packets of the peer's that may be unanswered */

enum status selective_stock_init(struct selective_stock *stock, struct allocator *allocator,
                                 uint32_t queue_pairs, uint32_t packets,
                                 const struct siphash_key *key)
{
    *stock = (struct selective_stock){.capacity = queue_pairs, .tags = secret_init(key)};
    if (queue_pairs == 0) {
        return STATUS_OK;
    }
    stock->all = allocator->allocate(allocator, queue_pairs * sizeof *stock->all);
    return stock->all == NULL ? STATUS_NO_MEMORY
                              : early_stock_init(&stock->early, allocator, packets);
}

void selective_stock_fini(struct selective_stock *stock, struct allocator *allocator)
{
    early_stock_fini(&stock->early, allocator);
    allocator->release(allocator, stock->all);
    stock->all = NULL;
}

static bool has_room(const struct selective_stock *stock)
{
    return stock->first_free != NULL || stock->touched < stock->capacity;
}

static struct selective *stock_take(struct selective_stock *stock)
{
    struct selective *selective = stock->first_free;
    if (selective != NULL) {
        stock->first_free = selective->next_free;
    } else if (stock->touched < stock->capacity) {
        selective = &stock->all[stock->touched++];
    } else {
        return NULL;
    }
    memset(selective, 0, sizeof *selective);
    return selective;
}

static bool is_spoken(const struct qp *qp)
{
    return qp->environment->selective.capacity > 0 && qp->service == SERVICE_RC &&
           qp_state_receives(qp_state_now(qp));
}

/* A link that takes references loses nothing. But it may have become one since the other end
 * agreed, and then what that end reports is the only answer that it gives. */
static bool is_wanted(const struct qp *qp)
{
    return is_spoken(qp) && !reference_is_possible(qp);
}

/* Who has no room for what he asks for does not ask: the peer would take it as agreed. */
static void want(struct qp *qp, uint32_t small_reasons)
{
    struct agreement *agreement = &qp->agreement;
    bool may_agree = qp->selective != NULL || has_room(&qp->environment->selective);
    if (!is_wanted(qp) || !may_agree || agreement->owes || agreement->reasons >= REASONS_MAX) {
        return;
    }
    uint32_t before = agreement->reasons / SELECTIVE_SMALL_REASONS;
    agreement->reasons += small_reasons;
    uint32_t reasons = agreement->reasons / SELECTIVE_SMALL_REASONS;
    if (reasons != before && (reasons & (reasons - 1)) == 0) {
        agreement->owes = agreement->asks = true;
        qp_schedule(qp);
    }
}

void selective_want(struct qp *qp)
{
    want(qp, SELECTIVE_SMALL_REASONS);
}

bool selective_leads(struct qp *qp, uint32_t length)
{
    const struct selective_stock *stock = &qp->environment->selective;
    if (length == 0 || length > REPORT_LENGTH + REPORT_BITMAP_MAX) {
        return false;
    }
    if (qp->selective == NULL && stock->touched < stock->capacity / 2) {
        want(qp, 1); /* the other half is for those with losses */
    }
    return qp->selective != NULL;
}

void selective_end(struct qp *qp)
{
    struct selective_stock *stock = &qp->environment->selective;
    struct selective *selective = qp->selective;
    qp->agreement = (struct agreement){.owes = false};
    if (selective != NULL) {
        early_forget(&selective->requests, &stock->early, (struct psn){0}, REPORT_SPAN);
        early_forget(&selective->responses, &stock->early, (struct psn){0}, REPORT_SPAN);
        qp->selective = NULL;
        selective->next_free = stock->first_free;
        stock->first_free = selective;
    }
}

/* Only the peer knows the PSNs: of what it expects from us, and of its own that we expect. An end
 * that is only ready to receive has none of its own, and expects what it can. */
static bool is_of_peer(const struct qp *qp, const struct report *report)
{
    const struct requester *requester = &qp->requester;
    bool we_send = qp_state_sends(qp_state_now(qp));
    int32_t behind = psn_distance(report->unacked, qp->responder.expected);
    if (!qpn_equal(report->source, qp->attributes.destination) ||
        (report->only_receives ? !we_send : behind < 0 || behind >= BEHIND_MAX)) {
        return false;
    }
    int32_t ahead = psn_distance(requester->unacked, report->expected);
    return !we_send ||
           (ahead > -BEHIND_MAX && ahead <= psn_distance(requester->unacked, requester->frontier));
}

void selective_receive(struct qp *qp, struct instant now, const struct report *report)
{
    struct selective_stock *stock = &qp->environment->selective;
    if (!is_spoken(qp) || !is_of_peer(qp, report)) {
        environment_refuse(qp->environment, REFUSED_PSN);
        return;
    }
    environment_count(qp->environment, COUNTER_REPORTS_RECEIVED);
    if (qp->selective == NULL && is_wanted(qp) && (qp->selective = stock_take(stock)) != NULL) {
        qp->selective->look = qp->selective->gap_due = INSTANT_NEVER;
    }
    if (qp->selective != NULL) {
        qp->selective->peer_tag = report->tag;
        qp->selective->peer_duplicates = report->duplicates;
    }
    if (report->asks && qp->selective != NULL) {
        qp->agreement.owes = true;
        qp_schedule(qp);
    }
    qp->agreement.asks = false;
    if (qp_state_sends(qp_state_now(qp))) {
        repair_receive_report(qp, now, report);
    }
}

static uint16_t own_tag(struct qp *qp)
{
    if (qp->agreement.tag == 0) {
        struct secret *tags = &qp->environment->selective.tags;
        qp->agreement.tag = (uint16_t)(1 + secret_below(tags, PACKET_TAG_MAX));
    }
    return qp->agreement.tag;
}

static bool emit(struct qp *qp, uint32_t length)
{
    struct environment *environment = qp->environment;
    struct selective *selective = qp->selective;
    uint8_t header[REPORT_LENGTH], bitmap[REPORT_BITMAP_MAX];
    struct report report = {
        .destination = qp->attributes.destination,
        .source = qp->number,
        .acknowledged = answer_acknowledges(qp),
        .expected = qp->responder.expected,
        .unacked = qp->requester.unacked,
        .only_receives = !qp_state_sends(qp_state_now(qp)),
        .asks = qp->agreement.asks,
        .duplicates = selective != NULL ? selective->duplicates : 0,
        .tag = own_tag(qp),
    };
    if (selective != NULL) {
        report.bitmap_length = early_describe(&selective->requests, report.expected, bitmap);
        if (length > REPORT_LENGTH + report.bitmap_length) {
            report.bitmap_length = length - REPORT_LENGTH; /* of nothing more that is held */
        }
    }
    report_build(&report, header);
    struct fragment fragment = {bitmap, report.bitmap_length};
    struct outgoing outgoing = {
        .path = &qp->attributes.path,
        .header = header,
        .header_length = sizeof header,
        .fragments = &fragment,
        .fragment_count = report.bitmap_length > 0,
        .payload_length = report.bitmap_length,
    };
    if (!environment->sink->emit(environment->sink, &outgoing)) {
        environment_count(environment, COUNTER_SINK_FULL);
        return false;
    }
    environment_count(environment, COUNTER_PACKETS_SENT);
    environment_count(environment, COUNTER_REPORTS_SENT);
    if (selective != NULL) {
        selective->duplicates_untold = false;
    }
    qp->agreement.owes = false;
    return true;
}

enum step selective_transmit(struct qp *qp)
{
    return emit(qp, 0) ? STEP_SENT : STEP_FULL;
}

bool selective_acknowledge(struct qp *qp, uint32_t length)
{
    return emit(qp, length);
}

bool selective_has_news(const struct qp *qp)
{
    const struct selective *selective = qp->selective;
    return selective != NULL && (selective->requests.count > 0 || selective->duplicates_untold);
}

/* Its sender has heard of us, whatever we have heard of it, and takes us to keep what is early. */
static bool has_tag(const struct qp *qp, const struct packet *packet)
{
    return qp->agreement.tag != 0 && packet->tag == qp->agreement.tag;
}

bool selective_is_tagged(struct qp *qp, const struct packet *packet)
{
    if (!has_tag(qp, packet)) {
        environment_refuse(qp->environment, REFUSED_PSN);
        return false;
    }
    qp->selective->peer_tags = true;
    return true;
}

/* False: a NAK is due. */
static bool keep_request(struct qp *qp, const struct packet *packet, int32_t ahead)
{
    struct selective *selective = qp->selective;
    if (selective == NULL) {
        if (!qp->responder.acknowledge.demanded) {
            selective_want(qp); /* else it is no news */
        }
        return false;
    }
    if (!selective_is_tagged(qp, packet)) {
        return selective->peer_tags; /* until then it may be the peer's, and a report tells it */
    }
    if (ahead >= (int32_t)REPORT_SPAN) {
        return false;
    }
    struct acknowledge *acknowledge = &qp->responder.acknowledge;
    bool goes_on = selective->requests.count > 0 && psn_equal(packet->psn, selective->behind_early);
    if (early_has(&selective->requests, packet->psn)) {
        selective_count_duplicate(qp);
        acknowledge_duplicate(acknowledge);
        return true;
    }
    if (!early_keep(&selective->requests, &qp->environment->selective.early, packet)) {
        return false;
    }
    environment_count(qp->environment, COUNTER_EARLY_PACKETS);
    acknowledge_kept(acknowledge, !goes_on || packet->ack_request);
    selective->behind_early = psn_next(packet->psn);
    return true;
}

void selective_receive_early(struct qp *qp, const struct packet *packet, int32_t ahead)
{
    struct acknowledge *acknowledge = &qp->responder.acknowledge;
    if (keep_request(qp, packet, ahead)) {
        return;
    }
    if (has_tag(qp, packet)) {
        acknowledge_left_out(acknowledge, packet->psn);
    }
    (void)acknowledge_out_of_sequence(acknowledge);
}

void selective_count_duplicate(struct qp *qp)
{
    if (qp->selective != NULL) {
        qp->selective->duplicates++;
        qp->selective->duplicates_untold = true;
    }
}

/* A READ takes more PSNs than its own: nothing can have come under the others. */
static void skip(struct qp *qp, struct psn taken)
{
    int32_t count = psn_distance(taken, qp->responder.expected) - 1;
    if (count > 0) {
        early_forget(&qp->selective->requests, &qp->environment->selective.early, psn_next(taken),
                     (uint32_t)count);
    }
}

void selective_take_requests(struct qp *qp, const struct packet *executed)
{
    struct early_stock *stock = &qp->environment->selective.early;
    struct early_packet *early;
    struct psn taken = executed->psn;
    if (qp->selective == NULL) {
        return;
    }
    qp->selective->peer_tags |= has_tag(qp, executed);
    if (qp->selective->requests.count == 0) {
        return;
    }
    acknowledge_duplicate(&qp->responder.acknowledge); /* the peer waits to hear of it */
    skip(qp, taken);
    while ((early = early_take(&qp->selective->requests, stock, qp->responder.expected)) != NULL) {
        taken = early->packet.psn;
        enum verdict verdict = responder_take(qp, &early->packet);
        early_release(stock, early);
        if (verdict != VERDICT_EXECUTED || qp->selective == NULL) {
            return;
        }
        acknowledge_duplicate(&qp->responder.acknowledge);
        skip(qp, taken);
    }
}
