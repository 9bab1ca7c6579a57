#include "rnic/transport/demand.h"

#include "rnic/transport/qp_private.h"
#include "rnic/transport/reference.h"
#include "rnic/transport/repair.h"

#define CHUNK_SHIFT     16u
#define REFERENCE_SHIFT 20u
#define PARTS           4u /* of a window */

BUILD_CHECK(1u << REFERENCE_SHIFT == REFERENCE_MAX);

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The first flight is to fit the window. Later the window is small where packets are lost, and a
 * peer that repairs nothing would be slow for all of a long READ. */
uint8_t demand_shift(const struct qp *qp, const struct send_slot *slot)
{
    bool by_reference = slot->kind == WORK_READ && slot->length > 1u << CHUNK_SHIFT &&
                        qp->selective == NULL && reference_takes_all(qp);
    if (by_reference) {
        return REFERENCE_SHIFT;
    }
    uint8_t shift = CHUNK_SHIFT;
    bool begins = !reference_is_possible(qp) && !congestion_has_shrunk(&qp->congestion);
    while (begins && shift > qp->mtu_shift && 1u << shift > qp->congestion.window) {
        shift--;
    }
    return shift;
}

bool demand_is_by_reference(const struct send_slot *slot)
{
    return slot->demand_shift > CHUNK_SHIFT;
}

uint32_t demand_grid(const struct qp *qp, const struct send_slot *slot)
{
    return 1u << (slot->demand_shift - qp->mtu_shift);
}

/* To the next line of the grid. */
static uint32_t grid_rest(const struct qp *qp, const struct send_slot *slot, uint32_t index)
{
    uint32_t most = demand_grid(qp, slot);
    return smaller(most - (index & (most - 1)), slot->packet_count - index);
}

/* What a demand draws leaves at once, and fills queues as no TCP would that sends as its
 * acknowledgements come: so it is a part of the window. But all that may be under way are to fill a
 * long way's. */
static uint32_t window_part(const struct qp *qp)
{
    uint32_t window = qp->selective->share.window;
    uint32_t reads = larger(qp->attributes.max_reads_out, 1);
    uint32_t part = larger(smaller(window / PARTS, 1u << CHUNK_SHIFT),
                           smaller(window / reads, qp->environment->window_max));
    return larger(part >> qp->mtu_shift, 1);
}

uint32_t demand_next(const struct qp *qp, const struct send_slot *slot, uint32_t index)
{
    return repair_is_on(qp) ? smaller(window_part(qp), slot->packet_count - index)
                            : grid_rest(qp, slot, index);
}

/* Whether a packet that has left is drawn by one before it. */
static bool is_drawn(const struct qp *qp, struct psn psn)
{
    const struct scoreboard *board = &qp->selective->board;
    return psn_before(psn, board->end) && scoreboard_is_drawn(board, psn);
}

uint32_t demand_rest(const struct qp *qp, const struct send_slot *slot, uint32_t index)
{
    if (!repair_is_on(qp)) {
        return grid_rest(qp, slot, index);
    }
    struct psn psn = psn_add(slot->first_psn, index);
    uint32_t packets = 1;
    while (is_drawn(qp, psn_add(psn, packets))) {
        packets++;
    }
    return packets;
}

bool demand_ends(const struct qp *qp, const struct send_slot *slot, uint32_t packets)
{
    if (packets == slot->packet_count) {
        return true;
    }
    return repair_is_on(qp) ? !is_drawn(qp, psn_add(slot->first_psn, packets))
                            : (packets & (demand_grid(qp, slot) - 1)) == 0;
}
