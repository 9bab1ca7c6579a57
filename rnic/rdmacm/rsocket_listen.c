/* Listening: the service accepts connections as they come; the application takes them when they
 * are established.
 *
 * Each of them holds descriptors and memory. So a listener whose backlog of established ones is
 * full hears of no more requests: they wait where they hold nothing, and beyond that their peers
 * ask again. Of those that their peers have not confirmed the oldest gives way: strangers who never
 * will do not keep the others out. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket.h"

#define BACKLOG_LEAST 64u /* few programs mean a smaller one, and many say it */
#define BACKLOG_MOST  1024u
/* Or as many as the backlog, if that is more. To accept so many takes longer than an honest peer
 * who is near takes to confirm. */
#define HALF_OPEN_MOST 128u

/* With the service's lock held. */
static void hear_if_there_is_room(struct stream *listener)
{
    bool has_room = listener->accepted_count < listener->backlog;
    int descriptor = has_room ? listener->id->channel->fd : -1;
    if (descriptor != listener->events.descriptor && list_node_is_linked(&listener->events.node)) {
        listener->events.descriptor = descriptor;
        (void)service_add(&listener->events); /* the thread looks again */
    }
}

/* With the service's lock held. */
static void wait_among(struct stream *stream, struct list *list, uint32_t *count)
{
    list_append(list, &stream->accept_node);
    ++*count;
}

void stream_stop_waiting(struct stream *stream)
{
    service_lock();
    struct stream *listener = stream->listener;
    if (listener != NULL) {
        bool is_open = atomic_load(&stream->state) != STREAM_ACCEPTING;
        list_remove(&stream->accept_node);
        --*(is_open ? &listener->accepted_count : &listener->accepting_count);
        stream->listener = NULL;
        hear_if_there_is_room(listener);
    }
    service_unlock();
}

int stream_listen(struct stream *stream, int backlog)
{
    enum stream_state state = atomic_load(&stream->state);
    if (state == STREAM_LISTENING) {
        return 0;
    }
    if (state != STREAM_IDLE && state != STREAM_BOUND) {
        return cma_error(EINVAL);
    }
    if (stream->accept_descriptor < 0) { /* else there was a call that failed */
        stream->accept_descriptor = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
    }
    if (stream->accept_descriptor < 0 || rdma_listen(stream->id, backlog) != 0) {
        return -1;
    }
    stream->backlog = backlog <= 0 || backlog > (int)BACKLOG_MOST ? BACKLOG_MOST
                      : backlog < (int)BACKLOG_LEAST              ? BACKLOG_LEAST
                                                                  : (uint32_t)backlog;
    atomic_store(&stream->state, STREAM_LISTENING);
    return service_add(&stream->events);
}

/* With the service's lock held. False: there was none. */
static bool take_token(struct stream *listener)
{
    uint64_t token;
    return raw_read(listener->accept_descriptor, &token, sizeof token) == sizeof token;
}

/* With the service's lock held. */
static int wait_for_one(struct stream *listener)
{
    while (list_is_empty(&listener->accepted) && !atomic_load(&listener->base.is_closed)) {
        while (take_token(listener)) { /* of one that was closed before anybody took it */
        }
        if (!rsocket_blocks(&listener->base, 0)) {
            return cma_error(EAGAIN);
        }
        engine_about_to_sleep(cma_device()->engine);
        if (service_wait(&listener->acceptors) != 0) {
            return -1;
        }
    }
    return atomic_load(&listener->base.is_closed) ? cma_error(EBADF) : 0;
}

static void let_service_go(struct stream **listener)
{
    (void)listener;
    service_unlock();
}

int stream_accept(struct stream *listener, struct stream **ret_stream)
{
    if (atomic_load(&listener->state) != STREAM_LISTENING) {
        return cma_error(EINVAL);
    }
    service_lock();
    __attribute__((cleanup(let_service_go))) struct stream *held = listener;
    if (wait_for_one(held) != 0) {
        return -1;
    }
    struct list_node *node = list_first(&held->accepted);
    *ret_stream = CONTAINER_OF(node, struct stream, accept_node);
    stream_stop_waiting(*ret_stream);
    (void)take_token(held);
    return 0;
}

