/* Checks in the order of the specification, one function each, then execution per operation. A
 * check returns a verdict and changes nothing; only check_shared_queue notes a target's queue, and
 * check_resources takes a receive, which stays taken until a message has used it. */
#include "rnic/transport/responder.h"

#include <string.h>

#include "rnic/memory/window.h"
#include "rnic/transport/answer.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/segment.h"
#include "rnic/transport/watch.h"

#define MSN_MASK 0xffffffu

void responder_reset(struct qp *qp, struct psn expected)
{
    struct responder *responder = &qp->responder;
    cursors_forget(&qp->environment->cursors, qp);
    relay_end(qp, false);
    responder_abandon(qp);
    tag_forget(qp);
    struct reads *reads = responder->reads;
    *responder = (struct responder){.expected = expected, .reads = reads, .domain = qp->domain};
    replay_reset(&reads->replay, qp->attributes.max_reads_in);
    pace_reset(&reads->pace);
    acknowledge_reset(&responder->acknowledge);
    if (qp->is_target) {
        qp->rare.executed = 0;
    }
}

static enum verdict check_sequence(const struct qp *qp, const struct packet *packet)
{
    static const enum operation continued[] = {
        [INBOUND_NONE] = OPERATION_NONE,
        [INBOUND_SEND] = OPERATION_SEND,
        [INBOUND_WRITE] = OPERATION_WRITE,
    };
    const struct opcode_info *info = packet->info;
    if (qp->responder.inbound == INBOUND_NONE) {
        return info->first ? VERDICT_EXECUTED : VERDICT_INVALID;
    }
    return !info->first && info->operation == continued[qp->responder.inbound] ? VERDICT_EXECUTED
                                                                               : VERDICT_INVALID;
}

/* All packets of a message name the same shared receive queue, one of the target's XRC domain. It
 * stands for the protection domain too, so requests without a receive name one as well.
 * [IBA annex A14] */
static enum verdict check_shared_queue(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    if (!qp->is_target) {
        return VERDICT_EXECUTED;
    }
    const struct xrc_queue *queue = xrc_find(qp->environment, qp->rare.xrc_domain, packet->xrc_srq);
    if (queue == NULL ||
        (responder->inbound != INBOUND_NONE && packet->xrc_srq != qp->rare.xrc_srq)) {
        return VERDICT_INVALID;
    }
    qp->rare.xrc_srq = queue->number;
    responder->domain = queue->memory_domain;
    return VERDICT_EXECUTED;
}

/* Rights of the queue pair, not of a key. */
static enum verdict check_rights(const struct qp *qp, const struct packet *packet)
{
    unsigned needed = 0;
    switch (packet->info->operation) {
    case OPERATION_WRITE:
    case OPERATION_ATOMIC_WRITE:
        needed = ACCESS_REMOTE_WRITE;
        break;
    case OPERATION_READ_REQUEST:
        needed = ACCESS_REMOTE_READ;
        break;
    case OPERATION_COMPARE_SWAP:
    case OPERATION_FETCH_ADD:
        needed = ACCESS_REMOTE_ATOMIC;
        break;
    default:
        break;
    }
    unsigned missing = needed & ~qp->attributes.access;
    if (missing == 0) {
        return VERDICT_EXECUTED;
    }
    watch_refused(qp, NULL, MEMORY_NO_RIGHT, missing);
    return VERDICT_INVALID;
}

/* A receive must be there when a SEND begins and when an immediate arrives. */
static enum verdict check_resources(struct qp *qp, const struct packet *packet)
{
    const struct opcode_info *info = packet->info;
    bool needs_receive = (info->operation == OPERATION_SEND && info->first) ||
                         (info->operation == OPERATION_WRITE && info->has_immediate);
    bool sorts = qp->matches_tags && info->operation == OPERATION_SEND;
    if (!needs_receive || (sorts ? tag_begin(qp, packet) : responder_take_receive(qp))) {
        return VERDICT_EXECUTED;
    }
    watch_not_ready(qp);
    return VERDICT_NOT_READY;
}

/* All packets but the last are full; a last one that is not the only one holds something. */
static enum verdict check_length(const struct qp *qp, const struct packet *packet)
{
    const struct opcode_info *info = packet->info;
    uint32_t mtu = qp_mtu(qp);
    if (!info->has_payload) {
        return packet->dma_length <= MESSAGE_LENGTH_MAX ? VERDICT_EXECUTED : VERDICT_UNFIT;
    }
    bool full = packet->reader == NULL ? packet->payload_length == mtu
                                       : (packet->payload_length & (mtu - 1)) == 0;
    if ((packet->payload_length > mtu && packet->reader == NULL) || (!info->last && !full) ||
        (!info->first && packet->payload_length == 0)) {
        return info->operation == OPERATION_SEND ? VERDICT_LENGTH : VERDICT_UNFIT;
    }
    return VERDICT_EXECUTED;
}

