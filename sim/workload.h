/* Playing the plan: connects queue pairs, posts, polls, arms, disturbs, and takes everything down.
 *
 * Here: when things happen, drawn from the play's dice. Not here: what (plan.h), and whether it was
 * right (checker.h). */
#ifndef WEIR_SIM_WORKLOAD_H
#define WEIR_SIM_WORKLOAD_H

#include "sim/world.h"

/* What applications do when their host's engine has run. */
void workload_init(struct world *world);

/* A completion queue of the host with room for `quota` more; a new one or one that is shared. */
struct application_queue *workload_queue(struct world *world, struct host *host, uint32_t quota,
                                         bool may_share);
/* To INIT, with receives perhaps. */
void workload_prepare(struct world *world, struct end *end);
/* From there to RTS, for those that need no connection manager. */
void workload_connect(struct world *world, struct end *end);
enum status workload_to_rtr(struct world *world, struct end *end);
enum status workload_to_rts(struct world *world, struct end *end);
/* The end's application begins to post. */
void workload_start(struct world *world, struct end *end);
/* The request has completed: where its bytes may have been read until then, others stand now. */
void workload_reuse(struct world *world, const struct op *op);
/* All of a host's life goes. */
void workload_host_dies(struct world *world, struct host *host);
/* The queue pair is moved to error, or destroyed. */
void workload_fail(struct world *world, struct end *end);
void workload_destroy_end(struct world *world, struct end *end);
/* The queue pair is reset, and the end's no more. */
void workload_reset(struct world *world, struct end *end);
/* An asynchronous event of a host's device. */
void workload_event(struct world *world, struct host *host, const struct event *event);
/* Random disturbances for the run, by its profile. */
void workload_plan_disturbances(struct world *world);

/* Takes what is in the queue out of the core, to be looked at later. */
void workload_pull(struct application_queue *queue);
/* Looks at everything that has completed, whatever the notifiers said. */
void workload_poll_all(struct world *world);
/* Destroys all objects on living hosts. */
void workload_take_down(struct world *world);

#endif
