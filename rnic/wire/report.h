/* A report: how far a reliable queue pair has received, and what it holds beyond. Only Weir ends
 * make and read it; docs/loss.md has the protocol.
 *
 * It is a packet of a transport version that nobody else speaks, and every receiver drops versions
 * it does not know before it looks any further [IBA 9.6.1.1]. Bytes: BTH (opcode REPORT_OPCODE,
 * version 15, the PSN as in an ACK), 16 of fixed fields, then the bitmap.
 *
 * It also brings the tag that the peer's packets are to carry from then on, in bits of the BTH that
 * are reserved, and that receivers ignore. Only a packet with the tag is kept if it comes before
 * its turn: without it, whoever knows the addresses and the queue pair's number would have to hit
 * one of 2048 PSNs instead of one. Pure functions. */
#ifndef WEIR_WIRE_REPORT_H
#define WEIR_WIRE_REPORT_H

#include "rnic/wire/packet.h"

#define REPORT_OPCODE     0xe0u /* of those left to manufacturers [IBA 9.2.1] */
#define REPORT_VERSION    15u
#define REPORT_LENGTH     (BTH_LENGTH + 16u)
#define REPORT_SPAN       2048u /* PSNs behind the expected one that a report can speak of */
#define REPORT_BITMAP_MAX (REPORT_SPAN / 8)

struct report {
    struct qpn destination;
    struct qpn source;
    struct psn acknowledged; /* everything up to here, as an ACK would say it */
    struct psn expected;     /* the first request packet that has not come */
    struct psn unacked;      /* the sender's own first unanswered packet: it proves who speaks */
    bool only_receives;      /* its sender is not ready to send, so it has no `unacked` */
    bool asks;           /* a report in answer is wanted: it is not known whether you speak this */
    uint16_t duplicates; /* packets that came in vain, but for READs and atomics; counts on */
    uint16_t tag;        /* 1 to PACKET_TAG_MAX */
    const uint8_t *bitmap; /* bit i of byte i / 8, low bits first: expected + i is held; borrowed */
    uint32_t bitmap_length; /* bytes, a multiple of 4, at most REPORT_BITMAP_MAX */
};

static inline bool report_is_one(const uint8_t *bytes, size_t length)
{
    return length >= BTH_LENGTH && bytes[0] == REPORT_OPCODE && (bytes[1] & 0xfu) == REPORT_VERSION;
}

/* Of bytes that report_is_one says yes to. The result borrows `bytes`. REFUSED_NOT, or why not. */
enum packet_refusal report_parse(const uint8_t *bytes, size_t length,
                                 struct report *ret_report) MUST_USE;
/* All but the bitmap, which follows. */
void report_build(const struct report *report, uint8_t ret_header[REPORT_LENGTH]);

#endif
