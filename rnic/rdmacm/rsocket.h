/* What the files of rsockets share: the socket that an application's descriptor stands for, in its
 * two kinds.
 *
 * Counters with one writer stand in pairs instead of a balance that two would change: posted and
 * done, read and granted. Locks, outermost first: `connect_lock`; `send_lock`, `receive_lock` (one
 * sender and one receiver at a time; held while they block); `map_lock`; `queue_lock` (what
 * completions change, and control messages; never held while anything blocks). The service's lock
 * is outside of all but send_lock and receive_lock, which its handlers never take.
 *
 * Each call is a user of its socket from rsocket_lookup to its end. rclose takes the socket out of
 * the table and wakes whoever waits inside; the last user frees it.
 *
 * A thread that waits may be cancelled there, and what it holds has a cleanup. Under a lock nothing
 * else is a cancellation point: no such call is made, or cancellation is held off. */
#ifndef WEIR_RDMACM_RSOCKET_H
#define WEIR_RDMACM_RSOCKET_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include "rnic/io/system/cancel.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/rdmacm/cma.h"
#include "rnic/rdmacm/rsocket_codec.h"
#include "rnic/rdmacm/rsocket_service.h"
#include "rnic/rdmacm/rsocket_waiters.h"

#define LOW_WATER        2048u /* a datagram's buffer; the room for which a sender waits */
#define FIRST_TRANSFER   2048u
#define TRANSFER_MAX     65536u
#define CONTROLS         4u /* control messages on their way; a power of two */
#define QUEUE_LENGTH_MIN 16u
#define QUEUE_LENGTH_MAX 0xfffeu
#define MAPPINGS_MAX     (127u << 8)

/* Two names of each. */
#define RSOCKET_READABLE (POLLIN | POLLRDNORM)
#define RSOCKET_WRITABLE (POLLOUT | POLLWRNORM)

struct rsocket_sizes {
    uint32_t receive_buffer, send_buffer; /* bytes */
    uint16_t receive_queue, send_queue, inline_data;
    uint32_t mappings; /* that the peer may write to */
};

/* Both kinds begin so. */
struct rsocket {
    int type; /* SOCK_STREAM, SOCK_DGRAM */
    int domain;
    int index;       /* the application's descriptor */
    bool is_foreign; /* made before a fork, by the parent */
    atomic_bool is_closed;
    int descriptor_flags;
    _Atomic int status_flags;
    struct rsocket_sizes sizes;
    uint64_t socket_options, tcp_options, ipv6_options; /* a bit for each name that is on */
    int type_of_service;
    _Atomic int error; /* SO_ERROR */
};

enum stream_state {
    STREAM_IDLE,
    STREAM_BOUND,
    STREAM_LISTENING,
    STREAM_RESOLVING_ADDRESS,
    STREAM_RESOLVING_ROUTE,
    STREAM_CONNECTING,
    STREAM_ACCEPTING, /* nobody but the service knows it yet */
    STREAM_CONNECTED,
    STREAM_REFUSED,      /* connecting failed */
    STREAM_DISCONNECTED, /* both ends said so */
    STREAM_BROKEN,
};

struct stream {
    struct rsocket base;
    struct rdma_cm_id *id; /* synchronous; its channel never blocks */
    _Atomic enum stream_state state;
    atomic_bool is_readable, is_writable; /* while connected */
    pthread_mutex_t connect_lock, send_lock, receive_lock, map_lock, queue_lock;
    struct rsocket_waiters connecting;  /* under connect_lock: for the connection */
    struct rsocket_waiters event_taken; /* under queue_lock: for the sleeper */
    bool has_sleeper; /* under queue_lock: somebody reads the completion channel */
    struct sockaddr_storage peer;
    unsigned tries;
    void *route; /* RDMA_ROUTE: for the connection to come */
    size_t route_length;

    struct service_entry events; /* of the id */
    struct service_entry keepalive;
    unsigned keepalive_s;
    bool keeps_alive;

    /* Listening; under the service's lock. */
    struct stream *listener;
    struct list_node accept_node;
    struct list accepting, accepted;
    uint32_t accepting_count, accepted_count;
    uint32_t backlog;      /* of `accepted` */
    int accept_descriptor; /* counts `accepted`, for who polls */
    struct rsocket_waiters acceptors;

    struct ibv_comp_channel *channel;
    struct ibv_cq *queue;
    atomic_bool is_armed;
    bool swaps; /* the peer's byte order is not ours */
    uint32_t inline_limit;

