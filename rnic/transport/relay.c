/* The target's part: a ring of requests, oldest first. The first `sent` of them are with the
 * process `owner`; what is for ourselves is executed when it comes to the head. */
#include "rnic/transport/relay.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/segment.h"

#define RELAY_DEPTH  32u
#define RETRY_NS     UINT64_C(8000000) /* doubled each time */
#define RETRY_SHIFTS 4u

struct held {
    struct packet packet; /* its payload lies behind */
    uint32_t psns;        /* that it takes */
    uint8_t payload[PACKET_PAYLOAD_MAX];
};

struct relay {
    uint64_t life;
    struct psn next;
    uint32_t head, count, sent;
    uint32_t owner;
    bool under_way;  /* the last request that was confirmed is not its message's last */
    bool is_missing; /* the request at `next` was lost, or found no room */
    bool was_asked;  /* for an acknowledgement of what is held */
    uint32_t tries;
    struct instant heard, retry;

    /* Repeated requests, and how many the deputy has answered; -1 and 0 where none waits. */
    uint32_t repeats, repeats_answered, repeat_owner;
    struct instant repeat_until;

    uint64_t owners[RELAY_PROCESSES / 64]; /* who has heard of this life */
    struct held ring[RELAY_DEPTH];
};

struct relay *relay_create(struct environment *environment)
{
    return environment->allocator->allocate(environment->allocator, sizeof(struct relay));
}

void relay_destroy(struct environment *environment, struct relay *relay)
{
    environment->allocator->release(environment->allocator, relay);
}

static struct held *held_at(struct relay *relay, uint32_t index)
{
    return &relay->ring[(relay->head + index) % RELAY_DEPTH];
}

static bool is_streamed(const struct packet *packet)
{
    return packet->info->operation == OPERATION_SEND || packet->info->operation == OPERATION_WRITE;
}

static bool leaves_open(const struct packet *packet)
{
    return is_streamed(packet) && !packet->info->last;
}

static void pop(struct relay *relay)
{
    relay->head = (relay->head + 1) % RELAY_DEPTH;
    relay->count--;
    relay->sent -= relay->sent > 0;
}

static void forget(struct relay *relay)
{
    relay->count = relay->sent = 0;
    relay->tries = 0;
    relay->is_missing = relay->was_asked = false;
}

static struct relay_message message_of(const struct qp *qp, enum relay_kind kind)
{
    return (struct relay_message){
        .kind = (uint8_t)kind,
        .target = qp->number,
        .life = qp_relay(qp)->life,
        .domain = qp->rare.xrc_domain,
    };
}

void relay_end(struct qp *qp, bool has_failed)
{
    struct relay *relay = qp_relay(qp);
    if (relay == NULL) {
        return;
    }
    struct relay_link *link = qp->environment->relay_link;
    struct relay_message message = message_of(qp, RELAY_END);
    message.has_failed = has_failed;
    for (uint32_t process = 0; process < RELAY_PROCESSES; process++) {
        if ((relay->owners[process / 64] >> process % 64 & 1) != 0) {
            (void)link->send(link, process, &message, NULL, 0); /* who is gone knows */
        }
    }
    memset(relay->owners, 0, sizeof relay->owners);
    forget(relay);
    relay->under_way = false;
    relay->repeats = relay->repeats_answered = 0;
    relay->life = ++qp->environment->relay_lives;
}

/* All requests of a message go where its first went: if they name another queue, that is for the
 * executor to refuse. */
static uint32_t owner_of(const struct qp *qp, const struct packet *packet)
{
    struct relay *relay = qp_relay(qp);
    struct relay_link *link = qp->environment->relay_link;
    if (relay->sent > 0 ? leaves_open(&held_at(relay, relay->sent - 1)->packet)
                        : relay->under_way) {
        return relay->owner;
    }
    return qp->responder.inbound != INBOUND_NONE ? RELAY_NOBODY
                                                 : link->owner(link, packet->xrc_srq);
}

