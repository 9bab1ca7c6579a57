/* Work that must fail, and the status it must fail with: wrong keys, ranges, rights and domains,
 * at home and at the peer, receives that do not fit. */
#ifndef WEIR_SIM_ILLEGAL_H
#define WEIR_SIM_ILLEGAL_H

#include "sim/world.h"

/* Turns planned op `index` of the end into one that must fail; what comes behind is flushed. */
void illegal_op(struct world *world, struct end *end, uint32_t index);
/* Turns a receive into one that its message `op` cannot use. */
void illegal_intake(struct world *world, struct end *end, struct intake *intake, struct op *op);
/* The peer's queue pair denies the kind of request that the first READ, WRITE or atomic is. */
void illegal_right(struct world *world, struct end *end);
/* A WRITE or READ through the window that the peer's queue pair had before it was reset. */
void illegal_former_window(struct pair *pair, struct end *end);

#endif
