/* Headers from a slot; payload through the cursor of requests, which moves on as packets do. */
#include "rnic/transport/request.h"

#include "rnic/transport/qp_private.h"
#include "rnic/transport/segment.h"

static void start_packet(const struct qp *qp, const struct send_slot *slot, uint32_t index,
                         struct packet *ret_packet)
{
    *ret_packet = (struct packet){
        .pkey = PKEY_DEFAULT,
        .destination = qp->attributes.destination,
        .psn = psn_add(slot->first_psn, index),
        .remote_address = slot->remote_address,
        .remote_key = slot->remote_key,
        .xrc_srq = slot->xrc_srq,
    };
}

void request_describe_data(const struct qp *qp, const struct send_slot *slot, uint32_t index,
                           uint32_t count, struct packet *ret_packet)
{
    bool last = index + count == slot->packet_count;
    start_packet(qp, slot, index, ret_packet);
    ret_packet->opcode = segment_request_opcode(qp->service, slot->kind, index == 0, last);
    ret_packet->segment_shift = count > 1 ? qp->mtu_shift : 0;
    ret_packet->solicited = last && slot->solicited;
    ret_packet->dma_length = slot->length;
    ret_packet->immediate = slot->immediate;
    ret_packet->invalidate = slot->invalidate;
    ret_packet->payload_length = segment_span_length(slot->length, index, count, qp->mtu_shift);
}

void request_describe_read(const struct qp *qp, const struct send_slot *slot, uint32_t index,
                           uint32_t end, struct packet *ret_packet)
{
    uint64_t offset = (uint64_t)index << qp->mtu_shift;
    uint64_t until = (uint64_t)end << qp->mtu_shift;
    start_packet(qp, slot, index, ret_packet);
    ret_packet->opcode = OPCODE(qp->service, FORM_READ_REQUEST);
    ret_packet->remote_address += offset;
    ret_packet->dma_length = (uint32_t)((until < slot->length ? until : slot->length) - offset);
}

void request_describe_atomic(const struct qp *qp, const struct send_slot *slot,
                             struct packet *ret_packet)
{
    start_packet(qp, slot, 0, ret_packet);
    ret_packet->opcode =
        OPCODE(qp->service, slot->kind == WORK_COMPARE_SWAP ? FORM_COMPARE_SWAP : FORM_FETCH_ADD);
    const struct atomic_operands *operands = send_slot_operands(slot);
    ret_packet->swap_or_add = operands->swap_or_add;
    ret_packet->compare = operands->compare;
}

enum memory_verdict request_describe_atomic_write(struct qp *qp, const struct send_slot *slot,
                                                  uint64_t position, struct packet *ret_packet,
                                                  struct fragment_list *list)
{
    start_packet(qp, slot, 0, ret_packet);
    ret_packet->opcode = OPCODE(SERVICE_RC, FORM_ATOMIC_WRITE);
    const uint64_t *value = &send_slot_operands(slot)->swap_or_add;
    ret_packet->dma_length = ret_packet->payload_length = sizeof *value;
    if (slot->length == 0) {
        list->fragments[list->count++] = (struct fragment){(const uint8_t *)value, sizeof *value};
        return MEMORY_GRANTED;
    }
    return request_gather(qp, slot, position, 0, ret_packet->payload_length, list);
}

enum memory_verdict request_gather(struct qp *qp, const struct send_slot *slot, uint64_t position,
                                   uint32_t index, uint32_t length, struct fragment_list *list)
{
    struct cursor *cursor = &qp->environment->cursors.request;
    if (length == 0) {
        return MEMORY_GRANTED;
    }
    if (!cursor_is_of(cursor, qp, position)) {
        if (slot->inline_data) {
            scatter_init_inline(&cursor->scatter, send_slot_inline(slot), slot->length);
        } else {
            scatter_init(&cursor->scatter, qp->environment->memory, qp->domain,
                         send_slot_sges(slot), slot->sge_count);
        }
        cursor->owner = qp;
        cursor->position = position;
    }
    uint64_t offset = (uint64_t)index << qp->mtu_shift;
    if (cursor->scatter.offset != offset) {
        scatter_seek(&cursor->scatter, offset);
    }
    return scatter_gather(&cursor->scatter, length, list);
}

bool request_is_steady(const struct qp *qp, const struct send_slot *slot)
{
    return slot->inline_data ||
           (slot->sge_count == 1 &&
            memory_is_steady(qp->environment->memory, send_slot_sges(slot)->key));
}

uint32_t request_short_length(const struct send_slot *slot)
{
    uint32_t length = BTH_LENGTH + slot->length + packet_pad(slot->length);
    if (slot->kind == WORK_READ) {
        return BTH_LENGTH + RETH_LENGTH;
    }
    if (slot->length > REQUEST_SHORT) {
        return 0;
    }
    switch (slot->kind) {
    case WORK_SEND:
        return length;
    case WORK_SEND_IMMEDIATE:
        return length + IMMDT_LENGTH;
    case WORK_SEND_INVALIDATE:
        return length + IETH_LENGTH;
    case WORK_WRITE:
        return length + RETH_LENGTH;
    case WORK_WRITE_IMMEDIATE:
        return length + RETH_LENGTH + IMMDT_LENGTH;
    default:
        return 0;
    }
}
