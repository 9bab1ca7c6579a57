/* Channels: connections that carry messages of any size, and puts and gets into registered memory,
 * over RDMA verbs.
 *
 * A poller runs everything of one thread: its connections' callbacks are called from weir_poll and
 * from nowhere else. A poller and what belongs to it are used by one thread at a time. A callback
 * may make any call but weir_poll and weir_poller_destroy. A forked child leaves all of it alone;
 * it may open a fabric of its own.
 *
 * Flow control: a sender never meets a receiver without a buffer. Messages beyond the peer's credit
 * wait in the sender, in order; weir_send does not fail for want of credit. Who answers a peer that
 * may take no answers bounds what waits, by `done` or weir_sends_waiting.
 *
 * Order: messages arrive in the order sent; a put's notice arrives in order with messages of the
 * same connection, after all bytes of the put; a put without notice is seen by the peer no later
 * than the next notice or message sent after the put's completion. */
#ifndef WEIR_CHANNEL_H
#define WEIR_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/error.h>
#include <weir/fabric.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct weir_poller;
struct weir_listener;
struct weir_connection;

enum weir_status weir_poller_create(struct weir_fabric *fabric, struct weir_poller **ret_poller,
                                    struct weir_error *ret_error);
/* Closes what is left open, without callbacks. NULL is fine. */
void weir_poller_destroy(struct weir_poller *poller);
/* Runs callbacks that are due, waits up to timeout_ms (0: not at all, -1: without end) for the
 * first. Spins a little before it sleeps. Returns the number of callbacks run, a wake being one, or
 * -1 on a signal that came while it slept: a handler that calls weir_wake is heard whenever it
 * does. While it does not sleep it looks at sockets, and hears weir_wake, every 0.1 ms. */
int weir_poll(struct weir_poller *poller, int timeout_ms);
/* Readable when weir_poll has something to do, for programs with an event loop of their own. Call
 * weir_poll(poller, 0) until it returns 0 before sleeping on it; what is begun after that, sends
 * and timers too, makes it readable when it is time. Once somebody has asked for it, that costs
 * some system calls each time: who only spins does without. */
int weir_poller_fd(struct weir_poller *poller);
/* Has weir_poll return soon, whether it sleeps now or is called later. The one call that any
 * thread, and a signal's handler, may make, as long as the poller lives. */
void weir_wake(struct weir_poller *poller);
struct weir_fabric *weir_poller_fabric(struct weir_poller *poller);

enum weir_bootstrap {
    WEIR_BOOTSTRAP_CM,  /* rdma_cm */
    WEIR_BOOTSTRAP_TCP, /* a TCP connection exchanges the queue pairs' parameters and watches the
                           peer's life afterwards. Which GID and queue pairs packets go to is the
                           peer's word: its RDMA address need not be the one it connects from */
};

struct weir_channel_options {
    enum weir_bootstrap bootstrap;
    unsigned lanes;              /* queue pairs for puts and gets beside the message one, 0..16;
                                    0: all share one; the smaller of both sides' counts */
    size_t eager_length;         /* longest message sent through buffers, 64 B..16 MiB; 0: 8 KiB */
    unsigned eager_buffers;      /* receive buffers on this side, as many as the device takes on a
                                    queue pair less 14, at most 16384; 0: 64 */
    size_t message_length_max;   /* longest message this side takes; 0: 64 MiB; up to 2^31 */
    unsigned connect_timeout_ms; /* 0: 5000 */
    unsigned silence_timeout_ms; /* a peer that says nothing for so long, and does not answer when
                                    asked, is lost; at least 100; 0: 5000 */
};

/* The life of a connection. A slot may be NULL. */
struct weir_handler {
    /* Established; puts, gets and sends may begin (sends may be posted before and wait). */
    void (*opened)(struct weir_connection *connection, void *user);
    /* A whole message. `bytes` is valid until this returns. */
    void (*received)(struct weir_connection *connection, const void *bytes, size_t length,
                     void *user);
    /* A put with notice has arrived, all its bytes are in place. How many, and where, is the peer's
     * word: anywhere in what it may write. */
    void (*noticed)(struct weir_connection *connection, uint32_t notice, size_t length, void *user);
    /* The end, for whatever reason, also of a connect that failed; every operation under way has
     * completed before. Nothing of the connection is called after it; the connection is freed when
     * it returns. Called exactly once, unless the poller is destroyed before. */
    void (*closed)(struct weir_connection *connection, const struct weir_error *reason, void *user);
};

/* `accepted` is called for each new connection before its first event; it returns true and the
 * handler and user to go on with, or false to refuse. */
typedef bool weir_accept_callback(struct weir_connection *connection, void *listener_user,
                                  struct weir_handler *ret_handler, void **ret_user);
/* Only there, before it returns false: why. The first 28 characters become part of the peer's error
 * message. */
void weir_refuse(struct weir_connection *connection, const char *words);
/* Of connections that are not up yet a listener holds 256, of one host 128; a client for whom there
 * is no room tries again until its connect timeout.
 *
 * `address`: "HOST:PORT", "[V6]:PORT", ":PORT" or "*:PORT" for all addresses, of IPv4 and IPv6;
 * port 0: any free one. */
