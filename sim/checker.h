/* The oracles over completions and memory. Each is named in the violation:
 *
 * order      completions of a queue come in the order of its requests, each once
 * status     the status is one that the model allows
 * data       what arrived is what was sent, when the completion says so
 * memory     at the end memory is what the model says, guards and unpermitted regions included
 * frozen     deregistered memory and that of dead hosts does not change any more
 * outstanding  at the end every request has completed, or may still wait
 * atomic     the atomics on a cell can be put in one order
 * waits      where nothing is lost nobody waits for a timeout
 * wakeup     an armed queue with a completion has called its notifier, once */
#ifndef WEIR_SIM_CHECKER_H
#define WEIR_SIM_CHECKER_H

#include "sim/world.h"

/* Work request ids say whose they are. */
uint64_t checker_send_id(const struct end *end, uint32_t index);
uint64_t checker_receive_id(const struct end *end, uint32_t index);

/* A completion came out of the queue. `quiet`: it came while the queue was armed and the notifier
 * was not called. */
void checker_completion(struct world *world, struct application_queue *queue,
                        const struct completion *completion, bool quiet);
/* Nothing moves any more: judges what is outstanding. */
void checker_quiescence(struct world *world);
/* After all queue pairs are in error or gone: judges memory. */
void checker_memory(struct world *world);

#endif
