/* What is certain once a request has succeeded, and what may be there when it has not. */
#ifndef WEIR_SIM_JUDGE_H
#define WEIR_SIM_JUDGE_H

#include "sim/world.h"

/* Op `index` of the end has succeeded: its effect must be there now. */
void judge_done(struct world *world, struct end *end, uint32_t index);
/* The peer of `end` was told that WRITE `op` has been written. */
void judge_written(struct world *world, struct end *end, struct op *op);
/* The atomics on a cell can be put in one order that explains all results. */
void judge_cells(struct world *world);

#endif
