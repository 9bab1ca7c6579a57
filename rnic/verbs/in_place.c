#include "rnic/verbs/in_place.h"

#include <errno.h>

#include "rnic/base/bytes.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"

struct send_slot *in_place_open(struct soft_qp *qp, uint32_t ahead, enum work_kind kind,
                                uint64_t id, unsigned flags)
{
    struct send_slot *slot = strict_is_on() ? NULL : qp_open_send(qp->qp, ahead);
    if (slot != NULL) {
        slot->id = id;
        slot->length = 0;
        slot->sge_count = 0;
        slot->kind = kind;
        slot->signaled = (flags & IBV_SEND_SIGNALED) != 0;
        slot->solicited = (flags & IBV_SEND_SOLICITED) != 0;
        slot->fence = (flags & IBV_SEND_FENCE) != 0;
        slot->inline_data = false;
        slot->has_target = false;
    }
    return slot;
}

int in_place_sge(const struct soft_qp *qp, struct send_slot *slot, const struct sge *sge)
{
    if (qp->granted.send_sge == 0 || sge->length > MESSAGE_LENGTH_MAX) {
        return EINVAL;
    }
    slot->length = sge->length;
    slot->sge_count = 1;
    slot->inline_data = false;
    *(struct sge *)send_slot_room(slot) = *sge;
    return 0;
}

int in_place_sges(const struct soft_qp *qp, struct send_slot *slot, const struct ibv_sge *list,
                  size_t count)
{
    struct sge *sges = send_slot_room(slot);
    uint64_t length = 0;
    if (count > qp->granted.send_sge) {
        return EINVAL;
    }
    convert_sges(list, count, sges);
    for (size_t i = 0; i < count; i++) {
        length += sges[i].length;
    }
    if (length > MESSAGE_LENGTH_MAX) {
        return EINVAL;
    }
    slot->length = (uint32_t)length;
    slot->sge_count = (uint16_t)count;
    slot->inline_data = false;
    return 0;
}

int in_place_append(const struct soft_qp *qp, struct send_slot *slot, const void *bytes,
                    size_t length)
{
    if (slot->kind == WORK_READ || length > (size_t)qp->granted.inline_data - slot->length) {
        return EINVAL;
    }
    bytes_copy_short((uint8_t *)send_slot_room(slot) + slot->length, bytes, length);
    slot->length += (uint32_t)length;
    slot->sge_count = 0;
    slot->inline_data = true;
    return 0;
}
