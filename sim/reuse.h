/* Queue pairs that are used again: both ends of a pair are reset in the middle of whatever they do,
 * one somewhat after the other, and then connected anew, with other PSNs and another program. Of
 * what was outstanding nothing completes, and what is still on its way changes nothing. */
#ifndef WEIR_SIM_REUSE_H
#define WEIR_SIM_REUSE_H

#include "sim/world.h"

/* At some time, perhaps. */
void reuse_plan(struct world *world, struct pair *pair);
/* The queue pair is reset, and belongs to an end that is yet to be connected. */
void reuse_end(struct world *world, struct end *end);

#endif
