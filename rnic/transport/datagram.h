/* Unreliable datagrams: each message one packet, each request its own target. [IBA 9.8.4]
 *
 * A received datagram is preceded by 40 bytes in the place of a GRH, always in the form of an IPv6
 * header: over IPv4 its addresses are the v4-mapped GIDs. */
#ifndef WEIR_TRANSPORT_DATAGRAM_H
#define WEIR_TRANSPORT_DATAGRAM_H

#include "rnic/transport/step.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

#define GRH_LENGTH 40u

struct qp;

enum step datagram_transmit(struct qp *qp);
void datagram_receive(struct qp *qp, const struct arrival *arrival, const struct packet *packet);

#endif
