/* A queue pair: its attributes and states, and the machines inside it.
 *
 * Here: what an application creates, modifies and queries, and how packets and time reach the
 * machines. Not here: how a request becomes packets (requester), what answers do (completer), what
 * arriving requests do (responder): those stand in their own headers and share struct qp through
 * qp_private.h.
 *
 * Every call but qp_post_* and qp_ring is made under the engine's lock. */
#ifndef WEIR_TRANSPORT_QP_H
#define WEIR_TRANSPORT_QP_H

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"
#include "rnic/base/time.h"
#include "rnic/memory/memory.h"
#include "rnic/queue/completion_queue.h"
#include "rnic/queue/receive_queue.h"
#include "rnic/queue/send_queue.h"
#include "rnic/transport/tag.h"
#include "rnic/transport/xrc.h"
#include "rnic/wire/opcode.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

struct qp;

/* [IBA 10.3.1]; values of enum ibv_qp_state. */
enum qp_state {
    QP_RESET,
    QP_INIT,
    QP_RTR, /* ready to receive */
    QP_RTS, /* ready to send */
    QP_SQD, /* send queue drained */
    QP_SQE, /* send queue error (UC, UD) */
    QP_ERROR,
    QP_STATE_COUNT,
};

const char *qp_state_name(enum qp_state state);

struct qp_init {
    enum service service;                         /* RC, UC, UD or XRC */
    struct xrc_domain xrc_domain;                 /* XRC: makes it a target; none: an initiator */
    bool is_deputy;                               /* XRC: of a target of another process */
    struct domain domain;                         /* 0 for a target */
    struct completion_queue *send_completions;    /* NULL for a target */
    struct completion_queue *receive_completions; /* NULL for XRC */
    struct receive_queue *shared_receives;        /* NULL: a receive queue of its own */
    struct tag_matcher *matcher; /* RC: of the shared receives; `send` is tag_send_limits then */
    struct domain shared_domain; /* of the shared receives' buffers; 0: that of the queue pair */
    struct send_queue_limits send;
    uint32_t max_receive; /* requests */
    uint32_t max_receive_sge;
    /* Queues that the caller has made to these limits: the queue pair's own after success. NULL:
     * made with the device's allocator. */
    struct send_queue *sends;
    struct receive_queue *receives;
    bool signal_all;
    void *context; /* the API's object; comes back in events */
    /* Where it is put: qp_bytes(), zeroed, aligned to 8; the caller's, after it has been destroyed
     * or could not be created. NULL: the device's allocator has room for it. */
    void *memory;
};

size_t qp_bytes(const struct qp_init *init);

/* A caller that lends memory keeps what belongs to the queue pair beside it: so much before it, in
 * which the API's object is, and, where `sends` is lent as well, the send queue behind it. Who goes
 * from one of many queue pairs to the next fetches all of that at once. */
#define QP_USUAL_BYTES 488u /* of RC and UC, with one SGE to a receive */
#define QP_BESIDE      224u

/* Which fields of struct qp_attributes a modify sets. */
enum qp_attribute {
    QP_SET_STATE = 1 << 0,
    QP_SET_PATH = 1 << 1,
    QP_SET_PATH_MTU = 1 << 2,
    QP_SET_DESTINATION = 1 << 3,
    QP_SET_RECEIVE_PSN = 1 << 4,
    QP_SET_SEND_PSN = 1 << 5,
    QP_SET_ACCESS = 1 << 6,
    QP_SET_MAX_READS_OUT = 1 << 7,
    QP_SET_MAX_READS_IN = 1 << 8,
    QP_SET_MIN_RNR_TIMER = 1 << 9,
    QP_SET_TIMEOUT = 1 << 10,
    QP_SET_RETRY_COUNT = 1 << 11,
    QP_SET_RNR_RETRY_COUNT = 1 << 12,
    QP_SET_PKEY_INDEX = 1 << 13,
    QP_SET_PORT = 1 << 14,
    QP_SET_QKEY = 1 << 15,
    QP_SET_CURRENT_STATE = 1 << 16, /* the state the caller believes it is in */
    QP_SET_MIGRATION = 1 << 17,     /* of its path: there is no other */
};

