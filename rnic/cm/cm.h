/* Connection management over QP1: from "connect to this service" to two queue pairs' parameters,
 * and the end of it. Knows nothing of IP ports: rdma_cm's meaning of service ids and private data
 * is the caller's. Queue pairs are the caller's too: cm says when, the caller modifies them.
 *
 * Sans-I/O, under the engine's lock, like the device. [IBA chapter 12] */
#ifndef WEIR_CM_CM_H
#define WEIR_CM_CM_H

#include "rnic/base/allocator.h"
#include "rnic/base/siphash.h"
#include "rnic/base/status.h"
#include "rnic/base/time.h"
#include "rnic/device/device.h"
#include "rnic/wire/mad.h"

struct cm;
struct cm_listener;
struct cm_connection;

/* What each side tells the other about its queue pair. */
struct cm_parameters {
    struct qpn qpn;
    struct psn starting_psn; /* the first PSN this side wants to receive [IBA 12.7, Starting PSN] */
    uint8_t responder_resources; /* READs and atomics this side takes at once */
    uint8_t initiator_depth;     /* those it will have outstanding */
    uint8_t retry_count;         /* REQ only */
    uint8_t rnr_retry_count;
    uint8_t ack_timeout;    /* REQ only; exponent, to be used by both sides */
    enum path_mtu path_mtu; /* REQ only */
    bool flow_control;
    bool shared_receive_queue;
    uint8_t transport_service; /* REQ only: 0 RC, 1 UC, 3 XRC */
    struct qkey qkey;          /* SIDR_REP only */
    struct cm_ece ece;         /* REQ, REP, SIDR_REP */
    uint8_t private_data[CM_PRIVATE_MAX];
    uint8_t private_length; /* sent: bytes given; received: the kind's whole field */
};

enum cm_event_kind {
    CM_EVENT_REQUEST,     /* passive: a REQ; answer with cm_accept or cm_reject */
    CM_EVENT_REPLY,       /* active: a REP; bring the queue pair up, then cm_confirm */
    CM_EVENT_ESTABLISHED, /* passive: the RTU came (or cm_data_arrived said so) */
    CM_EVENT_REJECTED,    /* reason and private data of the REJ */
    CM_EVENT_UNREACHABLE, /* no answer to REQ or REP after all retries; TIME_WAIT_OVER follows REP's
                           */
    CM_EVENT_DISCONNECTED,    /* the peer's DREQ, the answer to ours, or none for four seconds */
    CM_EVENT_TIME_WAIT_OVER,  /* the queue pair's number may be used again */
    CM_EVENT_SERVICE_REQUEST, /* passive: a SIDR_REQ; cm_service_accept or cm_service_reject it */
    CM_EVENT_SERVICE_REPLY,   /* active: a SIDR_REP; what it says is `sidr_status` */
};

struct cm_event {
    enum cm_event_kind kind;
    struct cm_connection *connection;
    void *context;       /* the connection's; for both REQUESTs the listener's */
    struct path path;    /* both REQUESTs: back to the peer */
    uint64_t service_id; /* both REQUESTs */
    /* REQUEST, REPLY; of SERVICE_REPLY QPN and Q_Key; private data also of REJ, RTU, DREQ, DREP. */
    struct cm_parameters parameters;
    uint16_t reject_reason;
    uint8_t sidr_status;
};

/* What somebody else needs to end a connection for us should we die: what is owed to the peer, and
 * the facts that the message is made of. */
enum cm_debt {
    CM_DEBT_NONE,
    CM_DEBT_TIMEOUT,        /* a REJ: it need not answer our REQ any more */
    CM_DEBT_REJECT_REQUEST, /* a REJ to its REQ */
    CM_DEBT_REJECT_REPLY,   /* a REJ to its REP */
    CM_DEBT_DISCONNECT,     /* a DREQ, repeated until it answers */
    CM_DEBT_COUNT,
};

struct cm_will {
    enum cm_debt debt;
    uint32_t local_id, remote_id; /* remote_id: but for TIMEOUT */
    uint64_t transaction;
    struct path path;
    struct qpn local_qpn, remote_qpn;
    uint8_t ack_timeout;
};

struct cm_config {
    struct allocator *allocator;
    struct device *device;
    struct siphash_key key;  /* of all that peers must not guess: ids, transactions */
    uint32_t id_prefix;      /* what the upper bits of every communication id we give out are, */
    uint32_t id_prefix_bits; /* so that several processes can share QP1; 0: none, at most 24 */
    /* True: no living process of this host gives out such ids, so we answer for who did. NULL: no
     * other process is answered for. */
    bool (*is_nobodys)(void *context, uint32_t communication_id);
    void *is_nobodys_context;
    /* Keeps the will of connection `index`, below max_connections, in place of the one before;
     * NULL: nothing is owed any more. Called by whatever changes a connection. NULL: wills are not
     * kept. */
    void (*keep_will)(void *context, uint32_t index, const struct cm_will *will);
    void *keep_will_context;
    uint32_t max_connections; /* bound on state, also of requests by strangers */
    uint64_t ca_guid;
    void (*wake)(void *context); /* an event was queued where none was; may be NULL */
    void *wake_context;
};

/* Registers itself as the device's management handler. INVALID: a prefix that does not fit its
 * bits, or connections that are not between 1 and half the ids. */
enum status cm_create(const struct cm_config *config, struct cm **ret_cm) MUST_USE;
void cm_destroy(struct cm *cm);

void cm_advance(struct cm *cm, struct instant now);
struct instant cm_next_deadline(const struct cm *cm);
/* Takes the oldest event; false if there is none. */
bool cm_next_event(struct cm *cm, struct cm_event *ret_event);

