/* The way that sinks may have for short packets to who is near (rnic/transport/port.h): by the
 * network's, which refuses some for no reason, they become packets like any. */
#ifndef WEIR_SIM_SHORT_EMIT_H
#define WEIR_SIM_SHORT_EMIT_H

#include "rnic/transport/port.h"

bool short_emit(struct packet_sink *sink, const struct outgoing_short *outgoing);

#endif
