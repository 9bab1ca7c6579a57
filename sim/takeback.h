/* Taking something back from hosts that may be touching it by themselves at that moment, as
 * rnic/verbs/take_back does: a key, or a queue pair that is moved to error, reset or destroyed.
 * First it is held, then those at it are waited for, then it ends.
 *
 * Here: that in steps, between the steps of who touches, too. */
#ifndef WEIR_SIM_TAKEBACK_H
#define WEIR_SIM_TAKEBACK_H

#include "sim/world.h"

void takeback_init(struct world *world);
void takeback_region(struct world *world, struct territory *territory);
/* ... one that only the host's own requests and receives name: nobody is waited for. */
void takeback_own_region(struct world *world, struct territory *territory);
void takeback_end(struct world *world, struct end *end, enum takeback_end kind);

#endif
