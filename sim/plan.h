/* Choosing work: profiles of the world, queue pairs, and the programs of sends and receives that
 * their applications will play. Everything is decided here, before the first packet, from the
 * plan's dice: each request's data, target, and the statuses that are right for it. */
#ifndef WEIR_SIM_PLAN_H
#define WEIR_SIM_PLAN_H

#include "sim/world.h"

void plan_profile(struct world *world);
/* Application memory and domains of a host's new life. */
void plan_space(struct world *world, struct host *host);
/* A connected pair's queue pairs and programs; they are created, not connected. NULL: no room. */
struct pair *plan_pair(struct world *world, struct host *a, struct host *b, enum service service);
/* An end that has the queue pair of a former one, which was reset; and, where both are, their
 * programs. */
void plan_end_again(struct world *world, struct end *end, const struct end *former);
void plan_join(struct world *world, struct pair *pair);
/* Datagram queue pairs on all hosts, each with a program to any of the others. */
void plan_datagrams(struct world *world);

#endif
