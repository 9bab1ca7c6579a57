/* Management datagrams of the communication manager: 256 bytes, parsed and built whole.
 * [IBA 13.4 MAD header, 12.6 CM messages, annex A11 for the rdma_cm private header] */
#ifndef WEIR_WIRE_MAD_H
#define WEIR_WIRE_MAD_H

#include <stddef.h>

#include "rnic/base/status.h"
#include "rnic/wire/ids.h"
#include "rnic/wire/path.h"

#define MAD_LENGTH 256u

/* Attribute ids of class 0x07. [IBA 12.6, table 98] */
enum cm_message_kind {
    CM_MESSAGE_REQ = 0x0010,
    CM_MESSAGE_MRA = 0x0011,
    CM_MESSAGE_REJ = 0x0012,
    CM_MESSAGE_REP = 0x0013,
    CM_MESSAGE_RTU = 0x0014,
    CM_MESSAGE_DREQ = 0x0015,
    CM_MESSAGE_DREP = 0x0016,
    CM_MESSAGE_SIDR_REQ = 0x0017,
    CM_MESSAGE_SIDR_REP = 0x0018,
};

/* Private data bytes that each message carries. */
#define CM_REQ_PRIVATE_MAX      92u
#define CM_MRA_PRIVATE_MAX      222u
#define CM_REJ_PRIVATE_MAX      148u
#define CM_REP_PRIVATE_MAX      196u
#define CM_RTU_PRIVATE_MAX      224u
#define CM_DREQ_PRIVATE_MAX     220u
#define CM_DREP_PRIVATE_MAX     224u
#define CM_SIDR_REQ_PRIVATE_MAX 216u
#define CM_SIDR_REP_PRIVATE_MAX 136u
#define CM_PRIVATE_MAX          224u

/* Reject reasons we give or act on. [IBA 12.6.7.2] */
enum cm_reject_reason {
    CM_REJECT_NO_QP = 1,
    CM_REJECT_NO_EEC = 2,
    CM_REJECT_NO_RESOURCES = 3,
    CM_REJECT_TIMEOUT = 4,
    CM_REJECT_UNSUPPORTED = 5,
    CM_REJECT_INVALID_COMMUNICATION_ID = 6,
    CM_REJECT_INVALID_COMMUNICATION_INSTANCE = 7,
    CM_REJECT_INVALID_SERVICE_ID = 8,
    CM_REJECT_INVALID_TRANSPORT_SERVICE = 9,
    CM_REJECT_STALE_CONNECTION = 10,
    CM_REJECT_RDC_NOT_EXIST = 11,
    CM_REJECT_PRIMARY_GID = 12,
    CM_REJECT_PRIMARY_LID = 13,
    CM_REJECT_INVALID_PATH_MTU = 26,
    CM_REJECT_INSUFFICIENT_RESPONDER_RESOURCES = 27,
    CM_REJECT_CONSUMER = 28,
    CM_REJECT_RNR_RETRY = 29,
    CM_REJECT_DUPLICATE_LOCAL_ID = 30,
    CM_REJECT_VENDOR_OPTION = 35,
};

/* Status of a SIDR_REP. [IBA 12.11.2.1] */
enum cm_sidr_status {
    CM_SIDR_SUCCESS = 0,
    CM_SIDR_UNSUPPORTED = 1, /* no such service */
    CM_SIDR_REJECTED = 2,
    CM_SIDR_NO_QP = 3,
    CM_SIDR_REDIRECT = 4,
    CM_SIDR_UNSUPPORTED_VERSION = 5,
};

/* Enhanced connection establishment: what two adapters of one vendor agree on beyond the
 * specification, by its OUI. Carried and not understood. Zeroes: nothing is offered. */
struct cm_ece {
    uint32_t vendor_id; /* 24 bits */
    uint32_t options;   /* the attribute modifier of the MAD header */
};

/* A CM message, decoded: the union of all kinds' fields, each meaningful where its kind has it.
 *
 * Not here, because RoCE has no use for it: LIDs and the subnet-local bit (built as the kernel
 * does: a hop limit above 1 makes it a routed path with permissive LIDs), the alternate path,
 * end-to-end contexts but that of a REP, which names an XRC target. They are ignored when parsed.
 */
