/* The calls of rsockets: life and end, names, and the way to the two kinds.
 *
 * rsocket_option.c and rsocket_poll.c hold the other calls, rsocket_iomap.c those of riomap. */
#include "rnic/rdmacm/rsocket.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/rdmacm/rsocket_datagram.h"

static void send_keepalive(struct service_entry *entry)
{
    struct stream *stream = CONTAINER_OF(entry, struct stream, keepalive);
    if (entry->due_us <= rsocket_now_us()) {
        stream_keep_alive(stream);
        entry->due_us = rsocket_now_us() + (uint64_t)stream->keepalive_s * 1000000;
    }
}

static void stream_init_locks(struct stream *stream)
{
    pthread_mutex_t *locks[] = {&stream->connect_lock, &stream->send_lock, &stream->receive_lock,
                                &stream->map_lock, &stream->queue_lock};
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
        pthread_mutex_init(locks[i], NULL);
    }
    rsocket_waiters_init(&stream->connecting);
    rsocket_waiters_init(&stream->event_taken);
    rsocket_waiters_init(&stream->acceptors);
}

void rsocket_renew_locks(struct rsocket *socket)
{
    if (socket->type == SOCK_DGRAM) {
        datagram_init_locks(socket);
    } else {
        stream_init_locks(stream_of(socket));
    }
}

struct stream *stream_new(const struct rsocket_sizes *sizes, int domain, struct rdma_cm_id *id)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        return NULL;
    }
    stream->base.type = SOCK_STREAM;
    stream->base.domain = domain;
    stream->base.index = -1;
    stream->base.sizes = *sizes;
    stream->id = id;
    stream->accept_descriptor = -1;
    stream->events = (struct service_entry){
        .descriptor = id->channel->fd, .handle = stream_handle_event, .due_us = SERVICE_NEVER};
    stream->keepalive =
        (struct service_entry){.descriptor = -1, .handle = send_keepalive, .due_us = SERVICE_NEVER};
    list_init(&stream->accepting);
    list_init(&stream->accepted);
    list_init(&stream->mapped);
    list_init(&stream->unsent);
    stream_init_locks(stream);
    return stream;
}

void stream_free(struct stream *stream)
{
    service_remove(&stream->events);
    service_remove(&stream->keepalive);
    stream_stop_listening(stream);
    stream_stop_waiting(stream);
    rsocket_remove(&stream->base);
    stream_forget_mappings(stream);
    stream_tear_down(stream);
    rdma_destroy_id(stream->id);
    pthread_mutex_t *locks[] = {&stream->connect_lock, &stream->send_lock, &stream->receive_lock,
                                &stream->map_lock, &stream->queue_lock};
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
        pthread_mutex_destroy(locks[i]);
    }
    free(stream->route);
    free(stream);
}

static struct rsocket *stream_create(int domain)
{
    struct rdma_cm_id *id;
    if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) != 0) {
        return NULL;
    }
    struct stream *stream =
        stream_never_blocks(id) == 0 ? stream_new(&rsocket_config()->sizes, domain, id) : NULL;
    if (stream == NULL) {
        rdma_destroy_id(id);
        errno = ENOMEM;
        return NULL;
    }
    id->route.addr.src_addr.sa_family = (sa_family_t)domain;
    if (rsocket_insert(&stream->base, id->channel->fd) != 0) {
        stream_free(stream);
        return NULL;
    }
    return &stream->base;
}

PUBLIC int rsocket(int domain, int type, int protocol)
{
    int kind = type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK);
    bool fits = (kind == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) ||
                (kind == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP));
    if (!fits || (domain != AF_INET && domain != AF_INET6)) {
        return cma_error(ENOTSUP);
    }
    struct rsocket *socket = kind == SOCK_STREAM ? stream_create(domain) : datagram_create(domain);
    if (socket == NULL) {
        return -1;
    }
    socket->descriptor_flags = (type & SOCK_CLOEXEC) != 0 ? FD_CLOEXEC : 0;
    atomic_store(&socket->status_flags, (type & SOCK_NONBLOCK) != 0 ? O_NONBLOCK : 0);
    return socket->index;
}

PUBLIC int rbind(int descriptor, const struct sockaddr *address, socklen_t length)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    if (socket->type == SOCK_DGRAM) {
        return datagram_bind(socket, address, length);
    }
    struct stream *stream = stream_of(socket);
    if (length < rsocket_address_length(address) || atomic_load(&stream->state) != STREAM_IDLE) {
        return cma_error(EINVAL);
    }
    if (rdma_bind_addr(stream->id, (struct sockaddr *)address) != 0) {
        return -1;
    }
    atomic_store(&stream->state, STREAM_BOUND);
    return 0;
}

PUBLIC int rlisten(int descriptor, int backlog)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    return socket->type == SOCK_STREAM ? stream_listen(stream_of(socket), backlog)
                                       : cma_error(EOPNOTSUPP);
}

