/* A RoCEv2 packet from the BTH on, without IP, UDP and ICRC (those are roce.h):
 * parse into a struct, build from the same struct. Pure functions. */
#ifndef WEIR_WIRE_PACKET_H
#define WEIR_WIRE_PACKET_H

#include <stddef.h>

#include "rnic/base/bytes.h"
#include "rnic/base/status.h"
#include "rnic/wire/fragment.h"
#include "rnic/wire/ids.h"
#include "rnic/wire/opcode.h"

/* [IBA 9.2 to 9.3; CNP: RoCEv2 annex A17.9.3] */
#define BTH_LENGTH            12u
#define XRCETH_LENGTH         4u
#define DETH_LENGTH           8u
#define RETH_LENGTH           16u
#define ATOMIC_ETH_LENGTH     28u
#define AETH_LENGTH           4u
#define ATOMIC_ACK_ETH_LENGTH 8u
#define IMMDT_LENGTH          4u
#define IETH_LENGTH           4u
#define CNP_RESERVED_LENGTH   16u

#define PACKET_HEADER_MAX  64u /* no opcode needs more; checked against the table by test */
#define PACKET_PAYLOAD_MAX 4096u
#define ICRC_LENGTH        4u

/* Why a packet was refused before it reached a queue pair. One counter each. */
enum packet_refusal {
    REFUSED_NOT,
    REFUSED_TRUNCATED,      /* shorter than its own headers say */
    REFUSED_VERSION,        /* BTH transport version is not 0 */
    REFUSED_OPCODE,         /* no such opcode */
    REFUSED_PAD,            /* pad count without that many bytes, or not to a multiple of 4 */
    REFUSED_PAYLOAD_LENGTH, /* payload above 4096, or where none may be */
    REFUSED_ICRC,
    REFUSED_IDENTIFICATION, /* the ICRC fits, but only for an IPv4 header its sender never sends */
    REFUSED_FRAMING,        /* IP or UDP lengths that do not fit together */
    REFUSED_BROADCAST,      /* to all of a network, or to a group that nobody here has joined */
    REFUSED_PKEY,
    REFUSED_QKEY,
    REFUSED_NO_QP,      /* no queue pair of that number */
    REFUSED_NO_GROUP,   /* no queue pair is attached to that multicast group */
    REFUSED_SERVICE,    /* the queue pair is of another service */
    REFUSED_STATE,      /* the queue pair is in no state to receive */
    REFUSED_ADDRESS,    /* it came from elsewhere than the connected peer */
    REFUSED_PSN,        /* outside any window: stale or forged */
    REFUSED_SEQUENCE,   /* a response to nothing asked */
    REFUSED_NO_RECEIVE, /* datagram without a receive buffer */
    REFUSED_TOO_LONG,   /* datagram longer than its buffer */
    REFUSED_ACCESS,     /* unreliable request whose key does not grant it */
    REFUSED_MANAGEMENT, /* a MAD that is malformed or not for us */
    REFUSED_COUNT,
};

/* Short name of a refusal for counters ("no_qp"), static. */
const char *packet_refusal_name(enum packet_refusal refusal);

/* AETH syndromes. [IBA 9.7.5.1.2] */
enum aeth_kind {
    AETH_ACK = 0,
    AETH_RNR_NAK = 1,
    AETH_NAK = 3,
};

enum nak_code {
    NAK_SEQUENCE = 0,
    NAK_INVALID_REQUEST = 1,
    NAK_REMOTE_ACCESS = 2,
    NAK_REMOTE_OPERATION = 3,
    NAK_INVALID_RD_REQUEST = 4,
};

struct aeth {
    enum aeth_kind kind; /* the reserved 2 may come from a peer too */
    uint8_t value; /* credit count code of an ACK, timer code of an RNR NAK, nak_code of a NAK */
    uint32_t msn;  /* 24 bits */
};

/* A payload by reference: a link within one host brings headers only, and the payload is read from
 * the sender's memory once it is known where it goes. Such a packet stands for as many ordinary
 * ones, of the sender's path MTU, as its payload fills, and takes their PSNs. */
#define REFERENCE_MAX (1u << 20)

