/* A connection: its parts, its states, its end.
 *
 *   CONNECTING -> OPEN -> CLOSING -> ENDED       weir_close: drain, BYE, wait for the peer's end
 *        |         |         |         ^
 *        +---------+-> ABORTING -------+         tell the peer why, for a moment
 *        +---------+---------+---------+         or at once: lost, refused, disconnected
 *
 * ENDED connections are reaped at the end of the poller's round: queue pairs are destroyed, then
 * every operation that is left completes, then `closed` is called, then the memory goes. */
#ifndef WEIR_CHANNEL_CONNECTION_H
#define WEIR_CHANNEL_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/channel.h>

#include "weir/address.h"
#include "weir/channel/buffers.h"
#include "weir/channel/credit.h"
#include "weir/channel/hello.h"
#include "weir/channel/keepalive.h"
#include "weir/channel/lane.h"
#include "weir/channel/message.h"
#include "weir/channel/poller.h"
#include "weir/channel/receiver.h"
#include "weir/channel/sender.h"
#include "weir/channel/transfer.h"

enum connection_state {
    CONNECTION_CONNECTING,
    CONNECTION_OPEN,
    CONNECTION_CLOSING,
    CONNECTION_ABORTING,
    CONNECTION_ENDED,
};

/* The TCP bootstrap's side of a connection. */
struct tcp_link {
    struct source source; /* fd -1: none */
    bool is_connecting;
    uint8_t frame[FRAME_LENGTH]; /* being received */
    size_t frame_length;
    struct endpoint local;
    int gid_index;
};

struct weir_connection {
    struct weir_connection *next, *previous; /* of the poller's list */
    struct weir_connection *next_ended;      /* likewise, of what is to be reaped */
    struct weir_connection *next_stranger, *previous_stranger; /* of the listener's */
    struct weir_poller *poller;
    struct domain *domain;          /* of its queue pairs and of what its peer may reach */
    struct weir_listener *listener; /* NULL: we connected, it is closed, or we are no stranger */
    enum connection_state state;
    bool is_server;
    bool wants_close;  /* weir_close came before it was open */
    bool peer_is_done; /* its BYE came */
    bool is_cut;       /* it ended what we had open: what waits is not sent any more */
    bool is_flushed;   /* the device gave up a queue pair; why is not known yet */
    struct weir_channel_options options; /* defaults filled in */
    struct weir_handler handler;
    void *user;
    struct weir_error reason;
    char refusal[HELLO_WORDS + 1]; /* what the peer is told if it is refused, or has told us */
    char peer_name[ADDRESS_TEXT_MAX];
    char local_name[ADDRESS_TEXT_MAX];
    uint64_t started_ns;
    struct timer life; /* limit of the state: connecting, closing, aborting */
    uint64_t progress; /* what of ours has left; closing is given up when this stands still */
    uint64_t progress_seen;
    bool waits_for_farewell; /* our BYE has arrived: the peer's is given one silence timeout */
    struct sockaddr_storage *targets; /* we connected: the addresses of the name */
    unsigned target_count, target_next;
    unsigned repetitions; /* of attempts for which there was no room */
    struct hello local, peer;
    uint64_t token;
    unsigned lane_count; /* for transfers; 0: they share the message lane */
    struct lane lanes[1 + LANES_MAX];
    struct lane *retiring; /* the lane whose completion is being handled */
    bool has_buffers;
    struct buffers buffers;
    struct credit credit;
    struct sender sender;
    struct receiver receiver;
    struct transfers transfers;
    struct keepalive keepalive;
    struct tcp_link tcp;
    struct weir_connection_statistics statistics;
};

/* Begins to connect to the first of `targets` that answers, each in its share of the time. */
enum weir_status connection_begin(struct weir_poller *poller,
                                  const struct sockaddr_storage *targets, unsigned target_count,
                                  const struct weir_channel_options *resolved,
                                  struct weir_connection **ret_connection,
                                  struct weir_error *ret_error);
/* The address being tried leads nowhere. False: it was the last, or its peer has answered. */
bool connection_try_next(struct weir_connection *connection);
/* The peer has answered with yes: no other address is tried, and the time is all its. */
void connection_answered(struct weir_connection *connection);
/* Its peer has no room now, as `words` say: it is tried once more in a while. False: the time is
 * over. */
bool connection_try_again(struct weir_connection *connection, const char *words);
/* Fills in defaults and checks bounds. */
enum weir_status connection_resolve_options(const struct weir_fabric *fabric,
                                            const struct weir_channel_options *options,
                                            struct weir_channel_options *ret_options,
                                            struct weir_error *ret_error);
enum weir_status connection_create(struct weir_poller *poller,
                                   const struct weir_channel_options *options,
                                   struct weir_connection **ret_connection,
                                   struct weir_error *ret_error);
/* Frees everything without a callback. */
void connection_destroy(struct weir_connection *connection);
void connections_reap(struct weir_poller *poller);

/* The passive side's, before its hello is filled. False: the connection has failed. */
bool connection_choose_token(struct weir_connection *connection);
/* What this side offers in its hello; the length of eager messages both can take, and so on. */
void connection_fill_hello(struct weir_connection *connection, enum hello_purpose purpose,
                           unsigned lanes);
/* Registers its buffers. Before the queue pairs are made. */
enum weir_status connection_prepare(struct weir_connection *connection,
                                    struct weir_error *ret_error);
/* Credit and lanes, when both hellos are known. */
void connection_agree(struct weir_connection *connection);
/* Makes one queue pair. */
enum weir_status connection_add_lane(struct weir_connection *connection, unsigned index,
                                     struct weir_error *ret_error);
/* On the message lane, when its queue pair is in INIT or beyond. */
enum weir_status connection_post_receives(struct weir_connection *connection,
                                          struct weir_error *ret_error);
/* All queue pairs are up on both sides. */
void connection_opened(struct weir_connection *connection);

/* The peer's HELLO_REFUSE: the end, unless it lies at the address or the moment. */
void connection_refused(struct weir_connection *connection, const struct hello *refusal);
/* The end, for a reason that lies here or in the network. Safe in every state. */
void connection_fail(struct weir_connection *connection, enum weir_status status,
                     const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same, and the peer is told first, if it can be. */
void connection_abort(struct weir_connection *connection, enum weir_status status,
                      const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The other end of the connection is gone: rdma_cm or the TCP socket says so. */
void connection_disconnected(struct weir_connection *connection);
/* The device gave up a queue pair of ours without saying why. */
void connection_flushed(struct weir_connection *connection);
/* The peer's BYE, in order, or its ABORT. */
void connection_take_bye(struct weir_connection *connection);
void connection_take_abort(struct weir_connection *connection, const struct message *message);
/* Ends an orderly close if everything is done. */
void connection_advance_close(struct weir_connection *connection);
void connection_end(struct weir_connection *connection);

/* Seconds since it began. */
double connection_age(const struct weir_connection *connection);

#endif
