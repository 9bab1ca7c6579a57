/* Remote procedure calls, with bulk data, over channels.
 *
 * A struct weir_rpc is one poller's: the procedures it serves and calls, the servers it calls
 * (targets), the clients it serves. A process may be both. It is used by the poller's thread, and
 * calls back from weir_poll and from nowhere else, unless said otherwise. A callback may make any
 * call but weir_rpc_destroy.
 *
 * A call is made once, and its `replied` is called exactly once. Between the two it waits for its
 * turn, for a connection, for the server; it may be sent several times, but it runs more than once
 * only if it is said to be idempotent. Calls to one target are sent in the order made; which runs,
 * and is answered, first is the server's business.
 *
 * Small data goes in the request and in the reply, which are messages of a channel. Large data is
 * shown, not sent: a call names memory of the caller's, and while the request is unanswered its
 * server pulls what it wants out of that memory, and pushes into it, without the caller's program.
 * When `replied` is called nobody can reach that memory any more, however the call ended. */
#ifndef WEIR_RPC_H
#define WEIR_RPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/channel.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct weir_rpc;
struct weir_procedure;
struct weir_target;
struct weir_call;
struct weir_request;

/* All zero is a good choice. What a peer may make us hold is bounded by the server's part. */
struct weir_rpc_options {
    /* Of a client, for each target. */
    unsigned in_flight_max; /* calls sent and not answered, at most 4096; 0: 32 */
    unsigned waiting_max;   /* calls behind them; 0: 4096 */
    unsigned timeout_ms;    /* of calls that name none; 0: 10000 */
    unsigned release_ms;    /* see "The end of a call with bulk"; 0: 100 */
    /* Of a server. */
    unsigned requests_max;        /* unanswered, of all clients; 0: 1024 */
    unsigned client_requests_max; /* of one of them, at most 4096; 0: 64 */
    unsigned clients_max;         /* connected at once; 0: 1024 */
    size_t held_length_max;       /* bytes of all requests that are held; 0: 64 MiB */
    /* Of both: their connections. message_length_max, at least 256 and 0 being 1 MiB here, bounds
     * requests and replies, with the 8 to 204 bytes before them; each side says what it takes. */
    struct weir_channel_options channel;
};

enum weir_status weir_rpc_create(struct weir_poller *poller, const struct weir_rpc_options *options,
                                 struct weir_rpc **ret_rpc, struct weir_error *ret_error);
/* Before its poller; not from a callback. Ends all of it before it returns: calls under way are
 * told CANCELED, pulls and pushes end, owners of requests hear that these are gone; what they still
 * have of them after that is no more. Targets are destroyed with it. NULL is fine. */
void weir_rpc_destroy(struct weir_rpc *rpc);
struct weir_poller *weir_rpc_poller(const struct weir_rpc *rpc);

/* --- procedures --- */

/* A request has come. `bytes` are valid until this returns (weir_request_hold). The handler, or
 * whoever it gives the request to, answers it: now or later, once. */
typedef void weir_procedure_handler(struct weir_request *request, const void *bytes, size_t length,
                                    void *user);
#define WEIR_PROCEDURE_NAME_MAX 63
/* Names a procedure: one that is served here, or, `handler` being NULL, one that is only called.
 * Both sides know it by 64 bits of its name's hash. INVALID: it is served here already, or another
 * name here has the same 32 low ones, which mostly go over the wire. It lives as long as the rpc.
 */
enum weir_status weir_rpc_register(struct weir_rpc *rpc, const char *name,
                                   weir_procedure_handler *handler, void *user,
                                   struct weir_procedure **ret_procedure,
                                   struct weir_error *ret_error);
/* Serves it no longer: who calls it hears UNSUPPORTED. Requests that its handler has are answered
 * as before; it may be registered with a handler again. If none serves it nothing changes. */
void weir_rpc_unregister(struct weir_procedure *procedure);
const char *weir_procedure_name(const struct weir_procedure *procedure);

/* --- calling --- */

/* `address` is "HOST:PORT". It is connected when something is called, and again, after a pause that
 * grows from 10 ms to 1 s, while something waits; each time the name is looked up. */
enum weir_status weir_target_create(struct weir_rpc *rpc, const char *address,
                                    struct weir_target **ret_target, struct weir_error *ret_error);
/* Calls that are left are told CANCELED before it returns. NULL is fine. */
void weir_target_destroy(struct weir_target *target);
const char *weir_target_address(const struct weir_target *target);

