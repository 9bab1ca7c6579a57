/* What the files of cm share: the connection, the tables that find it, and the calls between the
 * files. Only the cm folder includes this, and sim/storm, to see that nothing is left.
 *
 *   cm.c           create and destroy, dispatch of messages, timers
 *   cm_table.c     the pool of connections, communication ids, the peer's names for a connection
 *   cm_send.c      messages out: of a connection, and to strangers
 *   cm_event.c     events to the caller
 *   cm_listener.c  who listens to what
 *   cm_active.c    REQ sent .. RTU sent
 *   cm_passive.c   REQ received .. RTU received
 *   cm_close.c     rejects, disconnects, time-wait, release
 *   cm_service.c   service id resolution: SIDR_REQ and SIDR_REP, both sides
 *   cm_will.c      what is owed to peers, told to whoever outlives us; doing that for the dead
 *
 * No allocation after create but that of a listener. What a connection has only while messages are
 * under way comes from pools: one that is established and idle has none of it. */
#ifndef WEIR_CM_CM_PRIVATE_H
#define WEIR_CM_CM_PRIVATE_H

#include "rnic/base/hash.h"
#include "rnic/base/list.h"
#include "rnic/base/pool.h"
#include "rnic/base/secret.h"
#include "rnic/base/timers.h"
#include "rnic/cm/cm.h"

/* What survives between two events [IBA 12.9.5 to 12.9.7]. "MRA sent" is CM_REQ_RECEIVED or
 * CM_REP_RECEIVED with an MRA as the message that is kept; "DREQ received" does not exist, since
 * the DREP leaves at once. */
enum cm_state {
    CM_OVER, /* owes nothing and expects nothing; lives until it is released */
    CM_REQ_SENT,
    CM_REP_RECEIVED,
    CM_REQ_RECEIVED,
    CM_REP_SENT,
    CM_ESTABLISHED,
    CM_DREQ_SENT,
    CM_REJ_SENT, /* remembers its REJ for a while, for a peer that did not get it */
    CM_TIME_WAIT,
    CM_DREQ_UNHEARD, /* over for the caller, after time-wait; the peer may believe in it yet */
    CM_SIDR_REQ_SENT,
    CM_SIDR_REQ_RECEIVED,
    CM_SIDR_REP_SENT, /* remembers its SIDR_REP for a while, as CM_REJ_SENT does its REJ */
};

/* From cm->pending. */
struct cm_pending_event {
    struct list_node node;         /* in cm->events */
    struct cm_pending_event *next; /* of the same connection, in no order */
    struct cm_event event;
};

/* Passive: REQUEST, ESTABLISHED, DISCONNECTED, TIME_WAIT_OVER; active: fewer. */
#define CM_PENDING_MAX 4u

/* Transport service types of a REQ, and the one extended type that there is. [IBA annex A14] */
#define CM_TRANSPORT_UC           1u
#define CM_TRANSPORT_EXTENDED     3u
#define CM_EXTENDED_TRANSPORT_XRC 1u

struct cm_connection {
    struct cm *cm;
    struct list_node node; /* free: in cm->unused; answered and released: in cm->rejected */
    enum cm_state state;
    bool active;
    bool is_xrc;                    /* from an initiator to a target */
    bool is_resolution;             /* of a service id; never a connection */
    bool announced;                 /* the caller knows it: it asked for it, or took the REQUEST */
    bool released;                  /* and does not any more */
    bool remote_known;              /* remote_id is */
    bool is_unheard;                /* no answer to a DREQ for what the peer had confirmed */
    bool named_by_id, named_by_qpn; /* is in the table of by_remote_id, by_remote_qpn */
    uint8_t ack_timeout;
    uint8_t max_retries, retries_left;
    uint8_t stretches_left; /* MRAs that we let the peer send */
    enum cm_debt kept_debt; /* of the will that is kept, see cm_config */
    uint32_t local_id, remote_id;
    uint64_t transaction; /* of the exchange under way; replies repeat the peer's */
    uint64_t request_transaction;
    uint64_t probe_transaction; /* of the latest probe; 0: none was sent */
    struct instant probed;
    uint64_t service_id;
    struct path path; /* to the peer */
    struct qpn local_qpn, remote_qpn;
    void *context;
    struct hash_node by_id;
    /* The names that the peer gave: its communication id (of a resolution: its request id) and its
     * QPN, at its GID. */
    struct hash_node by_remote_id, by_remote_qpn;