static bool send_request(struct qp *qp, uint32_t owner, const struct packet *packet, bool is_repeat)
{
    struct relay *relay = qp_relay(qp);
    struct relay_link *link = qp->environment->relay_link;
    const struct qp_attributes *attributes = &qp->attributes;
    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX];
    uint32_t length = packet_build(packet, bytes), pad = packet_pad(packet->payload_length);
    struct relay_message message = message_of(qp, RELAY_REQUEST);
    message.is_repeat = is_repeat;
    message.path_mtu = (uint8_t)attributes->path_mtu;
    message.max_reads_in = attributes->max_reads_in;
    message.access = attributes->access;
    message.destination = attributes->destination;
    message.expected = qp->responder.expected;
    message.msn = qp->responder.msn;
    message.executed = qp->rare.executed;
    message.repeats = relay->repeats;
    message.path = attributes->path;
    if (packet->payload_length > 0) {
        memcpy(bytes + length, packet->payload, packet->payload_length);
    }
    length += packet->payload_length;
    memset(bytes + length, 0, pad);
    environment_count(qp->environment, COUNTER_RELAYED_REQUESTS);
    relay->owners[owner / 64] |= UINT64_C(1) << owner % 64;
    return link->send(link, owner, &message, bytes, length + pad);
}

static void start_timer(struct qp *qp)
{
    struct relay *relay = qp_relay(qp);
    uint32_t shift = relay->tries < RETRY_SHIFTS ? relay->tries : RETRY_SHIFTS;
    relay->retry = instant_after(qp->environment->now, RETRY_NS << shift);
    qp_set_deadline(qp, relay->retry);
}

/* The next that is not with its owner yet. False: it must wait. */
static bool hand_over(struct qp *qp, uint32_t owner, const struct packet *packet)
{
    struct relay *relay = qp_relay(qp);
    if (relay->sent > 0 && owner != relay->owner) {
        return false;
    }
    if (relay->sent == 0 && replay_pending(&qp->responder.reads->replay) != NULL) {
        return false; /* our own responses leave first */
    }
    if (!send_request(qp, owner, packet, false)) {
        responder_fail(qp, NAK_REMOTE_OPERATION, qp->responder.expected);
        return false;
    }
    if (relay->sent == 0) {
        relay->owner = owner;
        relay->heard = relay->tries == 0 ? qp->environment->now : relay->heard;
        start_timer(qp);
    }
    relay->sent++;
    return true;
}

/* The oldest, which is our own. False: it ended what is held, be it by its completion. */
static bool execute_first(struct qp *qp)
{
    struct relay *relay = qp_relay(qp);
    if (responder_take(qp, &held_at(relay, 0)->packet) != VERDICT_EXECUTED ||
        qp_state_now(qp) == QP_ERROR) {
        forget(relay);
        return false;
    }
    pop(relay);
    return true;
}

void relay_resume(struct qp *qp)
{
    struct relay *relay = qp_relay(qp);
    bool goes_on = true;
    while (goes_on && relay->sent < relay->count) {
        const struct packet *packet = &held_at(relay, relay->sent)->packet;
        uint32_t owner = owner_of(qp, packet);
        if (owner == RELAY_NOBODY) {
            goes_on = relay->sent == 0 && execute_first(qp);
        } else {
            goes_on = hand_over(qp, owner, packet);
        }
    }
    if (relay->count == 0 && relay->is_missing) {
        relay->is_missing = false;
        (void)acknowledge_out_of_sequence(&qp->responder.acknowledge);
    }
}

bool relay_takes(struct qp *qp, const struct packet *packet)
{
    struct relay *relay = qp_relay(qp);
    if (relay == NULL || (relay->count == 0 && owner_of(qp, packet) == RELAY_NOBODY)) {
        return false;
    }
    if (relay->count == RELAY_DEPTH) {
        relay->is_missing = true;
        return true;
    }
    struct psn psn = relay_next(qp);
    struct held *held = held_at(relay, relay->count);
    held->packet = *packet;
    held->psns = responder_psn_count(qp, packet);
    if (packet->payload_length > 0) {
        memcpy(held->payload, packet->payload, packet->payload_length);
    }
    held->packet.payload = held->payload;
    relay->count++;
    relay->next = psn_add(psn, held->psns);
    relay->is_missing = false;
    relay_resume(qp);
    return true;
}

