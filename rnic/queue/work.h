/* Work requests and completions: the records that cross between application and engine. */
#ifndef WEIR_QUEUE_WORK_H
#define WEIR_QUEUE_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/wire/ids.h"
#include "rnic/wire/path.h"

#define MESSAGE_LENGTH_MAX (UINT32_C(1) << 31) /* bytes [IBA 9.7.1] */

/* No queue is created larger; far above what a device offers, so that sizes cannot overflow. */
#define QUEUE_CAPACITY_MAX (UINT32_C(1) << 24)
#define QUEUE_SGE_MAX      1024u
#define QUEUE_INLINE_MAX   65536u

struct sge {
    uint64_t address;
    uint32_t length; /* bytes */
    struct memory_key key;
};

enum work_kind {
    WORK_SEND,
    WORK_SEND_IMMEDIATE,
    WORK_SEND_INVALIDATE,
    WORK_WRITE,
    WORK_WRITE_IMMEDIATE,
    WORK_READ,
    WORK_COMPARE_SWAP,
    WORK_FETCH_ADD,
    WORK_ATOMIC_WRITE, /* eight bytes: of the SGEs, or, without any, `swap_or_add` as it lies */
    WORK_LOCAL_INVALIDATE,
    WORK_BIND_WINDOW,
    WORK_KIND_COUNT,
};

/* Where a datagram goes. */
struct datagram_target {
    struct path path;
    struct qpn qpn;
    struct qkey qkey;
};

/* Which part of a region a memory window is to open. */
struct window_bind {
    struct memory_key window; /* any variant of the window's key */
    struct memory_key key;    /* the one it is to have from then on */
    struct memory_key region;
    uint64_t address; /* as users of the region's key name it */
    uint64_t length;  /* bytes; 0: the window opens nothing (type 1 only) */
    unsigned access;  /* of enum access: REMOTE_* and ZERO_BASED count */
};

struct send_request {
    uint64_t id;
    enum work_kind kind;
    bool signaled;
    bool solicited;
    bool fence;
    bool inline_data; /* the bytes are copied from the addresses now; keys are not looked at */
    const struct sge *sges; /* borrowed for the call */
    uint32_t sge_count;
    uint32_t immediate;           /* opaque bytes, see struct packet */
    struct memory_key invalidate; /* remote for SEND_INVALIDATE, local for LOCAL_INVALIDATE */
    uint64_t remote_address;
    struct memory_key remote_key;
    uint64_t compare;
    uint64_t swap_or_add;
    uint32_t xrc_srq;                     /* XRC only: the peer's shared receive queue, 24 bits */
    const struct datagram_target *target; /* UD only; borrowed for the call */
    const struct window_bind *bind;       /* BIND_WINDOW only; borrowed for the call */
};

struct receive_request {
    uint64_t id;
    const struct sge *sges; /* borrowed for the call */
    uint32_t sge_count;
};

/* In the order and with the values of enum ibv_wc_status. */
enum completion_status {
    COMPLETION_SUCCESS,
    COMPLETION_LOCAL_LENGTH_ERROR,
    COMPLETION_LOCAL_QP_OPERATION_ERROR,
    COMPLETION_LOCAL_EEC_OPERATION_ERROR,
    COMPLETION_LOCAL_PROTECTION_ERROR,
    COMPLETION_FLUSHED,
    COMPLETION_WINDOW_BIND_ERROR, /* of local invalidates too [IBA 11.6.2] */
    COMPLETION_BAD_RESPONSE_ERROR,
    COMPLETION_LOCAL_ACCESS_ERROR,
    COMPLETION_REMOTE_INVALID_REQUEST_ERROR,
    COMPLETION_REMOTE_ACCESS_ERROR,
    COMPLETION_REMOTE_OPERATION_ERROR,
    COMPLETION_RETRY_EXCEEDED,
    COMPLETION_RNR_RETRY_EXCEEDED,
    COMPLETION_LOCAL_RDD_VIOLATION, /* this and the next seven: never given */
    COMPLETION_REMOTE_INVALID_RD_REQUEST,
    COMPLETION_REMOTE_ABORTED,
    COMPLETION_INVALID_EECN,
    COMPLETION_INVALID_EEC_STATE,
    COMPLETION_FATAL,
    COMPLETION_RESPONSE_TIMEOUT,
    COMPLETION_GENERAL_ERROR,
    COMPLETION_TAG_ERROR,
    COMPLETION_TAG_RENDEZVOUS_INCOMPLETE,
    COMPLETION_STATUS_COUNT,
};

enum completion_kind {
    COMPLETED_SEND,
    COMPLETED_WRITE,
    COMPLETED_READ,
    COMPLETED_COMPARE_SWAP,
    COMPLETED_FETCH_ADD,
    COMPLETED_ATOMIC_WRITE,
    COMPLETED_LOCAL_INVALIDATE,
    COMPLETED_BIND_WINDOW,
    COMPLETED_RECEIVE,
    COMPLETED_TAG_ADD,
    COMPLETED_TAG_REMOVE,
    COMPLETED_TAG_SYNC,
    COMPLETED_TAG_RECEIVE,             /* of a message with a tag: tag_flags say how far */
    COMPLETED_TAG_NONE,                /* of one that says that it has none */
    COMPLETED_RECEIVE_WRITE_IMMEDIATE, /* a peer's WRITE with immediate consumed the receive */
};

struct completion {
    uint64_t id;
    enum completion_status status;
    enum completion_kind kind; /* meaningful on success only, as in verbs */
    uint32_t byte_length;      /* received bytes (UD: with the 40 of the GRH), or read bytes */
    struct qpn qpn;            /* the local queue pair */
    struct qpn source;         /* UD: the sender */
    uint32_t immediate;        /* opaque bytes */
    struct memory_key invalidated;
    uint64_t tag; /* of a match, with what the sender said besides */
    uint32_t tag_context;
    uint32_t detail;   /* of a failure; RETRY_EXCEEDED: see transport/trouble.h; 0: there is none */
    uint8_t tag_flags; /* of transport/tag.h */
    bool has_immediate : 1;
    bool has_invalidated : 1;
    bool has_grh : 1;
    bool grh_is_ipv4 : 1; /* the last 20 of its 40 bytes are the IPv4 header */
    uint16_t source_lid;  /* UD: of the sender, see gid_lid */
    struct instant time;  /* when the engine made it */
};

/* "retry exceeded", static. */
const char *completion_status_name(enum completion_status status);

#endif