    struct cm_listener *listener; /* until the caller has answered the request or released it */
    struct list_node waiting;     /* in listener->waiting */

    struct timer timer;
    uint64_t timeout_ns; /* per try of REQ or REP */
    uint64_t granted_ns; /* the wait that our own MRA has asked of the peer */

    enum cm_message_kind mad_kind;
    uint8_t *mad; /* the latest message, for repeating it; from cm->mads, NULL: see cm_send.c */
    struct list_node unsent; /* in cm->unsent: the device was full */

    struct cm_pending_event *pending; /* CM_PENDING_MAX at most */
};

#define CM_LISTENER_CHAINS 512u

struct cm_listener {
    struct cm *cm;
    struct list_node node; /* in its chain of cm->listeners */
    uint64_t service_id;
    struct gid address; /* zero: any */
    uint32_t backlog, waiting_count;
    struct list waiting;
    void *context;
};

struct cm {
    struct cm_config config;
    struct management_handler handler;
    struct secret secret;
    struct instant now; /* of the latest call that told it */
    struct instant retry_sending;

    struct cm_connection *connections;
    uint32_t connections_touched; /* those beyond have never been used */
    uint32_t connections_alive;
    uint32_t half_open; /* in CM_REP_SENT: nothing proves yet that their peers exist */
    uint32_t repeats;   /* REPs to such peers that a timer has repeated since */
    struct instant repeats_since;
    struct list unused;
    struct list rejected; /* REJ, SIDR_REP, or a DREQ that nobody hears; may be taken back when
                           * there is no room: oldest first */
    struct hash by_id;
    struct hash by_remote_id, by_remote_qpn, by_request_id;
    struct siphash_key hash_key;

    struct list listeners[CM_LISTENER_CHAINS]; /* by service id */
    uint32_t listener_count;
    struct list events; /* of struct cm_pending_event, oldest first */
    struct pool pending;
    struct list unsent; /* of struct cm_connection */
    struct pool mads;
    struct timers timers;
};

/* cm_table.c */

/* A connection in CM_OVER with a fresh id, or NULL. */
struct cm_connection *cm_table_take(struct cm *cm);
/* The same with an id that another process of this host gave out; NULL, too, if it is here already.
 */
struct cm_connection *cm_table_take_as(struct cm *cm, uint32_t local_id);
/* Out of all tables and lists, ready to be taken again. */
void cm_table_give(struct cm_connection *connection);
struct cm_connection *cm_table_find(const struct cm *cm, uint32_t local_id);
/* True for ids that no other process of this host gives out. */
bool cm_table_is_ours(const struct cm *cm, uint32_t local_id);

void cm_table_name_by_id(struct cm_connection *connection, uint32_t remote_id);
void cm_table_name_by_qpn(struct cm_connection *connection, struct qpn remote_qpn);
void cm_table_forget_id(struct cm_connection *connection);
void cm_table_forget_qpn(struct cm_connection *connection);
struct cm_connection *cm_table_find_by_remote_id(const struct cm *cm, const struct gid *peer,
                                                 uint32_t remote_id);
/* The passive resolution that this request of the peer's began. */
struct cm_connection *cm_table_find_by_request_id(const struct cm *cm, const struct gid *peer,
                                                  uint32_t request_id);
struct cm_connection *cm_table_find_by_remote_qpn(const struct cm *cm, const struct gid *peer,
                                                  struct qpn remote_qpn);

/* cm_send.c */

/* Sends it as this connection's last message: ids, transaction are filled in. */
void cm_send(struct cm_connection *connection, struct cm_message *message);
/* The same, but it does not leave: only when the peer repeats what it answers, or cm_send_again. */
void cm_send_if_asked(struct cm_connection *connection, struct cm_message *message);
void cm_send_again(struct cm_connection *connection);
/* The last message is not to be repeated. It still leaves, where it has not yet. */
void cm_send_settled(struct cm_connection *connection);
/* One message without a connection behind it: lost where the device is full. */
void cm_send_stray(struct cm *cm, const struct arrival *arrival, const struct cm_message *message);
/* A REJ as the answer to `message`, which belongs to no connection. */
void cm_send_stray_reject(struct cm *cm, const struct arrival *arrival,
                          const struct cm_message *message, uint16_t reason);
void cm_send_unsent(struct cm *cm);

/* cm_event.c */

/* `message`: where parameters, private data and reason come from; NULL: there are none. Nothing
 * happens to a released connection. */
void cm_event_raise(struct cm_connection *connection, enum cm_event_kind kind,
                    const struct cm_message *message);