    /* Sending: posted under send_lock, done under queue_lock. */
    uint8_t *send_buffer; /* a ring; the control messages' own places behind it */
    struct ibv_mr *send_region;
    uint32_t send_place;
    _Atomic uint32_t sends_posted, sends_done;
    _Atomic uint32_t bytes_posted, bytes_done;
    _Atomic uint16_t sent, may_send; /* messages, modulo 2^16; equal: wait for credits */
    uint16_t credits;                /* as the peer first gave: it never gives more ahead */
    uint32_t controls_posted;        /* under queue_lock */
    bool has_said_end;               /* under queue_lock, as the next one */
    bool is_left;                    /* the peer takes nothing any more */
    _Atomic uint32_t controls_done;

    /* Where the peer lets us write: it changes these tables by RDMA. */
    uint8_t *tables;
    struct ibv_mr *tables_region;
    volatile struct rsocket_place *targets;
    volatile struct rsocket_mapping *mappings;
    uint32_t target;

    /* Receiving. */
    uint8_t *receive_buffer; /* two halves that are granted in turns */
    struct ibv_mr *receive_region;
    uint32_t *lengths; /* messages not yet read: a ring of receive_queue + 1 */
    _Atomic uint32_t lengths_head, lengths_tail;
    uint32_t read_place;
    _Atomic uint32_t bytes_read;
    uint32_t bytes_granted; /* under queue_lock, with the next four */
    uint32_t window;        /* granted and not yet filled */
    uint32_t grant_place;
    uint16_t mappings_received;
    uint16_t credits_due; /* credits are given again when so many messages were read */
    _Atomic uint16_t messages_read;

    /* The peer's tables. */
    struct rsocket_place peer_table, peer_mappings;
    uint32_t peer_entry;

    /* riomap; under map_lock. */
    struct list mapped, unsent;
    bool *slots; /* of peer_mappings: taken */
    atomic_bool has_unsent;
};

static inline struct stream *stream_of(struct rsocket *socket)
{
    return (struct stream *)socket;
}

static inline bool rsocket_blocks(const struct rsocket *socket, int flags)
{
    return (atomic_load(&socket->status_flags) & O_NONBLOCK) == 0 && (flags & MSG_DONTWAIT) == 0;
}

static inline bool stream_is_opening(const struct stream *stream)
{
    enum stream_state state = atomic_load(&stream->state);
    return state >= STREAM_RESOLVING_ADDRESS && state <= STREAM_ACCEPTING;
}

static inline bool stream_is_connected(const struct stream *stream)
{
    return atomic_load(&stream->state) == STREAM_CONNECTED;
}

/* rsocket_index.c: descriptors, and who is inside a call. */
/* The caller becomes a user of the socket. NULL and EBADF. */
struct rsocket *rsocket_lookup(int descriptor);
/* The same without errno. */
struct rsocket *rsocket_find(int descriptor);
/* Its use has ended; errno stays. The last user of a closed socket frees it. */
void rsocket_leave(struct rsocket *socket);
/* Nobody finds it any more; with a user inside. False: another thread was quicker. */
bool rsocket_retire(struct rsocket *socket);
int rsocket_insert(struct rsocket *socket, int descriptor);
/* Without users: it is about to be freed. */
void rsocket_remove(struct rsocket *socket);

static inline void rsocket_end_use(struct rsocket **socket)
{
    if (*socket != NULL) {
        rsocket_leave(*socket);
    }
}

/* In front of a local variable: its socket is used until the end of the block, also where the
 * thread is cancelled or exits in between. */
#define RSOCKET_USED __attribute__((cleanup(rsocket_end_use)))

static inline pthread_mutex_t *rsocket_hold(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    return lock;
}

static inline void rsocket_let_go(pthread_mutex_t **lock)
{
    pthread_mutex_unlock(*lock);
}

/* Held until the end of the block, likewise: for locks under which somebody may wait. */
#define RSOCKET_HOLDS(name, lock)                                                                  \
    __attribute__((cleanup(rsocket_let_go), unused)) pthread_mutex_t *name = rsocket_hold(lock)

/* What a call says that waited: EBADF where the socket was closed meanwhile. */
static inline ssize_t rsocket_result(struct rsocket *socket, ssize_t result)
{
    return result <= 0 && atomic_load(&socket->is_closed) ? cma_error(EBADF) : result;
}

/* rsocket_config.c: /etc/rdma/rsocket. */
struct rsocket_config {
    struct rsocket_sizes sizes;
    uint32_t polling_time_us;
    int wake_up_interval_ms;
};
const struct rsocket_config *rsocket_config(void);
uint64_t rsocket_now_us(void);

/* rsocket.c */
void rsocket_free(struct rsocket *socket);
/* In a forked child: the parent's threads hold none of them, nor wait for any, here. */
void rsocket_renew_locks(struct rsocket *socket);
struct stream *stream_new(const struct rsocket_sizes *sizes, int domain, struct rdma_cm_id *id);
void stream_free(struct stream *stream);
socklen_t rsocket_address_length(const struct sockaddr *address);
void rsocket_copy_address(const struct sockaddr *from, struct sockaddr *ret_address,
                          socklen_t *length);