PUBLIC int raccept(int descriptor, struct sockaddr *address, socklen_t *length)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    struct stream *stream;
    if (socket == NULL) {
        return -1;
    }
    if (socket->type != SOCK_STREAM) {
        return cma_error(EOPNOTSUPP);
    }
    if (stream_accept(stream_of(socket), &stream) != 0) {
        return (int)rsocket_result(socket, -1);
    }
    if (address != NULL && length != NULL) {
        rsocket_copy_address(rdma_get_peer_addr(stream->id), address, length);
    }
    return stream->base.index;
}

PUBLIC int rconnect(int descriptor, const struct sockaddr *address, socklen_t length)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    int result = socket->type == SOCK_STREAM ? stream_connect(stream_of(socket), address, length)
                                             : datagram_connect(socket, address, length);
    return result == 0 ? 0 : (int)rsocket_result(socket, result);
}

static void stop_keepalive(struct stream *stream)
{
    service_remove(&stream->keepalive);
    stream->keeps_alive = false;
}

/* What is to be told to the peer; false: nothing. */
static bool close_directions(struct stream *stream, int how, enum rsocket_control *ret_control)
{
    *ret_control = RSOCKET_DISCONNECT;
    if (how == SHUT_RD) {
        atomic_store(&stream->is_readable, false);
        return !atomic_load(&stream->is_writable);
    }
    atomic_store(&stream->is_writable, false);
    if (how == SHUT_RDWR) {
        atomic_store(&stream->is_readable, false);
    } else if (atomic_load(&stream->is_readable)) {
        *ret_control = RSOCKET_SHUTDOWN;
    }
    return true;
}

static bool is_disconnected(const struct stream *stream)
{
    return atomic_load(&stream->state) == STREAM_DISCONNECTED && stream->id->qp != NULL;
}

/* Waits until the peer has what was sent, and knows that it was all. */
static int stream_shutdown(struct stream *stream, int how)
{
    enum rsocket_control control;
    int result = 0;
    stop_keepalive(stream);
    if (stream_is_connected(stream) && close_directions(stream, how, &control)) {
        result = stream_control(stream, control);
    } else if (stream_is_connected(stream)) {
        stream_keep_alive(stream); /* its completion wakes who reads */
    }
    /* The peer may say its end before it has all of ours. */
    if (result == 0 && (stream_is_connected(stream) || is_disconnected(stream))) {
        result = stream_process_to_the_end(stream, stream_all_sent_or_never);
    }
    if (is_disconnected(stream)) {
        cma_modify_error(cma_id(stream->id)); /* who still waits wakes up */
    }
    return result;
}

PUBLIC int rshutdown(int descriptor, int how)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) {
        return cma_error(EINVAL);
    }
    return socket->type == SOCK_STREAM ? stream_shutdown(stream_of(socket), how) : 0;
}

/* Whoever waits hears of it. */
static void finish_closing(struct stream **closed)
{
    struct stream *stream = *closed;
    if (stream_is_connected(stream)) { /* the wait for the peer was not until its end */
        stream_break(stream, STREAM_BROKEN, 0);
    }
    stream_wake_connectors(stream);
    stream_wake_acceptors(stream);
    rsocket_wake_pollers();
}

/* Tells the peer. */
static void stream_close(struct stream *stream)
{
    __attribute__((cleanup(finish_closing))) struct stream *closed = stream;
    atomic_store(&closed->base.is_closed, true);
    if (stream_is_connected(stream)) {
        (void)stream_shutdown(stream, SHUT_RDWR);
    }
}

void rsocket_free(struct rsocket *socket)
{
    if (socket->type == SOCK_DGRAM) {
        datagram_free(socket);
    } else {
        stream_free(stream_of(socket));
    }
}

PUBLIC int rclose(int descriptor)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    if (!rsocket_retire(socket)) {
        return cma_error(EBADF);
    }
    if (socket->type == SOCK_DGRAM) {
        datagram_close(socket);
    } else {
        stream_close(stream_of(socket));
    }
    return 0;
}

socklen_t rsocket_address_length(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

void rsocket_copy_address(const struct sockaddr *from, struct sockaddr *ret_address,
                          socklen_t *length)
{
    socklen_t full = rsocket_address_length(from);
    memcpy(ret_address, from, *length < full ? *length : full);
    *length = full;
}

PUBLIC int rgetpeername(int descriptor, struct sockaddr *address, socklen_t *length)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    if (socket->type == SOCK_DGRAM) {
        return getpeername(descriptor, address, length);
    }
    struct stream *stream = stream_of(socket);
    enum stream_state state = atomic_load(&stream->state);
    if (state < STREAM_CONNECTED || state == STREAM_REFUSED) {
        return cma_error(ENOTCONN);
    }
    rsocket_copy_address(rdma_get_peer_addr(stream->id), address, length);
    return 0;
}

PUBLIC int rgetsockname(int descriptor, struct sockaddr *address, socklen_t *length)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    if (socket->type == SOCK_DGRAM) {
        return getsockname(descriptor, address, length);
    }
    rsocket_copy_address(rdma_get_local_addr(stream_of(socket)->id), address, length);
    return 0;
}
