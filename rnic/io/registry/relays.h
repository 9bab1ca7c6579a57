/* The relay link (transport/relay.h) over the local sockets: requests for shared receive queues of
 * other processes, and their answers. Whose a queue is says its number. Under the engine's lock. */
#ifndef WEIR_IO_RELAYS_H
#define WEIR_IO_RELAYS_H

#include "rnic/io/registry/handoff.h"
#include "rnic/transport/relay.h"

struct device;

struct relays {
    struct relay_link link;
    struct handoff_relay_receiver receiver;
    struct registry *registry;
    struct handoff *handoff;
    struct device *device;
};

/* The device is created after its link: set it before anything is received. */
void relays_init(struct relays *relays, struct registry *registry, struct handoff *handoff);
/* In a forked child: what it still has of the parent's targets reaches nobody. */
void relays_abandon(struct relays *relays);

#endif