static bool grants(const struct qp *qp, const struct memory_request *request, uint8_t **ret_bytes)
{
    enum memory_verdict verdict = memory_check(qp->environment->memory, request, ret_bytes);
    if (verdict != MEMORY_GRANTED) {
        watch_refused(qp, request, verdict, request->rights);
    }
    return verdict == MEMORY_GRANTED;
}

static struct memory_request request_of(const struct qp *qp, struct memory_key key,
                                        uint64_t address, uint64_t length, unsigned rights)
{
    return (struct memory_request){
        .domain = qp->responder.domain,
        .key = key,
        .address = address,
        .length = length,
        .rights = rights,
        .qpn = qp->number,
    };
}

bool responder_grants(const struct qp *qp, struct memory_key key, uint64_t address, uint64_t length,
                      unsigned rights, uint8_t **ret_bytes)
{
    struct memory_request request = request_of(qp, key, address, length, rights);
    return grants(qp, &request, ret_bytes);
}

/* Bytes of the WRITE under way are put there now, however many. */
static bool may_put(const struct qp *qp, uint64_t address, uint32_t length, uint8_t **ret_bytes)
{
    struct memory_key key = qp->responder.key;
    struct memory_request request = request_of(qp, key, address, length, ACCESS_REMOTE_WRITE);
    request.is_touched = true;
    return grants(qp, &request, ret_bytes);
}

static void finish_message(struct responder *responder)
{
    responder->inbound = INBOUND_NONE;
    responder->done = 0;
    responder->msn = (responder->msn + 1) & MSN_MASK;
}

static enum verdict execute_send(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    struct scatter *place = responder_place(qp);
    const uint8_t *payload;
    uint32_t length;
    tag_strip(qp, packet, &payload, &length);
    if (length > MESSAGE_LENGTH_MAX - responder->done || length > scatter_left(place)) {
        watch_too_long(qp, (uint64_t)responder->done + length,
                       responder->done + scatter_left(place));
        return VERDICT_LENGTH; /* [IBA 9.7.4.1.6] */
    }
    if (packet->reader != NULL) {
        if (scatter_read_in(place, packet->reader, length) != MEMORY_GRANTED) {
            return VERDICT_UNREADABLE;
        }
    } else if (length > 0 && scatter_copy_in(place, payload, length) != MEMORY_GRANTED) {
        return VERDICT_OPERATION;
    }
    responder->done += length;
    responder->inbound = INBOUND_SEND;
    tag_executed(qp, packet);
    if (packet->info->last) {
        if (packet->info->has_invalidate &&
            window_invalidate(qp->environment->memory, responder->domain, qp->number,
                              packet->invalidate) != STATUS_OK) {
            return VERDICT_ACCESS;
        }
        responder_complete_receive(qp, COMPLETION_SUCCESS, packet);
        finish_message(responder);
    }
    return VERDICT_EXECUTED;
}

static enum verdict begin_write(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    uint8_t *bytes;
    if (packet->dma_length > MESSAGE_LENGTH_MAX) {
        return VERDICT_UNFIT;
    }
    if (!responder_grants(qp, packet->remote_key, packet->remote_address, packet->dma_length,
                          ACCESS_REMOTE_WRITE, &bytes)) {
        return VERDICT_ACCESS;
    }
    responder->address = packet->remote_address;
    responder->length = packet->dma_length;
    responder->key = packet->remote_key;
    responder->inbound = INBOUND_WRITE;
    watch_write_begins(qp, bytes, packet->dma_length);
    return VERDICT_EXECUTED;
}

/* Whoever watches has held the bytes back until now, when the key may have changed its meaning.
 * False: not granted. */
static bool find_place(const struct qp *qp, uint8_t **ret_place)
{
    const struct responder *responder = &qp->responder;
    *ret_place = NULL;
    return qp->environment->watcher == NULL ||
           may_put(qp, responder->address - responder->length, responder->length, ret_place);
}

void responder_abandon(struct qp *qp)
{
    if (qp->responder.inbound == INBOUND_WRITE) {
        watch_write_ends(qp, NULL);
    }
    qp->responder.inbound = INBOUND_NONE;
    qp->responder.done = 0;
}

