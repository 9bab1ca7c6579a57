/* Connecting, and what happens to a connection besides data. The id is synchronous and its channel
 * does not block: a call that has to wait says EAGAIN, and the answer is fetched when the channel
 * is readable, by the service. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/rdmacm/rsocket.h"

#define FIRST_PATIENCE_MS 1000u
#define TRIES_MAX         6u
#define RETRIES           7u /* for ever, where a receiver is not ready */

static bool is_pending(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK;
}

int stream_never_blocks(struct rdma_cm_id *id)
{
    return fcntl(id->channel->fd, F_SETFL, O_NONBLOCK);
}

static int resolve_address(struct stream *stream)
{
    atomic_store(&stream->state, STREAM_RESOLVING_ADDRESS);
    return rdma_resolve_addr(stream->id, NULL, (struct sockaddr *)&stream->peer,
                             (int)(FIRST_PATIENCE_MS << stream->tries++));
}

static int resolve_route(struct stream *stream)
{
    atomic_store(&stream->state, STREAM_RESOLVING_ROUTE);
    if (stream->route == NULL) {
        return rdma_resolve_route(stream->id, (int)(FIRST_PATIENCE_MS << stream->tries++));
    }
    int result = rdma_set_option(stream->id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, stream->route,
                                 stream->route_length);
    free(stream->route);
    stream->route = NULL;
    return result != 0 ? result : cma_complete(cma_id(stream->id));
}

static int request(struct stream *stream)
{
    uint8_t hello[RSOCKET_HELLO_LENGTH];
    if (stream_set_up(stream) != 0) {
        return -1;
    }
    stream_greet(stream, hello);
    struct rdma_conn_param param = {
        .private_data = hello,
        .private_data_len = sizeof hello,
        .flow_control = 1,
        .retry_count = RETRIES,
        .rnr_retry_count = RETRIES,
    };
    atomic_store(&stream->state, STREAM_CONNECTING);
    return rdma_connect(stream->id, &param);
}

static int connected(struct stream *stream)
{
    if (stream_take_greeting(stream, stream->id->event) != 0) {
        return -1;
    }
    atomic_store(&stream->is_readable, true);
    atomic_store(&stream->is_writable, true);
    atomic_store(&stream->state, STREAM_CONNECTED);
    return 0;
}

/* What follows the step that has just ended with `result`. With connect_lock held. */
static int go_on(struct stream *stream, int result)
{
    for (;;) {
        bool again = result != 0 && errno == ETIMEDOUT && stream->tries <= TRIES_MAX;
        if (result != 0 && !again) {
            return result;
        }
        switch (atomic_load(&stream->state)) {
        case STREAM_RESOLVING_ADDRESS:
            stream->tries = again ? stream->tries : 0;
            result = again ? resolve_address(stream) : resolve_route(stream);
            break;
        case STREAM_RESOLVING_ROUTE:
            result = again ? resolve_route(stream) : request(stream);
            break;
        case STREAM_CONNECTING:
            return again ? result : connected(stream);
        default:
            return result;
        }
    }
}

/* Who waits hears of it. With connect_lock held. */
static int settle(struct stream *stream, int result)
{
    if (result != 0 && is_pending()) {
        return -1;
    }
    int error = errno;
    if (result != 0) {
        atomic_store(&stream->base.error, error);
        atomic_store(&stream->state, STREAM_REFUSED);
    }
    rsocket_wake(&stream->connecting);
    rsocket_wake_pollers();
    errno = error;
    return result;
}

int stream_finish_connecting(struct stream *stream, bool blocks)
{
    if (stream_is_connected(stream)) {
        return 0;
    }
    RSOCKET_HOLDS(held, &stream->connect_lock);
    while (stream_is_opening(stream) && blocks && !atomic_load(&stream->base.is_closed)) {
        if (rsocket_wait(&stream->connecting, &stream->connect_lock) != 0) {
            return -1;
        }
    }
    enum stream_state state = atomic_load(&stream->state);
    if (state >= STREAM_RESOLVING_ADDRESS && state <= STREAM_ACCEPTING) {
        return cma_error(EAGAIN);
    }
    return state == STREAM_REFUSED ? cma_error(ENOTCONN) : 0;
}

void stream_wake_connectors(struct stream *stream)
{
    pthread_mutex_lock(&stream->connect_lock);
    rsocket_wake(&stream->connecting);
    pthread_mutex_unlock(&stream->connect_lock);
}

static int start(struct stream *stream, const struct sockaddr *target, socklen_t length)
{
    enum stream_state state = atomic_load(&stream->state);
    if (state == STREAM_CONNECTED) {
        return cma_error(EISCONN);
    }
    if (stream_is_opening(stream)) {
        return cma_error(EALREADY);
    }
    if (state != STREAM_IDLE && state != STREAM_BOUND) {
        return cma_error(state == STREAM_LISTENING ? EOPNOTSUPP : ENOTCONN);
    }
    if (length > sizeof stream->peer || length < sizeof(struct sockaddr_in) ||
        length < rsocket_address_length(target)) {
        return cma_error(EINVAL);
    }
    memcpy(&stream->peer, target, length);
    return settle(stream, go_on(stream, resolve_address(stream)));
}

int stream_connect(struct stream *stream, const struct sockaddr *target, socklen_t length)
{
    bool blocks = rsocket_blocks(&stream->base, 0);
    int cancel = cancel_hold();
    pthread_mutex_lock(&stream->connect_lock);
    int result = start(stream, target, length);
    int error = result == 0 ? 0 : errno;
    pthread_mutex_unlock(&stream->connect_lock);
    cancel_restore(cancel);
    if (error != 0 && error != EAGAIN) {
        return cma_error(error);
    }
    if (service_add(&stream->events) != 0) {
        return -1;
    }
    if (error == 0) {
        return 0;
    }
    if (!blocks) {
        return cma_error(EINPROGRESS);
    }
    if (stream_finish_connecting(stream, true) == 0) {
        return 0;
    }
    error = atomic_exchange(&stream->base.error, 0);
    return error == 0 ? -1 : cma_error(error);
}

/* The peer's disconnection, or the host's on behalf of a peer that died. What it had sent before
 * is in the completion queue, its goodbye too. */
static void handle_connected(struct stream *stream)
{
    int result = cma_complete(cma_id(stream->id));
    (void)result; /* an event that says so with a status says so */
    const struct rdma_cm_event *event = stream->id->event;
    if (event != NULL && event->event == RDMA_CM_EVENT_DISCONNECTED) {
        (void)stream_process(stream, false, stream_settled);
        stream_break(stream, STREAM_BROKEN, ECONNRESET);
    }
}

void stream_handle_event(struct service_entry *entry)
{
    struct stream *stream = CONTAINER_OF(entry, struct stream, events);
    switch (atomic_load(&stream->state)) {
    case STREAM_LISTENING:
        stream_handle_request(stream);
        break;
    case STREAM_ACCEPTING:
        stream_handle_established(stream);
        break;
    case STREAM_RESOLVING_ADDRESS:
    case STREAM_RESOLVING_ROUTE:
    case STREAM_CONNECTING:
        pthread_mutex_lock(&stream->connect_lock);
        (void)settle(stream, go_on(stream, cma_complete(cma_id(stream->id))));
        pthread_mutex_unlock(&stream->connect_lock);
        break;
    default:
        handle_connected(stream);
    }
}