/* Memory of the caller's that a call shows to its server: WEIR_REMOTE_READ to pull from it,
 * WEIR_REMOTE_WRITE to push into it, or both. It is writable, as all registered memory. */
struct weir_bulk {
    void *bytes;
    size_t length;
    unsigned rights;
};
#define WEIR_BULK_MAX 8

struct weir_call_options {
    unsigned timeout_ms;          /* from here to the reply, whatever it waits for; 0: the rpc's */
    bool is_idempotent;           /* if its connection is lost it may run once more */
    const struct weir_bulk *bulk; /* copied; the memory is used until `replied` */
    unsigned bulk_count;          /* at most WEIR_BULK_MAX */
};

/* How a call ended.
 *
 *   OK           the handler's reply
 *   REFUSED      the handler's refusal: its code and words
 *   UNSUPPORTED  the server has no such procedure
 *   TIMED_OUT    no answer in time. It may run yet
 *   CANCELED     by weir_call_cancel, or what it was made with was destroyed. It may run yet
 *   PEER_LOST    the connection ended after it was sent: it may have run. Not of idempotent ones
 *   TOO_LONG     the request is longer than the server takes
 *   NO_MEMORY    here: to send it, or to show its bulk */
struct weir_reply {
    enum weir_status status;
    uint32_t code;     /* REFUSED */
    const void *bytes; /* OK; valid until `replied` returns */
    size_t length;
    const char *words; /* names server and procedure, and says what went wrong; OK: "" */
};
typedef void weir_replied_callback(const struct weir_reply *reply, void *argument);

/* Calls. The request is the pieces, joined, and copied before this returns. `options` may be NULL,
 * as may `ret_call`: the call, until `replied` is called. Fails at once, without a `replied`, with
 * NO_MEMORY if as many calls of the target wait as may; TOO_LONG beyond any message's length;
 * INVALID; STATE while what it is made with is being destroyed. */
enum weir_status weir_rpc_call(struct weir_target *target, struct weir_procedure *procedure,
                               const struct weir_piece *pieces, unsigned count,
                               const struct weir_call_options *options,
                               weir_replied_callback *replied, void *argument,
                               struct weir_call **ret_call);
/* Has it end with CANCELED, from a later weir_poll, unless how it ends is decided already. */
void weir_call_cancel(struct weir_call *call);

/* The end of a call with bulk.
 *
 * Answered, its server has finished with the memory. Ended by time or by cancel, its server is
 * told, begins nothing more, and says so when what it had begun is done. For that word the call
 * waits; not longer than release_ms, then access is taken away under the server's hands. What it
 * touches after that ends the connection, with all that is sent on it, but changes no byte. So such
 * a call ends in time plus release_ms. */

/* --- serving --- */

/* Address and errors as of weir_listen; one at a time (STATE). */
enum weir_status weir_rpc_listen(struct weir_rpc *rpc, const char *address,
                                 struct weir_error *ret_error);
/* Takes no new clients. */
void weir_rpc_unlisten(struct weir_rpc *rpc);
/* As weir_listener_address; NULL: it does not listen. */
const char *weir_rpc_address(const struct weir_rpc *rpc);

/* Whose room it is: a client may have as many requests with the handlers as there is room left in
 * requests_max, and client_requests_max at most. So of N clients that ask for more than there is
 * each gets 1/(N+1) of it, and one that comes anew finds as much; but where requests_max is less
 * than N+1, some may have none for long. Others hear BUSY, unnoticed by the caller: the client
 * sends half as many at once, and that call again after a pause, as the first. The room grows again
 * by one for each round of replies. */

/* Answers: the reply is the pieces, joined, and copied before this returns.
 *
 * An answer takes the request, whatever became of its client. It stays, to be answered otherwise,
 * after TOO_LONG: the client takes no reply so long; NO_MEMORY; STATE: pulls or pushes are under
 * way; INVALID. With OK it leaves; any other status is the request's: nobody hears it. */
enum weir_status weir_request_reply(struct weir_request *request, const struct weir_piece *pieces,
                                    unsigned count);
/* The caller hears REFUSED, `code`, and the first 200 bytes of `words`. It may be said while pulls
 * and pushes are under way: it leaves when they are done. The request is taken in any case. */
void weir_request_refuse(struct weir_request *request, uint32_t code, const char *words);

