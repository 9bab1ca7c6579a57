/* What READs ask for at a time. A READ leaves as demands, READ requests on the wire for a part of
 * it each; an atomic is one demand. The grid of a slot's demands is fixed when it begins, as long
 * as nothing is repaired (repair.h); then each is as long as the window bears, and the scoreboard
 * knows where they begin. */
#ifndef WEIR_TRANSPORT_DEMAND_H
#define WEIR_TRANSPORT_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

struct qp;
struct send_slot;

/* For `slot`, which begins: log2 of the bytes between its grid's lines. */
uint8_t demand_shift(const struct qp *qp, const struct send_slot *slot);
/* Whether the grid's demands may be answered by reference. */
bool demand_is_by_reference(const struct send_slot *slot);
/* Packets between the lines of the slot's grid. */
uint32_t demand_grid(const struct qp *qp, const struct send_slot *slot);
/* How many packets of response the demand is to draw that leaves for packet `index` of the slot. */
uint32_t demand_next(const struct qp *qp, const struct send_slot *slot, uint32_t index);
/* How many packets the demand has that packet `index` lies in, which has left, from there on. */
uint32_t demand_rest(const struct qp *qp, const struct send_slot *slot, uint32_t index);
/* Whether a demand that has left ends with the first `packets` packets of the slot. */
bool demand_ends(const struct qp *qp, const struct send_slot *slot, uint32_t packets);

#endif
