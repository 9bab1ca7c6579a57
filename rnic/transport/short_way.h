/* The usual case by itself: a SEND of one packet from one connected queue pair to another where
 * neither is doing anything else, and its acknowledgement. All functions do what the general way
 * (qp_receive, qp_transmit) would do, and nothing where anything is out of the ordinary: then that
 * does it. All rules stand there; here is what remains of them once the following is taken for
 * granted.
 *
 * Of the receiver: an RC queue pair in RTS (established, not draining), or in RTR since its first
 * packet; no tag matching, no target, nobody who watches; no message under way; where selective
 * repeat is agreed, no request is kept that came early, and the packet has our tag; it comes from
 * the peer's address, unmarked by the network, at the expected PSN, and fits the first SGE of a
 * receive that is there, whose key grants it.
 *
 * Of the sender: the same of the queue pair, in RTS, and its process; the request is a SEND, with
 * immediate or without, of at most SHORT_WAY_BYTES, inline or of one SGE whose key grants it;
 * nothing is being repeated or waited for, no rate is limited; the peer is near, or nothing is
 * under way to it; and whatever is owed to it can travel with the request, or nothing is. */
#ifndef WEIR_TRANSPORT_SHORT_WAY_H
#define WEIR_TRANSPORT_SHORT_WAY_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/transport/step.h"
#include "rnic/wire/opcode.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

#define SHORT_WAY_BYTES 256u /* fits every path MTU */

struct qp;

/* Packets of other kinds need not be asked about. */
static inline bool short_way_may_take(const uint8_t *bytes, uint32_t length)
{
    return length >= BTH_LENGTH && (bytes[0] == OPCODE(SERVICE_RC, FORM_SEND_ONLY) ||
                                    bytes[0] == OPCODE(SERVICE_RC, FORM_SEND_ONLY_IMMEDIATE));
}

/* `length` bytes from the BTH to before the ICRC, of such a packet, addressed to the queue pair.
 * True: it has been received, and is surely of the peer. False: the general way, to which nothing
 * has happened yet but that an acknowledgement that came along may have been taken; that does
 * nothing twice. */
bool short_way_receive(struct qp *qp, struct instant now, const struct arrival *arrival,
                       const uint8_t *bytes, uint32_t length);

/* The request at the cursor. IDLE: there is none, or it is for the general way. */
enum step short_way_transmit(struct qp *qp, struct instant now);

/* The only request that waits, of a queue pair that owes nothing but what that may carry, to who is
 * near, by the sink's own way for such packets: what most programs send that wait for one message
 * before the next. True: it has left, and nothing is left to do. */
bool short_way_post(struct qp *qp, struct instant now);

/* An acknowledgement, which is most of what who goes from one queue pair to the next gets back: one
 * for each message. */
static inline bool short_way_may_acknowledge(const uint8_t *bytes, uint32_t length)
{
    return length == BTH_LENGTH + AETH_LENGTH && bytes[0] == OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE);
}

/* True: it says something new, is surely of the peer, and has been taken. */
bool short_way_acknowledged(struct qp *qp, struct instant now, const struct arrival *arrival,
                            const uint8_t *bytes);

/* The acknowledgement that is owed to a peer that is near. IDLE: none is, or what is owed is for
 * the general way. */
enum step short_way_answer(struct qp *qp);

#endif