/* With the service's lock held. */
static void tell_acceptors(struct stream *listener)
{
    const uint64_t one = 1;
    ssize_t written = raw_write(listener->accept_descriptor, &one, sizeof one);
    CHECK(written == sizeof one);
    rsocket_wake(&listener->acceptors);
}

void stream_wake_acceptors(struct stream *listener)
{
    service_lock();
    rsocket_wake(&listener->acceptors);
    service_unlock();
}

/* Answers a request; -1: it is to be rejected. The peer may be as quick as to confirm at once. */
static int answer(struct stream *stream, bool *ret_is_established)
{
    struct rdma_cm_id *id = stream->id;
    uint8_t hello[RSOCKET_HELLO_LENGTH];
    struct rdma_conn_param param = id->event->param.conn;
    if (stream_never_blocks(id) != 0 || stream_set_up(stream) != 0 ||
        stream_take_greeting(stream, id->event) != 0) {
        return -1;
    }
    stream_greet(stream, hello);
    param.private_data = hello;
    param.private_data_len = sizeof hello;
    if (rdma_accept(id, &param) == 0) {
        *ret_is_established = true;
        return 0;
    }
    return errno == EAGAIN ? 0 : -1;
}

/* The application may have it. */
static void hand_over(struct stream *stream)
{
    struct stream *listener = stream->listener;
    if (stream->id->event->event != RDMA_CM_EVENT_ESTABLISHED ||
        rsocket_insert(&stream->base, stream->id->channel->fd) != 0) {
        stream_free(stream);
        return;
    }
    stream_stop_waiting(stream);
    atomic_store(&stream->is_readable, true);
    atomic_store(&stream->is_writable, true);
    atomic_store(&stream->state, STREAM_CONNECTED);
    stream->listener = listener;
    wait_among(stream, &listener->accepted, &listener->accepted_count);
    hear_if_there_is_room(listener);
    tell_acceptors(listener);
}

static bool is_crowded(const struct stream *listener)
{
    uint32_t most = listener->backlog > HALF_OPEN_MOST ? listener->backlog : HALF_OPEN_MOST;
    return listener->accepting_count >= most;
}

static struct stream *oldest_half_open(const struct stream *listener)
{
    return CONTAINER_OF(list_first(&listener->accepting), struct stream, accept_node);
}

/* The oldest half-open one gives way, unless its peer's word is here already. */
static void make_place(struct stream *listener)
{
    if (is_crowded(listener)) {
        stream_handle_established(oldest_half_open(listener));
    }
    if (is_crowded(listener)) {
        stream_free(oldest_half_open(listener));
    }
}

/* A stream for a request, on its listener's list; without the listener's flags, as accept(2) has
 * it. NULL: the request is gone. */
static struct stream *take_request(struct stream *listener)
{
    struct rdma_cm_id *id;
    if (rdma_get_request(listener->id, &id) != 0) {
        return NULL;
    }
    struct stream *stream = stream_new(&listener->base.sizes, listener->base.domain, id);
    if (stream == NULL) {
        rdma_reject(id, NULL, 0);
        rdma_destroy_id(id);
        return NULL;
    }
    atomic_store(&stream->state, STREAM_ACCEPTING);
    make_place(listener);
    stream->listener = listener;
    wait_among(stream, &listener->accepting, &listener->accepting_count);
    return stream;
}

void stream_handle_request(struct stream *listener)
{
    struct stream *stream = take_request(listener);
    if (stream == NULL) {
        return;
    }
    bool is_established = false;
    if (answer(stream, &is_established) != 0 || service_add(&stream->events) != 0) {
        rdma_reject(stream->id, NULL, 0);
        stream_free(stream);
    } else if (is_established) {
        hand_over(stream);
    }
}

void stream_handle_established(struct stream *stream)
{
    if (cma_complete(cma_id(stream->id)) == 0) {
        hand_over(stream);
    } else if (errno != EAGAIN) {
        stream_free(stream);
    }
}

/* Nobody will take them any more. */
void stream_stop_listening(struct stream *listener)
{
    struct list_node *node;
    service_lock();
    service_remove(&listener->events);
    while ((node = list_first(&listener->accepting)) != NULL ||
           (node = list_first(&listener->accepted)) != NULL) {
        stream_free(CONTAINER_OF(node, struct stream, accept_node));
    }
    service_unlock();
    if (listener->accept_descriptor >= 0) {
        close(listener->accept_descriptor);
        listener->accept_descriptor = -1;
    }
}