/* What a WRITE brings, to where its key leads. False: by reference, and not to be read. */
static bool put(const struct qp *qp, const struct packet *packet, uint8_t *bytes)
{
    if (packet->reader != NULL) {
        struct payload_place place = {bytes, packet->payload_length};
        return packet->reader->read(packet->reader, 0, &place, 1);
    }
    if (!watch_write_data(qp, qp->responder.done, packet->payload, packet->payload_length)) {
        memcpy(bytes, packet->payload, packet->payload_length);
    }
    return true;
}

static enum verdict execute_write(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    uint32_t length = packet->payload_length;
    if (packet->info->first) {
        enum verdict verdict = begin_write(qp, packet);
        if (verdict != VERDICT_EXECUTED) {
            return verdict;
        }
    }
    uint32_t left = responder_write_left(responder);
    if (packet->info->last ? length != left : length >= left) {
        return VERDICT_UNFIT;
    }
    if (length > 0) {
        uint8_t *bytes;
        if (!may_put(qp, responder->address, length, &bytes)) {
            return VERDICT_ACCESS;
        }
        if (!put(qp, packet, bytes)) {
            responder->inbound = packet->info->first ? INBOUND_NONE : INBOUND_WRITE;
            return VERDICT_UNREADABLE;
        }
    }
    responder->address += length;
    responder->done += length;
    if (packet->info->last) {
        uint8_t *place;
        if (!find_place(qp, &place)) {
            return VERDICT_ACCESS;
        }
        watch_write_ends(qp, place);
        if (packet->info->has_immediate) {
            responder_complete_receive(qp, COMPLETION_SUCCESS, packet);
        }
        finish_message(responder);
    }
    return VERDICT_EXECUTED;
}

/* The message is done, and `packets` of response are owed for it. */
static void owe_response(struct responder *responder, struct replay_entry *entry,
                         const struct packet *packet, uint32_t packets)
{
    finish_message(responder);
    entry->first_psn = packet->psn;
    entry->packet_count = packets;
    entry->end = packets;
    entry->msn = responder->msn;
}

static enum verdict execute_read(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    struct replay_entry *entry = replay_add(&responder->reads->replay);
    uint8_t *bytes;
    if (entry == NULL) {
        return VERDICT_UNFIT;
    }
    if (!responder_grants(qp, packet->remote_key, packet->remote_address, packet->dma_length,
                          ACCESS_REMOTE_READ, &bytes)) {
        return VERDICT_ACCESS;
    }
    owe_response(responder, entry, packet, segment_packet_count(packet->dma_length, qp->mtu_shift));
    entry->address = packet->remote_address;
    entry->key = packet->remote_key;
    entry->domain = responder->domain;
    entry->length = packet->dma_length;
    return VERDICT_EXECUTED;
}

typedef uint64_t __attribute__((may_alias)) shared_word;

/* [IBA 9.4.5] Atomic with respect to everything that this device does, for the engine's lock is
 * held, and to WRITEs that peers do by themselves (direct.h): a lock is given back by one of those
 * while others try to take it. Memory need not be aligned as its address for peers is; then such
 * WRITEs are not whole either. */
