/* Unreliable datagrams: each message one packet, each request its own target. [IBA 9.8.4]
 *
 * A received datagram is preceded by 40 bytes: the IPv6 header that it came with, or 20 zeroes and
 * the IPv4 header. [RoCEv2 annex A17.4.5.2]
 */
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
