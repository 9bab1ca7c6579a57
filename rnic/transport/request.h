/* One packet of a SEND, WRITE, READ or atomic: its headers and where its payload lies. Shared by
 * the reliable requester and the unreliable ones; knows no windows and keeps no state but the
 * gather cursor. */
#ifndef WEIR_TRANSPORT_REQUEST_H
#define WEIR_TRANSPORT_REQUEST_H

#include "rnic/memory/scatter.h"
#include "rnic/queue/send_queue.h"
#include "rnic/wire/packet.h"

struct qp;

/* Packets `index` to before index + count of a started SEND or WRITE, as one. All fields but
 * ack_request. */
void request_describe_data(const struct qp *qp, const struct send_slot *slot, uint32_t index,
                           uint32_t count, struct packet *ret_packet);
/* A READ of the response packets `index` to before `end`. */
void request_describe_read(const struct qp *qp, const struct send_slot *slot, uint32_t index,
                           uint32_t end, struct packet *ret_packet);
void request_describe_atomic(const struct qp *qp, const struct send_slot *slot,
                             struct packet *ret_packet);

#define REQUEST_SHORT 128u /* bytes of payload, of one packet for every path MTU */

/* From BTH to before the ICRC, of a request that is one short packet on the wire; 0: it is not. */
uint32_t request_short_length(const struct send_slot *slot);

/* Headers and the eight bytes. */
enum memory_verdict request_describe_atomic_write(struct qp *qp, const struct send_slot *slot,
                                                  uint64_t position, struct packet *ret_packet,
                                                  struct fragment_list *list);
/* Appends the next `length` bytes of payload from packet `index` of the request at `position` of
 * the send queue. */
enum memory_verdict request_gather(struct qp *qp, const struct send_slot *slot, uint64_t position,
                                   uint32_t index, uint32_t length,
                                   struct fragment_list *list) MUST_USE;

/* Whether request_gather's word holds for any length: pages of what it sends cannot be missing. */
bool request_is_steady(const struct qp *qp, const struct send_slot *slot);

#endif