struct qp_attributes {
    struct path path;
    struct qpn destination;
    struct psn receive_psn; /* first PSN expected from the peer */
    struct psn send_psn;    /* first PSN of our own */
    struct qkey qkey;
    unsigned access;         /* of enum access; REMOTE_* bits count */
    uint8_t max_reads_out;   /* READs and atomics we may have outstanding (max_rd_atomic) */
    uint8_t max_reads_in;    /* those the peer may (max_dest_rd_atomic) */
    uint8_t min_rnr_timer;   /* 5-bit code [IBA table 45] */
    uint8_t timeout;         /* local ACK timeout 4.096 us * 2^n; 0 is for ever */
    uint8_t retry_count;     /* 0..7 */
    uint8_t rnr_retry_count; /* 0..7, 7 is for ever */
    uint16_t pkey_index;
    uint8_t port;
    enum path_mtu path_mtu : 8;
    enum qp_state state : 8;
    enum qp_state current_state : 8;
};

/* INVALID: attributes missing, not allowed in this transition or out of range, with the offending
 * bits of the mask in *ret_offending (may be NULL). STATE: no such transition.
 * [IBA 10.3.1, and the required/optional table of ibv_modify_qp(3)] */
enum status qp_modify(struct qp *qp, const struct qp_attributes *attributes, unsigned mask,
                      unsigned *ret_offending) MUST_USE;
/* The PSNs are those that come next. */
void qp_query(const struct qp *qp, struct qp_attributes *ret_attributes);

struct qpn qp_number(const struct qp *qp);
enum qp_state qp_current_state(const struct qp *qp);
enum service qp_service(const struct qp *qp);
struct domain qp_domain(const struct qp *qp);
void *qp_context(const struct qp *qp);
/* Its own or the shared one; of a target that which the latest request names, NULL if none. */
const struct receive_queue *qp_receive_queue(const struct qp *qp);
void qp_set_context(struct qp *qp, void *context);

/* Its own datagrams to a group do not come back to it, though it be attached. */
void qp_block_own_multicast(struct qp *qp);
bool qp_is_attached(const struct qp *qp); /* to a group */

/* Posting, by application threads, without the engine's lock; one thread at a time per queue.
 * STATE: the state takes no work. A send posted in ERROR is taken and flushed. Not transmitted
 * until the device's doorbell is rung (device_ring). Other errors as send_queue_post and
 * receive_queue_post; INVALID also for what the service does not offer, for an atomic that is not
 * over 8 local bytes, and for a receive where the queue is shared.
 *
 * A receive needs no doorbell, but where qp_wants_flush says so after posting it, or some: those
 * are to be flushed. */
enum status qp_post_send(struct qp *qp, const struct send_request *request) MUST_USE;
enum status qp_post_receive(struct qp *qp, const struct receive_request *request) MUST_USE;
bool qp_wants_flush(const struct qp *qp);
/* Of a receive that is built in its place, see receive_queue_open. NULL: qp_post_receive says why,
 * or takes it. */
struct sge *qp_open_receive(struct qp *qp, uint32_t sge_count);
void qp_post_opened_receive(struct qp *qp, uint64_t id, uint32_t sge_count);
/* By whoever posts sends: the slot of a SEND, WRITE or READ that is built in its place, see
 * send_queue_open. NULL: qp_post_send says why, or takes it. */
struct send_slot *qp_open_send(struct qp *qp, uint32_t ahead);
enum status qp_post_opened(struct qp *qp, uint32_t count) MUST_USE;
/* By whoever posts sends: what qp_post_send would say if there were room. */
enum status qp_check_send(const struct qp *qp, const struct send_request *request) MUST_USE;
/* By whoever posts sends: how many can be posted now, at least. */
uint32_t qp_send_room(const struct qp *qp);

#endif
