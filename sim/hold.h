/* The hold_ns of the network's ports (rnic/transport/port.h): of links that say so each stream that
 * has something under way has to wait now and then, for a while. */
#ifndef WEIR_SIM_HOLD_H
#define WEIR_SIM_HOLD_H

#include "rnic/transport/port.h"

uint64_t network_hold_ns(struct packet_sink *sink, const struct path *path, struct qpn destination,
                         uint64_t *mark);

#endif
