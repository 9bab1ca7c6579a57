/* Calls that must be refused, and leave nothing behind: allocations that fail at each point,
 * requests beyond a queue's limits. */
#ifndef WEIR_SIM_PROVOKE_H
#define WEIR_SIM_PROVOKE_H

#include "sim/world.h"

/* Creates a device, queues and a queue pair, with the n-th allocation refused, for each n. */
void provoke_no_memory(struct world *world, struct host *host);
/* Posts what the send queue's limits forbid. */
void provoke_post(struct world *world, struct end *end);

#endif