enum weir_status weir_listen(struct weir_poller *poller, const char *address,
                             const struct weir_channel_options *options,
                             weir_accept_callback *accepted, void *user,
                             struct weir_listener **ret_listener, struct weir_error *ret_error);
/* "127.0.0.1:7471": the address it listens on, with the real port; "[::]:7471" for all; of one link
 * "[fe80::7%eth0]:7471", by the name that the link has here. */
const char *weir_listener_address(const struct weir_listener *listener);
/* May be called from `accepted`, too. Connections that were accepted come up as if it were open; by
 * rdma_cm its port is in use until those with lanes are. NULL is fine. */
void weir_listener_close(struct weir_listener *listener);

/* Begins to connect; opened or closed tells how it went. Fails at once only for bad arguments, a
 * name that is none (it is looked up before this returns), or when the system refuses. Of a name
 * with several addresses each is tried in turn, in its share of the connect timeout. `handler` is
 * copied. */
enum weir_status weir_connect(struct weir_poller *poller, const char *address,
                              const struct weir_channel_options *options,
                              const struct weir_handler *handler, void *user,
                              struct weir_connection **ret_connection,
                              struct weir_error *ret_error);
/* Ends in order: what was sent before is delivered, operations under way complete, then the peer
 * sees DISCONNECTED; closed is called from a later weir_poll with WEIR_OK; or with TIMED_OUT if the
 * peer takes nothing of what is left for a silence timeout; or with DISCONNECTED if the peer
 * closes, too, and much is left: who has sent all takes what still comes for one silence timeout.
 */
void weir_close(struct weir_connection *connection);
/* Ends now; the peer sees the reason as far as it can be told. closed follows from weir_poll. */
void weir_abort(struct weir_connection *connection, const char *reason);
/* The same because the peer broke the protocol that the program speaks: both see PROTOCOL. */
void weir_abort_protocol(struct weir_connection *connection, const char *reason);
/* Ends before it returns: what is under way completes, closed is called, and the device touches no
 * memory for it any more. The peer sees us go without a word. Not from a callback. */
void weir_connection_destroy(struct weir_connection *connection);

/* "192.0.2.7:49152" */
const char *weir_peer_name(const struct weir_connection *connection);
const char *weir_local_name(const struct weir_connection *connection);
void weir_set_user(struct weir_connection *connection, void *user);
void *weir_user(const struct weir_connection *connection);
struct weir_poller *weir_connection_poller(const struct weir_connection *connection);
/* What both ends have agreed on, the same bytes at both once `opened` was called: what each takes,
 * and a random number of the connection. For who authenticates a peer, and wants the proof to be of
 * this connection as both see it. */
#define WEIR_PARAMETERS_LENGTH 32
void weir_connection_parameters(const struct weir_connection *connection,
                                uint8_t ret_bytes[WEIR_PARAMETERS_LENGTH]);

/* An operation ended: status OK, or why not; the memory it used is the caller's again. Called from
 * weir_poll, exactly once per operation, in posting order for sends. */
typedef void weir_done_callback(struct weir_connection *connection, enum weir_status status,
                                void *argument);

/* Sends a message of `length` bytes, 0 included (`bytes` may be NULL then). The bytes stay
 * untouched until `done` is called; with `done` NULL they are copied first. */
enum weir_status weir_send(struct weir_connection *connection, const void *bytes, size_t length,
                           weir_done_callback *done, void *argument);
/* The same of several pieces, joined. */
struct weir_piece {
    const void *bytes;
    size_t length;
};
enum weir_status weir_send_pieces(struct weir_connection *connection,
                                  const struct weir_piece *pieces, unsigned count,
                                  weir_done_callback *done, void *argument);

/* How many messages are here still because the peer has no buffers for them. For who answers a peer
 * that may take no answers, and needs no `done` for each. */
size_t weir_sends_waiting(const struct weir_connection *connection);

/* Copies between registered memory here and a peer's. What the peer's does not grant, by a wrong
 * key, range or right, ends the connection: with ACCESS here; the peer sees us go. */
struct weir_transfer {
    struct weir_memory *memory; /* here */
    size_t offset;
    size_t length; /* at most 2^31 */
    struct weir_remote remote;
    uint64_t remote_offset;
    bool has_notice; /* put only: the peer's `noticed` is called with `notice` */
    uint32_t notice;
};
enum weir_status weir_put(struct weir_connection *connection, const struct weir_transfer *transfer,
                          weir_done_callback *done, void *argument);
enum weir_status weir_get(struct weir_connection *connection, const struct weir_transfer *transfer,
                          weir_done_callback *done, void *argument);

/* Calls `fire` once from weir_poll after delay_ms. With a delay of 0 it takes one back instead, by
 * the same `fire` and `argument`. The next that is set, right after one has fired or was taken
 * back, never lacks memory. */
typedef void weir_timer_callback(void *argument);
enum weir_status weir_timer(struct weir_poller *poller, unsigned delay_ms,
                            weir_timer_callback *fire, void *argument);

struct weir_connection_statistics {
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received; /* of messages */
    uint64_t bytes_put, bytes_got;
    uint64_t waits_for_credit; /* messages and notices that had to wait for the peer's */
};
void weir_connection_statistics(const struct weir_connection *connection,
                                struct weir_connection_statistics *ret_statistics);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
