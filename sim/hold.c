#include "sim/hold.h"

#include "sim/network.h"

#define HOLD_MAX_NS 300000u

uint64_t network_hold_ns(struct packet_sink *sink, const struct path *path, struct qpn destination,
                         uint64_t *mark)
{
    const struct network_port *port = (const struct network_port *)sink;
    struct network *network = port->network;
    unsigned to = network_host_of(&path->remote);
    if (to == HOST_MAX || *mark == 0 ||
        !dice_chance(&network->holds, network->links[port->index][to].config.hold)) {
        *mark = 1;
        return 0;
    }
    network->held++;
    return 1 + dice_below(&network->holds, HOLD_MAX_NS);
}