struct cm_message {
    enum cm_message_kind kind;
    uint64_t transaction;
    uint32_t local_id;  /* the sender's communication id; SIDR_REQ: its request id */
    uint32_t remote_id; /* the receiver's; 0 in a REQ and a SIDR_REQ */
    struct cm_ece ece;  /* REQ, REP, SIDR_REP; the other kinds keep `options` only */

    /* REQ */
    uint64_t service_id;    /* SIDR_REQ, SIDR_REP also */
    uint64_t local_ca_guid; /* REQ, REP */
    struct qkey local_qkey; /* REQ, REP, SIDR_REP */
    struct qpn local_qpn;   /* REQ, REP, SIDR_REP; in a DREQ the receiver's QPN (remote QPN) */
    uint8_t responder_resources, initiator_depth; /* REQ, REP */
    struct psn starting_psn;    /* REQ, REP: the first the sender of this message will receive */
    struct qpn local_eecn;      /* REP to an XRC initiator: the target */
    uint8_t transport_service;  /* REQ: 0 RC, 1 UC, 3 as the next one says */
    uint8_t extended_transport; /* REQ: 1 XRC */
    bool flow_control;          /* REQ end-to-end, REP */
    bool shared_receive_queue;  /* REQ, REP */
    uint8_t rnr_retry_count;    /* REQ, REP */
    uint8_t retry_count;        /* REQ */
    uint8_t remote_response_timeout, local_response_timeout; /* REQ, 5-bit exponents */
    uint8_t max_cm_retries;                                  /* REQ */
    struct pkey pkey;                                        /* REQ, SIDR_REQ */
    enum path_mtu path_mtu;                                  /* REQ */
    struct path path;          /* REQ, primary: gids as the sender sees them, tc, hop limit */
    uint8_t service_level;     /* REQ, 4 bits */
    uint8_t packet_rate;       /* REQ, 6 bits */
    uint8_t ack_timeout;       /* REQ primary local ACK timeout, 5 bits */
    uint8_t target_ack_delay;  /* REP */
    uint8_t failover_accepted; /* REP */

    uint8_t service_timeout;    /* MRA, 5 bits */
    uint8_t answered;           /* MRA, REJ: message kind it is about: 0 REQ, 1 REP, 2 other */
    uint16_t reject_reason;     /* REJ */
    uint8_t sidr_status;        /* SIDR_REP */
    uint8_t reject_info_length; /* REJ, SIDR_REP */
    uint8_t reject_info[72];    /* REJ, SIDR_REP */

    uint8_t private_data[CM_PRIVATE_MAX]; /* zero-filled to the kind's maximum */
};

/* MALFORMED: not 256 bytes, or not a CM MAD of a kind above (base version 1, class 7, version 2,
 * method Send). Values are taken as they come: whether an MTU code or a port space means
 * anything is for who acts on it. Of a REQ's path, `source_port` stays 0: it is not in the MAD. */
enum status cm_message_parse(const uint8_t *mad, size_t length,
                             struct cm_message *ret_message) MUST_USE;
/* A hop limit of 0 goes out as 64. */
void cm_message_build(const struct cm_message *message, uint8_t ret_mad[MAD_LENGTH]);
const char *cm_message_kind_name(enum cm_message_kind kind);
uint32_t cm_message_private_max(enum cm_message_kind kind);

/* The first 36 bytes of a REQ's private data where rdma_cm speaks. [IBA A11.6] */
#define RDMA_CM_HEADER_LENGTH 36u
struct rdma_cm_header {
    uint8_t ip_version; /* 4 or 6 */
    uint16_t port;      /* the source port of the active side */
    struct gid source;
    struct gid destination;
};
/* MALFORMED: not version 0, or an IP version other than 4 and 6. */
enum status rdma_cm_header_parse(const uint8_t *private_data,
                                 struct rdma_cm_header *ret_header) MUST_USE;
void rdma_cm_header_build(const struct rdma_cm_header *header,
                          uint8_t ret_private_data[RDMA_CM_HEADER_LENGTH]);

/* Service id of an rdma_cm port: 0x00000000PPPPpppp, PPPP the port space (0x0106 for RDMA_PS_TCP).
 */
static inline uint64_t rdma_cm_service_id(uint16_t port_space, uint16_t port)
{
    return (uint64_t)port_space << 16 | port;
}

#endif