/* Takes back all events of a connection that wait. */
void cm_event_withdraw(struct cm_connection *connection);

/* cm_listener.c */

struct cm_listener *cm_listener_find(const struct cm *cm, uint64_t service_id,
                                     const struct gid *address);
bool cm_listener_has_room(const struct cm_listener *listener);
void cm_listener_add(struct cm_listener *listener, struct cm_connection *connection);
/* Answered, or released. Does nothing to one that waits nowhere. */
void cm_listener_remove(struct cm_connection *connection);

/* cm_active.c */
void cm_active_receive_reply(struct cm_connection *connection, const struct arrival *arrival,
                             const struct cm_message *message);
void cm_active_give_up(struct cm_connection *connection);

/* cm_passive.c */
void cm_passive_receive_request(struct cm *cm, const struct arrival *arrival,
                                const struct cm_message *message);
void cm_passive_receive_ready(struct cm_connection *connection, const struct cm_message *message);
/* So many are half-open that one which is given up is not worth more than a word. */
bool cm_passive_is_crowded(const struct cm *cm);
/* A while without an RTU. */
void cm_passive_repeat(struct cm_connection *connection);
void cm_passive_give_up(struct cm_connection *connection);

/* cm_close.c */
void cm_close_receive_reject(struct cm_connection *connection, const struct cm_message *message);
void cm_close_receive_request(struct cm_connection *connection, const struct arrival *arrival,
                              const struct cm_message *message);
void cm_close_receive_reply(struct cm_connection *connection, const struct cm_message *message);
/* A DREP to a DREQ that belongs to no connection, or to one that has ended already. */
void cm_close_answer_stray(struct cm *cm, const struct arrival *arrival,
                           const struct cm_message *message);
/* A request names its peer's queue pair anew: the peer has forgotten this connection [IBA
 * 12.9.8.3.1], or somebody else lies. The peer is asked. */
void cm_close_suspect(struct cm_connection *connection);
/* No answer to the DREQ, after some tries or after all. */
void cm_close_give_up(struct cm_connection *connection);
/* Sends a REJ and remembers it; `data` may be NULL. */
void cm_close_reject(struct cm_connection *connection, uint16_t reason, const void *data,
                     uint8_t length);
void cm_close_wait(struct cm_connection *connection);
void cm_close_wait_over(struct cm_connection *connection);
/* Nothing is owed any more; if nobody knows it either, it is gone when this returns. */
void cm_close_finish(struct cm_connection *connection);
/* Frees it if it is over, released and has sent everything. */
void cm_close_free_if_done(struct cm_connection *connection);

/* The answered one that nobody will release may go when its room is needed. */
void cm_close_offer_room(struct cm_connection *connection);

/* cm_service.c */
void cm_service_receive_request(struct cm *cm, const struct arrival *arrival,
                                const struct cm_message *message);
void cm_service_receive_reply(struct cm_connection *connection, const struct cm_message *message);
void cm_service_give_up(struct cm_connection *connection);
/* Answers a request with a refusal. */
void cm_service_end(struct cm_connection *connection, enum cm_sidr_status sidr_status);

/* cm_will.c */

/* To be called when the connection's state has changed. */
void cm_will_keep(struct cm_connection *connection);

/* cm.c */

/* Changes the state and stops the timer. */
void cm_enter(struct cm_connection *connection, enum cm_state state);
void cm_start_timer(struct cm_connection *connection, uint64_t duration_ns);
/* 4.096 us * 2^exponent, the exponent held to what a peer may ask of us: `least` .. `most`. */
uint64_t cm_timeout_ns(uint8_t exponent, uint8_t least, uint8_t most);
/* False for more private data than the kind takes. */
bool cm_copy_private(struct cm_message *message, const void *data, uint8_t length);

#define CM_EXPONENT_MAX 31u
/* What a peer's exponents may make us do: repeat after 67 ms at the soonest, 17 s at the latest. */
#define CM_PEER_EXPONENT_LEAST 14u
#define CM_PEER_EXPONENT_MOST  22u
#define CM_STRETCH_MOST        24u /* 69 s more for an MRA */
#define CM_RETRIES_MAX         15u
#define CM_REMEMBER_MOST_NS    UINT64_C(10000000000) /* an answer, for a peer that did not get it */

#define CM_RESPONSE_TIMEOUT_DEFAULT 20u

#define CM_ANSWERED_REQ   0u
#define CM_ANSWERED_REP   1u
#define CM_ANSWERED_OTHER 2u

#endif
