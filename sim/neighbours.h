/* The simulated local sockets: processes of one host, each with a device of its own (a struct host
 * here), that hand each other messages of the relay and may send from each other's addresses.
 * Between two of them messages keep their order or are lost. */
#ifndef WEIR_SIM_NEIGHBOURS_H
#define WEIR_SIM_NEIGHBOURS_H

#include "sim/dice.h"
#include "sim/host.h"

struct neighbours;

struct neighbour {
    struct relay_link link; /* first */
    struct neighbours *all;
    struct host *host;                /* NULL: not one of them */
    struct instant arrives[HOST_MAX]; /* the latest message to each */
};

struct neighbours {
    struct simulator *simulator;
    struct network *network;
    struct dice dice;
    uint32_t loss; /* per million */
    uint32_t delay_ns, jitter_ns;
    struct neighbour ends[HOST_MAX];
    uint64_t sent, lost;
};

void neighbours_init(struct neighbours *neighbours, struct simulator *simulator,
                     struct network *network);
/* Before the host starts. */
void neighbours_join(struct neighbours *neighbours, struct host *host);

#endif
