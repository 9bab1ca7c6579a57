/* Messages and packets: how many packets a message takes, which bytes each carries, and under which
 * opcode. Path MTUs are powers of two, so nothing here divides. */
#ifndef WEIR_TRANSPORT_SEGMENT_H
#define WEIR_TRANSPORT_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/queue/work.h"
#include "rnic/wire/opcode.h"

/* A message without bytes takes one packet too. [IBA 9.7.2] */
static inline uint32_t segment_packet_count(uint32_t length, uint32_t mtu_shift)
{
    uint32_t count = (uint32_t)(((uint64_t)length + (1u << mtu_shift) - 1) >> mtu_shift);
    return count == 0 ? 1 : count;
}

/* Payload bytes of packet `index` of a message of `length` bytes. */
static inline uint32_t segment_payload_length(uint32_t length, uint32_t index, uint32_t mtu_shift)
{
    uint32_t rest = length - (index << mtu_shift);
    uint32_t mtu = 1u << mtu_shift;
    return rest < mtu ? rest : mtu;
}

/* ... of `count` packets from there on, which all exist. */
static inline uint32_t segment_span_length(uint32_t length, uint32_t index, uint32_t count,
                                           uint32_t mtu_shift)
{
    uint32_t rest = length - (index << mtu_shift);
    uint64_t span = (uint64_t)count << mtu_shift;
    return rest < span ? rest : (uint32_t)span;
}

/* Opcode of a request packet of a SEND or WRITE of any kind. */
uint8_t segment_request_opcode(enum service service, enum work_kind kind, bool first, bool last);

static inline uint8_t segment_response_opcode(enum service service, bool first, bool last)
{
    return OPCODE(service, first && last ? FORM_READ_RESPONSE_ONLY
                           : first       ? FORM_READ_RESPONSE_FIRST
                           : last        ? FORM_READ_RESPONSE_LAST
                                         : FORM_READ_RESPONSE_MIDDLE);
}

#endif