/* rsocket_setup.c: the queue pair and the memory of a stream, and the greeting of both ends. */
int stream_set_up(struct stream *stream);
void stream_tear_down(struct stream *stream);
void stream_greet(const struct stream *stream, uint8_t *ret_hello);
/* -1 and ENOTSUP: the peer speaks something else. */
int stream_take_greeting(struct stream *stream, const struct rdma_cm_event *event);

/* rsocket_connect.c */
int stream_connect(struct stream *stream, const struct sockaddr *target, socklen_t length);
/* 0: connected. -1: EAGAIN for who does not block; why there is no connection. */
int stream_finish_connecting(struct stream *stream, bool blocks);
/* Closed: who waits for the connection wakes up. */
void stream_wake_connectors(struct stream *stream);
/* The service's: something happened to the id. */
void stream_handle_event(struct service_entry *entry);
/* Back to not blocking: errno is EAGAIN where the answer is not there yet. */
int stream_never_blocks(struct rdma_cm_id *id);

/* rsocket_listen.c */
int stream_listen(struct stream *stream, int backlog);
int stream_accept(struct stream *listener, struct stream **ret_stream);
void stream_handle_request(struct stream *listener);
void stream_handle_established(struct stream *stream);
/* Closed: who waits for a connection looks again. */
void stream_wake_acceptors(struct stream *listener);
void stream_stop_listening(struct stream *listener);
/* It is about to be freed, or the application has it. */
void stream_stop_waiting(struct stream *stream);

/* rsocket_queue.c: completions, credits, control messages. */
typedef bool stream_test(struct stream *stream);
/* Until `test` holds. -1 and EAGAIN for who does not block. */
int stream_process(struct stream *stream, bool blocks, stream_test *test);
/* The same, trying for a moment before it sleeps. */
int stream_wait(struct stream *stream, bool blocks, stream_test *test);
/* Takes the event of the completion channel that poll has seen. */
void stream_take_event(struct stream *stream);
/* The same, whatever signals come: what is not waited for until its end is lost. */
int stream_process_to_the_end(struct stream *stream, stream_test *test);
/* Says it to the peer when there is room for it, unless the connection goes first. */
int stream_control(struct stream *stream, enum rsocket_control control);
/* An empty write, which makes no completion at the peer; skipped where there is no room. */
void stream_keep_alive(struct stream *stream);
/* Not connected any more; who waits hears of it. `error` for SO_ERROR. */
void stream_break(struct stream *stream, enum stream_state state, int error);
bool stream_can_send(struct stream *stream);
bool stream_can_send_or_never(struct stream *stream);
bool stream_has_data(struct stream *stream);
bool stream_has_data_or_never(struct stream *stream);
bool stream_all_sent_or_never(struct stream *stream);
bool stream_is_armed(struct stream *stream);
bool stream_settled(struct stream *stream); /* true */
int stream_post_receive(struct stream *stream);

enum stream_work { /* the upper half of a work request's id */
    STREAM_RECEIVE,
    STREAM_SEND, /* lower half: bytes of the send buffer that are free when it is done */
    STREAM_CONTROL,
    STREAM_GOODBYE,
};

static inline uint64_t stream_work_id(enum stream_work kind, uint32_t bytes)
{
    return (uint64_t)kind << 32 | bytes;
}

/* rsocket_send.c */
struct stream_cursor { /* in what the application sends */
    const struct iovec *piece;
    size_t offset;
};
/* A write of `length` bytes to the peer, with `immediate` if has_immediate. */
struct stream_write {
    uint64_t address;
    uint32_t key, length, immediate;
    bool has_immediate;
};
ssize_t stream_send(struct stream *stream, const struct iovec *pieces, int count, int flags);
/* With send_lock held and room for one more. Takes the bytes from `cursor`. */
int stream_write(struct stream *stream, const struct stream_write *write,
                 struct stream_cursor *cursor);
/* With send_lock held: waits for room. */
int stream_wait_for_room(struct stream *stream, int flags);
uint32_t stream_room(const struct stream *stream);

/* rsocket_receive.c */
ssize_t stream_receive(struct stream *stream, const struct iovec *pieces, int count, int flags);

/* rsocket_iomap.c */
/* With send_lock held: tells the peer of new mappings. */
int stream_send_mappings(struct stream *stream, int flags);
void stream_forget_mappings(struct stream *stream);

/* rsocket_poll.c */
/* Whoever waits in rpoll looks again: an event was taken, or a state changed. */
void rsocket_wake_pollers(void);
/* In the child of a fork: nobody polls, and the parent's descriptors are not ours. */
void rsocket_forget_pollers(void);

#endif
