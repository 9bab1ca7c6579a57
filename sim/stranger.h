/* One who sees no packet, but knows who is connected to whom, and by which queue pairs: he shoots
 * at the PSNs behind those that queue pairs expect. */
#ifndef WEIR_SIM_STRANGER_H
#define WEIR_SIM_STRANGER_H

#include "sim/world.h"

/* Some shots during the run, at queue pairs that keep what comes early. What he hits by chance, by
 * the tag of a queue pair, he does not send. */
void stranger_plan(struct world *world);

#endif
