/* Unreliable connections: no answers, nothing is sent twice. A request is done when its last packet
 * has left; a message that misses a packet is dropped whole by the receiver, whose receive then
 * serves the next message. [IBA 9.8] */
#ifndef WEIR_TRANSPORT_UNRELIABLE_H
#define WEIR_TRANSPORT_UNRELIABLE_H

#include "rnic/base/time.h"
#include "rnic/transport/step.h"
#include "rnic/wire/packet.h"

struct qp;

enum step unreliable_transmit(struct qp *qp, struct instant now);
void unreliable_receive(struct qp *qp, const struct packet *packet);

#endif