bool relay_takes_again(struct qp *qp, const struct packet *packet)
{
    struct relay *relay = qp_relay(qp);
    if (relay == NULL) {
        return false;
    }
    bool is_held = psn_distance(qp->responder.expected, packet->psn) >= 0;
    struct relay_link *link = qp->environment->relay_link;
    uint32_t owner = link->owner(link, packet->xrc_srq);
    if (is_streamed(packet) || owner == RELAY_NOBODY) {
        relay->was_asked |= is_held;
        return is_held;
    }
    relay->repeats++;
    relay->repeat_owner = owner;
    relay->repeat_until = instant_after(qp->environment->now, RETRY_NS);
    qp_set_deadline(qp, relay->repeat_until);
    if (!send_request(qp, owner, packet, true) && is_held) { /* else it may be an echo */
        responder_fail(qp, NAK_REMOTE_OPERATION, qp->responder.expected);
    }
    return true;
}

bool relay_takes_gap(struct qp *qp)
{
    struct relay *relay = qp_relay(qp);
    if (relay == NULL || relay->count == 0) {
        return false;
    }
    relay->is_missing = true;
    return true;
}

struct psn relay_next(const struct qp *qp)
{
    const struct relay *relay = qp_relay(qp);
    return relay == NULL || relay->count == 0 ? qp->responder.expected : relay->next;
}

bool relay_holds_answers(const struct qp *qp)
{
    return qp_relay(qp)->repeats != qp_relay(qp)->repeats_answered;
}

/* Everything until `last`. */
static void confirm(struct qp *qp, struct psn last)
{
    struct relay *relay = qp_relay(qp);
    while (relay->sent > 0) {
        struct held *held = held_at(relay, 0);
        if (psn_distance(psn_add(held->packet.psn, held->psns - 1), last) < 0) {
            return;
        }
        responder_confirm(qp, &held->packet);
        relay->under_way = leaves_open(&held->packet);
        relay->tries = 0;
        pop(relay);
        start_timer(qp);
        if (relay->was_asked) {
            relay->was_asked = false;
            acknowledge_duplicate(&qp->responder.acknowledge);
        }
    }
}

/* The deputy's NAK of the oldest. */
static void refuse(struct qp *qp, const struct relay_message *message)
{
    struct relay *relay = qp_relay(qp);
    if (message->aeth_kind == AETH_RNR_NAK) {
        forget(relay);
        acknowledge_receiver_not_ready(&qp->responder.acknowledge);
    } else if (message->aeth_value == NAK_SEQUENCE) {
        relay->sent = 0; /* a message was lost on its way there: all again */
    } else {
        bool is_known = message->aeth_value <= NAK_REMOTE_OPERATION;
        responder_fail(qp, is_known ? (enum nak_code)message->aeth_value : NAK_REMOTE_OPERATION,
                       qp->responder.expected);
    }
}

void relay_answered(struct qp *qp, uint32_t from, const struct relay_message *message)
{
    struct relay *relay = qp_relay(qp);
    if (relay == NULL || message->life != relay->life) {
        return;
    }
    qp_schedule(qp);
    if (from == relay->repeat_owner && message->repeats == relay->repeats) {
        relay->repeats_answered = relay->repeats;
    }
    if (relay->sent == 0 || from != relay->owner) {
        return;
    }
    relay->heard = qp->environment->now;
    if (message->kind == RELAY_WAIT) {
        return;
    }
    bool is_nak = message->aeth_kind != AETH_ACK;
    struct psn psn = psn_make(message->psn.value);
    confirm(qp, is_nak ? psn_add(psn, PSN_MASK) : psn);
    if (is_nak && relay->sent > 0 && psn_equal(psn, held_at(relay, 0)->packet.psn)) {
        refuse(qp, message);
    }
    relay_resume(qp);
}

void relay_expire(struct qp *qp, struct instant now)
{
    struct relay *relay = qp_relay(qp);
    if (relay_holds_answers(qp)) {
        if (instant_before(now, relay->repeat_until)) {
            qp_set_deadline(qp, relay->repeat_until);
        } else {
            relay->repeats_answered = relay->repeats; /* lost; the peer will ask once more */
            qp_schedule(qp);
        }
    }
    if (relay->sent == 0) {
        return;
    }
    if (instant_before(now, relay->retry)) {
        qp_set_deadline(qp, relay->retry);
    } else if (instant_elapsed_ns(relay->heard, now) >= RELAY_PATIENCE_NS) {
        responder_fail(qp, NAK_REMOTE_OPERATION, qp->responder.expected);
    } else {
        relay->tries++;
        relay->sent = 0;
        relay_resume(qp);
    }
}