/* `address`: requests to this GID only; NULL: any. IN_USE: somebody here listens there already.
 * `backlog`: requests that wait at most, until they are taken (cm_taken), accepted, rejected or
 * released, those that their peer took back after the caller had seen them included. More are not
 * answered: their peers ask again, as Linux has it, and as its programs count on. (A resolution is
 * rejected.) 0 stands for 1024. */
enum status cm_listen(struct cm *cm, uint64_t service_id, const struct gid *address,
                      uint32_t backlog, void *context, struct cm_listener **ret_listener) MUST_USE;
/* More or fewer from now on. */
void cm_set_backlog(struct cm_listener *listener, uint32_t backlog);
/* Either REQUEST: it is in the hands of who will answer it, and waits in no backlog any more. */
void cm_taken(struct cm_connection *connection);
/* Requests that wait are rejected; what was taken or accepted lives on. */
void cm_unlisten(struct cm_listener *listener);
/* True if a connection here has that peer, by the communication id that the peer gave it. */
bool cm_knows_peer(const struct cm *cm, const struct gid *peer, uint32_t peer_id);

struct cm_connect_request {
    struct path path;
    uint64_t service_id;
    struct cm_parameters parameters;
    void *context;
    uint8_t response_timeout; /* exponent, 4.096 us * 2^n per try; 0 stands for 20 (4.3 s) */
    uint8_t max_retries;      /* 0 stands for 15 */
};
/* FULL: max_connections. INVALID: private data longer than a REQ carries, an exponent above 31,
 * more than 15 retries. What it leads to, later: REPLY, REJECTED or UNREACHABLE. */
enum status cm_connect(struct cm *cm, struct instant now, const struct cm_connect_request *request,
                       struct cm_connection **ret_connection) MUST_USE;

/* STATE: nothing to accept, confirm, reject or disconnect in its state. INVALID: private data
 * longer than the message carries. A REQUEST can be accepted or rejected, a REPLY confirmed or
 * rejected; who has accepted or confirmed can disconnect. The answer to a disconnect is the event
 * DISCONNECTED, at both ends, and TIME_WAIT_OVER after it. */
enum status cm_accept(struct cm_connection *connection, struct instant now,
                      const struct cm_parameters *parameters) MUST_USE;
enum status cm_confirm(struct cm_connection *connection, struct instant now) MUST_USE;
enum status cm_reject(struct cm_connection *connection, struct instant now, uint16_t reason,
                      const void *private_data, uint8_t private_length) MUST_USE;
enum status cm_disconnect(struct cm_connection *connection, struct instant now) MUST_USE;
/* Passive, reply sent: the queue pair has received, which proves that the peer is up. */
void cm_data_arrived(struct cm_connection *connection, struct instant now);
/* "Message received, give me time", after a REQUEST or a REPLY, told to a peer that asks again: it
 * stretches its timeout to 4.096 us * 2^service_timeout. Not told unasked, since a peer that heeds
 * it repeats nothing meanwhile, and so would miss the real answer, too, if that is lost; but to one
 * that will ask for nothing again, and where a reply was to have been repeated by now: a peer with
 * many connections under way may leave that out. A peer of this kind heeds it 15 times, and one
 * that hears no more gives up after its other tries, the stretch counted among them, or three: ask
 * for little. */
enum status cm_delay(struct cm_connection *connection, struct instant now,
                     uint8_t service_timeout) MUST_USE;

/* Service id resolution: how the queue pair for a service's datagrams is found. One question, one
 * answer, nothing to end; a "connection" is only what remembers the question. Private data,
 * response_timeout and max_retries of `request` count, the other parameters do not. Errors as of
 * cm_connect. What it leads to, later: SERVICE_REPLY or UNREACHABLE. [IBA 12.11] */
enum status cm_resolve(struct cm *cm, struct instant now, const struct cm_connect_request *request,
                       struct cm_connection **ret_connection) MUST_USE;
/* The answers to a SERVICE_REQUEST. STATE: it has been answered. INVALID: too much private data, or
 * a rejection with CM_SIDR_SUCCESS. A peer that did not get the answer is given it again. */
enum status cm_service_accept(struct cm_connection *connection, struct instant now,
                              const struct cm_parameters *parameters) MUST_USE;
enum status cm_service_reject(struct cm_connection *connection, struct instant now,
                              enum cm_sidr_status sidr_status, const void *private_data,
                              uint8_t private_length) MUST_USE;

void cm_set_context(struct cm_connection *connection, void *context);
/* The caller will not look at it again: no event names it any more. What is owed to the peer (REJ,
 * DREQ, time-wait) is still done before the memory is reused. */
void cm_release(struct cm_connection *connection, struct instant now);

/* For a process that ends and leaves nobody who would do what it owes: disconnects what stands, and
 * repeats what has not been answered each 100 ms, for 0.9 s. Goodbyes unanswered are those that are
 * still being repeated. */
void cm_say_goodbyes(struct cm *cm, struct instant now);
uint32_t cm_goodbyes_unanswered(const struct cm *cm);

/* Does what a will says: the will of a process of this host that has died, whose ids nobody else
 * gives out any more. No event tells of it. INVALID: the will makes no sense. IN_USE: it is being
 * done already. FULL: max_connections. */
enum status cm_execute_will(struct cm *cm, struct instant now, const struct cm_will *will) MUST_USE;

/* A process whose peers we may be has died: queue pairs of connections that stand wait for the
 * goodbye (device_await_goodbye) until they stand no more. Called before device_mourn. */
void cm_await_goodbyes(struct cm *cm);

/* Connections and listeners alive, released ones in time-wait included; for leak checks. */
uint32_t cm_connection_count(const struct cm *cm);
uint32_t cm_listener_count(const struct cm *cm);

#endif