static uint64_t execute_in_memory(const struct packet *packet, uint8_t *bytes)
{
    shared_word *word = (shared_word *)(void *)bytes;
    uint64_t original = packet->compare;
    if ((uintptr_t)bytes % sizeof original != 0) {
        memcpy(&original, bytes, sizeof original);
        bool adds = packet->info->operation == OPERATION_FETCH_ADD;
        uint64_t result = adds                          ? original + packet->swap_or_add
                          : original == packet->compare ? packet->swap_or_add
                                                        : original;
        memcpy(bytes, &result, sizeof result);
    } else if (packet->info->operation == OPERATION_FETCH_ADD) {
        original = __atomic_fetch_add(word, packet->swap_or_add, __ATOMIC_SEQ_CST);
    } else {
        (void)__atomic_compare_exchange_n(word, &original, packet->swap_or_add, false,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    return original;
}

static enum verdict execute_atomic(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    struct replay_entry *entry = replay_add(&responder->reads->replay);
    uint8_t *bytes;
    if (entry == NULL || packet->remote_address % sizeof(uint64_t) != 0) {
        return VERDICT_UNFIT;
    }
    if (!responder_grants(qp, packet->remote_key, packet->remote_address, sizeof(uint64_t),
                          ACCESS_REMOTE_ATOMIC, &bytes)) {
        return VERDICT_ACCESS;
    }
    owe_response(responder, entry, packet, 1);
    entry->is_atomic = true;
    entry->original = execute_in_memory(packet, bytes);
    return VERDICT_EXECUTED;
}

/* [IBA annex A19] Eight bytes at once, answered by a READ response of length 0 and, like an atomic,
 * never executed twice. */
static enum verdict execute_atomic_write(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    struct replay_entry *entry = replay_add(&responder->reads->replay);
    uint64_t value;
    uint8_t *bytes;
    if (entry == NULL || packet->remote_address % sizeof value != 0 ||
        packet->dma_length != sizeof value || packet->payload_length != sizeof value) {
        return VERDICT_UNFIT;
    }
    if (!responder_grants(qp, packet->remote_key, packet->remote_address, sizeof value,
                          ACCESS_REMOTE_WRITE, &bytes)) {
        return VERDICT_ACCESS;
    }
    memcpy(&value, packet->payload, sizeof value);
    memcpy(bytes, &value, sizeof value); /* one store, where memory is aligned as its address is */
    owe_response(responder, entry, packet, 1);
    entry->is_atomic = true;
    entry->is_write = true;
    return VERDICT_EXECUTED;
}

static enum verdict execute(struct qp *qp, const struct packet *packet)
{
    switch (packet->info->operation) {
    case OPERATION_SEND:
        return execute_send(qp, packet);
    case OPERATION_WRITE:
        return execute_write(qp, packet);
    case OPERATION_READ_REQUEST:
        return execute_read(qp, packet);
    case OPERATION_COMPARE_SWAP:
    case OPERATION_FETCH_ADD:
        return execute_atomic(qp, packet);
    case OPERATION_ATOMIC_WRITE:
        return execute_atomic_write(qp, packet);
    default:
        return VERDICT_INVALID;
    }
}

enum verdict responder_execute(struct qp *qp, const struct packet *packet)
{
    enum verdict verdict = check_sequence(qp, packet);
    if (verdict == VERDICT_EXECUTED) {
        verdict = check_shared_queue(qp, packet);
    }
    if (verdict == VERDICT_EXECUTED) {
        verdict = check_rights(qp, packet);
    }
    if (verdict == VERDICT_EXECUTED) {
        verdict = check_resources(qp, packet);
    }
    if (verdict == VERDICT_EXECUTED) {
        verdict = check_length(qp, packet);
    }
    return verdict == VERDICT_EXECUTED ? execute(qp, packet) : verdict;
}

uint32_t responder_psn_count(const struct qp *qp, const struct packet *packet)
{
    if (packet->info->operation == OPERATION_READ_REQUEST) {
        return segment_packet_count(packet->dma_length, qp->mtu_shift);
    }
    return packet->reader == NULL ? 1 : segment_packet_count(packet->payload_length, qp->mtu_shift);
}

static void accept(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    uint32_t psns = responder_psn_count(qp, packet);
    responder_advance(responder, psns);
    if (qp->is_target) {
        qp->rare.executed += psns;
    }
    qp->environment->counters.values[COUNTER_REFERENCES_READ] += packet->reader != NULL;
    if (packet->info->operation == OPERATION_SEND || packet->info->operation == OPERATION_WRITE) {
        acknowledge_executed(&responder->acknowledge, packet->ack_request, packet->info->last);
    } else {
        acknowledge_executed_with_response(&responder->acknowledge);
    }
}

void responder_confirm(struct qp *qp, const struct packet *packet)
{
    if (packet->info->last) {
        qp->responder.msn = (qp->responder.msn + 1) & MSN_MASK;
    }
    accept(qp, packet);
}

void responder_executed_short(struct qp *qp, bool ack_request)
{
    struct responder *responder = &qp->responder;
    finish_message(responder);
    responder_advance(responder, 1);
    acknowledge_executed(&responder->acknowledge, ack_request, true);
}

static void fail(struct qp *qp, enum nak_code code, struct psn psn)
{
    acknowledge_fail(&qp->responder.acknowledge, code, psn);
    qp_enter_error(qp);
    qp_schedule(qp);
}

void responder_fail(struct qp *qp, enum nak_code code, struct psn psn)
{
    if (code == NAK_INVALID_REQUEST) {
        qp_raise(qp, EVENT_QP_REQUEST_ERROR);
    } else if (code == NAK_REMOTE_ACCESS) {
        qp_raise(qp, EVENT_QP_ACCESS_ERROR);
    }
    fail(qp, code, psn);
}

/* What the responder itself hears of it: where a receive was in use, that one's completion tells,
 * else an event. [IBA 9.9.3, 11.6.3.3] */
static void refuse(struct qp *qp, enum verdict verdict, struct psn psn)
{
    switch (verdict) {
    case VERDICT_LENGTH:
        responder_complete_receive(qp, COMPLETION_LOCAL_LENGTH_ERROR, NULL);
        fail(qp, NAK_INVALID_REQUEST, psn);
        break;
    case VERDICT_OPERATION:
        responder_complete_receive(qp, COMPLETION_LOCAL_PROTECTION_ERROR, NULL);
        fail(qp, NAK_REMOTE_OPERATION, psn);
        break;
    case VERDICT_UNFIT:
        qp_raise(qp, EVENT_QP_ACCESS_ERROR);
        fail(qp, NAK_INVALID_REQUEST, psn);
        break;
    case VERDICT_ACCESS:
        responder_fail(qp, NAK_REMOTE_ACCESS, psn);
        break;
    default:
        responder_fail(qp, NAK_INVALID_REQUEST, psn);
        break;
    }
}

/* Executed before: writes are only acknowledged again, READs are read again, atomics answered from
 * memory. [IBA 9.7.5.1.4, C9-105..110] */
static void receive_duplicate(struct qp *qp, const struct packet *packet)
{
    struct responder *responder = &qp->responder;
    environment_count(qp->environment, COUNTER_DUPLICATE_REQUESTS);
    enum operation operation = packet->info->operation;
    if (operation == OPERATION_SEND || operation == OPERATION_WRITE) {
        selective_count_duplicate(qp); /* of others, the response may be what was lost */
        acknowledge_duplicate(&responder->acknowledge);
        return;
    }
    struct replay_entry *entry = replay_find(&responder->reads->replay, packet->psn);
    if (entry == NULL || entry->is_atomic != (operation != OPERATION_READ_REQUEST)) {
        return;
    }
    if (entry->is_atomic) {
        replay_restart(&responder->reads->replay, entry, 0, 1, false);
        return;
    }
    uint32_t start = (uint32_t)psn_distance(entry->first_psn, packet->psn);
    uint64_t offset = (uint64_t)start << qp->mtu_shift;
    uint64_t rest = entry->length - offset;
    bool whole = packet->dma_length == rest;
    if (packet->remote_address != entry->address + offset ||
        packet->remote_key.value != entry->key.value || packet->dma_length > rest ||
        (!whole && (packet->dma_length == 0 || packet->dma_length % qp_mtu(qp) != 0))) {
        return; /* not a part of what was asked */
    }
    uint32_t count = segment_packet_count(packet->dma_length, qp->mtu_shift);
    if (answer_is_paced(qp, entry)) {
        pace_complaint(&responder->reads->pace);
    }
    replay_restart(&responder->reads->replay, entry, start, start + count, qp->selective != NULL);
}

static enum verdict answer(struct qp *qp, const struct packet *packet, enum verdict verdict)
{
    if (verdict == VERDICT_EXECUTED) {
        accept(qp, packet);
    } else if (verdict == VERDICT_NOT_READY) {
        acknowledge_receiver_not_ready(&qp->responder.acknowledge);
    } else if (verdict == VERDICT_UNREADABLE) {
        environment_count(qp->environment, COUNTER_REFERENCES_UNREADABLE);
        acknowledge_unreadable(&qp->responder.acknowledge);
    } else {
        refuse(qp, verdict, packet->psn);
    }
    return verdict;
}

enum verdict responder_take(struct qp *qp, const struct packet *packet)
{
    return answer(qp, packet, responder_execute(qp, packet));
}

enum verdict responder_go_on(struct qp *qp, const struct packet *packet)
{
    return answer(qp, packet, execute(qp, packet));
}

void responder_receive(struct qp *qp, const struct packet *packet)
{
    int32_t ahead = psn_distance(relay_next(qp), packet->psn);
    qp_schedule(qp);
    if (ahead < 0) {
        if (!relay_takes_again(qp, packet)) {
            receive_duplicate(qp, packet);
        }
    } else if (ahead > 0) {
        environment_count(qp->environment, COUNTER_OUT_OF_SEQUENCE);
        if (!relay_takes_gap(qp)) {
            selective_receive_early(qp, packet, ahead);
        }
    } else if (!relay_takes(qp, packet) && responder_take(qp, packet) == VERDICT_EXECUTED) {
        selective_take_requests(qp, packet);
    }
}

void responder_receive_in_error(struct qp *qp, const struct packet *packet)
{
    const struct acknowledge *acknowledge = &qp->responder.acknowledge;
    if (acknowledge->failed && psn_distance(acknowledge->fatal_psn, packet->psn) <= 0) {
        acknowledge_repeat_failure(&qp->responder.acknowledge);
        qp_schedule(qp);
    }
}
