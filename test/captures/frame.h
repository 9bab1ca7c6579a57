/* A RoCEv2 packet as it stands on an Ethernet: taken apart into structs down to rdma_cm's private
 * header, and built anew from them. Nothing is carried through as bytes but the payload, a MAD's
 * private data and the Ethernet addresses; the checksums and the ICRC are computed. */
#ifndef WEIR_TEST_CAPTURES_FRAME_H
#define WEIR_TEST_CAPTURES_FRAME_H

#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"

#define ETHERNET_LENGTH 14u
#define FRAME_MAX       (ETHERNET_LENGTH + 40u + 8u + PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 8u)

struct frame {
    uint8_t ethernet_addresses[12];
    struct path path; /* as the sender sees it */
    struct roce_ip ip;
    bool has_udp_checksum; /* 0 says that there is none */
    struct packet packet;  /* its payload is borrowed from the frame */
    bool is_management;    /* a CM MAD over QP1: `message` stands for the payload */
    bool has_rdma_cm_header;
    struct cm_message message;
    struct rdma_cm_header rdma_cm; /* stands for the beginning of the message's private data */
};

/* NULL, or why the frame is refused, static. "not RoCEv2": no UDP, or of another port. */
const char *frame_parse(const uint8_t *bytes, uint32_t length, struct frame *ret_frame);
uint32_t frame_build(const struct frame *frame, uint8_t ret_bytes[FRAME_MAX]);

/* Where things stand in a frame that parses. */
uint32_t frame_udp_offset(const uint8_t *bytes);
static inline uint32_t frame_bth_offset(const uint8_t *bytes)
{
    return frame_udp_offset(bytes) + 8;
}

/* Makes the IP header checksum and the ICRC those of the bytes. */
void frame_seal(uint8_t *bytes, uint32_t length);

#endif