struct payload_reader {
    /* Fills the places with what lies from `offset` on. False: it is not to be had any more, or a
     * place cannot be written; a part may have been. */
    bool (*read)(struct payload_reader *reader, uint32_t offset, const struct payload_place *places,
                 uint32_t count);
};

struct payload_reference {
    struct payload_reader *reader;
    uint32_t length;       /* 1 to REFERENCE_MAX */
    uint8_t segment_shift; /* log2 of the sender's path MTU */
};

/* One packet, decoded. A field is meaningful where its opcode's row says so. Values are in host
 * order, but the immediate is opaque: the application's four bytes as they stand on the wire. */
struct packet {
    uint8_t opcode;
    bool solicited;
    bool migration_request;
    bool ack_request;
    bool fecn, becn; /* BTH byte 4, bits 7 and 6; outside the ICRC */
    uint16_t tag;    /* the 13 reserved bits of the BTH; 0 but between Weir ends, see report.h */
    struct pkey pkey;
    const struct opcode_info *info; /* set by packet_parse; packet_build looks it up itself */
    struct qpn destination;
    struct psn psn;

    uint64_t remote_address; /* RETH, AtomicETH */
    struct memory_key remote_key;
    uint32_t dma_length;  /* RETH */
    uint64_t swap_or_add; /* AtomicETH */
    uint64_t compare;
    uint64_t original; /* AtomicAckETH */
    struct aeth aeth;
    uint32_t immediate;           /* ImmDt, opaque bytes */
    struct memory_key invalidate; /* IETH */
    struct qkey qkey;             /* DETH */
    struct qpn source;            /* DETH */
    uint32_t xrc_srq;             /* XRCETH, 24 bits */

    const uint8_t *payload;  /* borrowed; NULL in a packet to build: it travels as a gather list */
    uint32_t payload_length; /* without pad */

    struct payload_reader *reader; /* by reference; `payload` is NULL then */
    uint8_t segment_shift;
};

#define PACKET_TAG_MAX 0x1fffu

/* Puts a tag into the reserved bits of a BTH, which have none: 6 in byte 4, 7 in byte 8. */
static inline void packet_put_tag(uint8_t *bytes, uint16_t tag)
{
    bytes[4] |= (uint8_t)(tag >> 7);
    bytes[8] |= (uint8_t)(tag & 0x7fu);
}

/* Where a packet goes, from `bytes` that begin at its BTH, all BTH_LENGTH of it. */
static inline struct qpn packet_destination(const uint8_t *bytes)
{
    return (struct qpn){bytes_load_u32(bytes + 4) & 0xffffff};
}

/* Its place in the sequence, likewise. */
static inline struct psn packet_psn(const uint8_t *bytes)
{
    return (struct psn){bytes_load_u24(bytes + 9)};
}

static inline void packet_put_psn(uint8_t *bytes, struct psn psn)
{
    bytes_store_u24(bytes + 9, psn.value);
}

/* Pad bytes that bring `payload_length` to a multiple of 4: 0..3. */
static inline uint32_t packet_pad(uint32_t payload_length)
{
    return -payload_length & 3u;
}

/* Decodes `length` bytes that begin at the BTH and end before the ICRC. The result borrows `bytes`.
 * Returns REFUSED_NOT, or why not; *ret_packet is untouched then. */
enum packet_refusal packet_parse(const uint8_t *bytes, size_t length,
                                 struct packet *ret_packet) MUST_USE;

/* The same of the headers of a packet whose payload stands elsewhere. PAYLOAD_LENGTH also for what
 * does not travel so: only SENDs, WRITEs and READ responses of RC do. */
enum packet_refusal packet_parse_reference(const uint8_t *bytes, size_t length,
                                           const struct payload_reference *reference,
                                           struct packet *ret_packet) MUST_USE;

/* Writes BTH and extended headers; returns their length. `payload_length` sets the pad count. The
 * caller appends payload, pad (packet_pad) and ICRC. */
uint32_t packet_build(const struct packet *packet, uint8_t ret_header[PACKET_HEADER_MAX]);

/* One line for traces: "WRITE_FIRST qp=17 psn=7 len=1024" and the fields of its headers, other
 * services than RC named before it ("UD SEND_ONLY"). Returns the length that the whole line needs,
 * like snprintf. */
size_t packet_describe(const struct packet *packet, char *ret_text, size_t capacity);

#endif