/* Its client has gone, or waits no longer for the answer (CANCELED): what is answered is not heard,
 * and must be said all the same, to be rid of the request; from here, if one likes. Called once at
 * most, with what weir_request_on_gone gave. */
typedef void weir_gone_callback(struct weir_request *request, enum weir_status why, void *argument);
/* NULL takes it back. If it has gone already that is told by weir_request_state only. */
void weir_request_on_gone(struct weir_request *request, weir_gone_callback *gone, void *argument);
/* OK: its answer is waited for. CANCELED; or the connection has ended: DISCONNECTED, PEER_LOST. */
enum weir_status weir_request_state(const struct weir_request *request);
/* "192.0.2.7:49152" */
const char *weir_request_peer(const struct weir_request *request);
/* What was left of the call's time when it was sent, rounded down by a sixteenth at most; 507904:
 * that, or more. */
unsigned weir_request_timeout_ms(const struct weir_request *request);

/* Keeps the request's bytes until it is answered: a copy, from a pool. From the handler only, while
 * it has them. NULL: no memory, or held_length_max is reached. */
const void *weir_request_hold(struct weir_request *request);

/* The caller's memory: how much of it, and for what. False: the call shows no such. */
bool weir_request_bulk(const struct weir_request *request, unsigned index, size_t *ret_length,
                       unsigned *ret_rights);
/* A pull or push has ended, its `memory` is the handler's again. Exactly once for each; of a
 * request that was refused meanwhile `request` is only its former name. */
typedef void weir_moved_callback(struct weir_request *request, enum weir_status status,
                                 void *argument);
struct weir_bulk_part {
    unsigned index;             /* which of the call's */
    size_t bulk_offset;         /* there */
    struct weir_memory *memory; /* here: of the fabric */
    size_t offset;
    size_t length; /* at most 2^31 */
};
/* Copies a part of the caller's memory here, or there. Any number at once. ACCESS: there is no such
 * part, or it is not shown for that; INVALID: nor so much memory here; nothing happens then.
 * CANCELED, or another state: the request's. */
enum weir_status weir_request_pull(struct weir_request *request, const struct weir_bulk_part *part,
                                   weir_moved_callback *moved, void *argument);
enum weir_status weir_request_push(struct weir_request *request, const struct weir_bulk_part *part,
                                   weir_moved_callback *moved, void *argument);

/* --- what has been done --- */

struct weir_latency {
    uint64_t count;
    uint64_t least_ns, mean_ns, greatest_ns; /* from weir_rpc_call to `replied` */
};

/* Calls: those to a target, or those of a procedure. */
struct weir_call_statistics {
    unsigned waiting, in_flight;               /* now */
    uint64_t calls;                            /* made */
    uint64_t replies, refused;                 /* refused: also for want of the procedure */
    uint64_t timeouts, canceled, lost, failed; /* failed: TOO_LONG and NO_MEMORY */
    uint64_t retries;                          /* sent again: a connection was lost */
    uint64_t busy;                             /* sent again: the server had no room */
    uint64_t late;                             /* answers when the call had ended */
    uint64_t bytes_sent, bytes_received;       /* in requests and replies */
    struct weir_latency latency;               /* of those that were answered */
};

struct weir_target_statistics {
    struct weir_call_statistics calls;
    unsigned window; /* now: how many may be in flight */
    bool is_connected;
    uint64_t connections; /* made */
};
void weir_target_statistics(const struct weir_target *target,
                            struct weir_target_statistics *ret_statistics);

struct weir_procedure_statistics {
    struct weir_call_statistics calls; /* from here */
    uint64_t requests;                 /* to here */
    uint64_t replies, refused, gone;   /* gone: answered when nobody waited for it any more */
    uint64_t bytes_pulled, bytes_pushed;
};
void weir_procedure_statistics(const struct weir_procedure *procedure,
                               struct weir_procedure_statistics *ret_statistics);

struct weir_server_statistics {
    unsigned clients, requests; /* now; requests: with the handlers */
    size_t held_length;         /* now */
    uint64_t clients_taken, clients_refused;
    uint64_t busy;    /* said */
    uint64_t unknown; /* requests for what is not served here */
    uint64_t broken;  /* connections that ended because the client broke the protocol */
};
void weir_rpc_server_statistics(const struct weir_rpc *rpc,
                                struct weir_server_statistics *ret_statistics);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
