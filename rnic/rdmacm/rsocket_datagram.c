#include "rnic/rdmacm/rsocket_datagram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rnic/io/system/raw_socket.h"
#include "rnic/rdmacm/rsocket_datagram_private.h"

void datagram_free(struct rsocket *socket)
{
    struct datagram *datagram = datagram_of(socket);
    struct list_node *node;
    service_remove(&datagram->udp);
    int descriptor = datagram->base.index;
    rsocket_remove(&datagram->base);
    while ((node = list_pop_first(&datagram->messages)) != NULL) {
        struct datagram_message *message = CONTAINER_OF(node, struct datagram_message, node);
        if (message->pair == NULL) {
            free(message);
        }
    }
    struct peer_entry *entry;
    while ((entry = peer_table_pop(&datagram->peers)) != NULL) {
        datagram_free_peer(entry);
    }
    peer_table_fini(&datagram->peers);
    while (!list_is_empty(&datagram->pairs)) {
        datagram_free_pair(CONTAINER_OF(datagram->pairs.head.next, struct datagram_pair, node));
    }
    int descriptors[] = {datagram->epoll, datagram->forwarded, descriptor};
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++) {
        if (descriptors[i] >= 0) {
            close(descriptors[i]);
        }
    }
    free(datagram->send_buffer);
    free(datagram->free_places);
    free(datagram);
}

static int open_descriptors(struct datagram *datagram)
{
    struct epoll_event event = {.events = EPOLLIN};
    int descriptor = raw_socket(datagram->base.domain, SOCK_DGRAM, 0);
    if (descriptor < 0 || rsocket_insert(&datagram->base, descriptor) != 0) {
        return -1;
    }
    datagram->epoll = epoll_create1(EPOLL_CLOEXEC);
    datagram->forwarded = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (datagram->epoll < 0 || datagram->forwarded < 0 || cma_device_open() == NULL) {
        return -1;
    }
    return epoll_ctl(datagram->epoll, EPOLL_CTL_ADD, datagram->forwarded, &event);
}

void datagram_init_locks(struct rsocket *socket)
{
    struct datagram *datagram = datagram_of(socket);
    pthread_mutex_t *locks[] = {&datagram->setup_lock, &datagram->send_lock, &datagram->map_lock,
                                &datagram->queue_lock};
    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
        pthread_mutex_init(locks[i], NULL);
    }
    pthread_cond_init(&datagram->event_taken, NULL);
}

struct rsocket *datagram_create(int domain)
{
    struct datagram *datagram = calloc(1, sizeof *datagram);
    if (datagram == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    datagram->base.type = SOCK_DGRAM;
    datagram->base.domain = domain;
    datagram->base.index = -1;
    datagram->base.sizes = rsocket_config()->sizes;
    datagram->epoll = datagram->forwarded = -1;
    list_init(&datagram->pairs);
    list_init(&datagram->messages);
    datagram_init_locks(&datagram->base);
    if (peer_table_init(&datagram->peers) != 0 || open_descriptors(datagram) != 0) {
        int error = errno;
        datagram_free(&datagram->base);
        errno = error;
        return NULL;
    }
    return &datagram->base;
}

static uint16_t fit(uint32_t length, uint32_t buffer)
{
    length = length > buffer / LOW_WATER ? buffer / LOW_WATER : length;
    return (uint16_t)(length == 0 ? 1 : length);
}

static int set_up(struct datagram *datagram)
{
    struct rsocket_sizes *sizes = &datagram->base.sizes;
    sizes->send_queue = fit(sizes->send_queue, sizes->send_buffer);
    sizes->receive_queue = fit(sizes->receive_queue, sizes->receive_buffer);
    datagram->send_buffer = calloc(sizes->send_queue, LOW_WATER);
    datagram->free_places = calloc(sizes->send_queue, sizeof *datagram->free_places);
    if (datagram->send_buffer == NULL || datagram->free_places == NULL) {
        return cma_error(ENOMEM);
    }
    for (uint32_t i = 0; i < sizes->send_queue; i++) {
        datagram->free_places[i] = i;
    }
    atomic_store(&datagram->places, sizes->send_queue);
    datagram->udp = (struct service_entry){
        .descriptor = datagram->base.index, .handle = datagram_handle_udp, .due_us = SERVICE_NEVER};
    datagram->is_set_up = true;
    return 0;
}

/* The first use gives it memory; from then on the service hears what comes over UDP. */
static int ensure_set_up(struct datagram *datagram)
{
    pthread_mutex_lock(&datagram->setup_lock);
    bool is_first = !datagram->is_set_up;
    int result = is_first ? set_up(datagram) : 0;
    pthread_mutex_unlock(&datagram->setup_lock);
    return result == 0 && is_first ? service_add(&datagram->udp) : result;
}

bool datagram_has_buffers(const struct rsocket *socket)
{
    return ((const struct datagram *)socket)->is_set_up;
}

/* A sender without a port would be without one in its datagrams, too. */
static int ensure_port(struct datagram *datagram)
{
    struct sockaddr_storage name;
    socklen_t size = sizeof name;
    if (atomic_load(&datagram->has_port)) {
        return 0;
    }
    if (getsockname(datagram->base.index, (struct sockaddr *)&name, &size) != 0) {
        return -1;
    }
    if (*datagram_port_of((struct sockaddr *)&name) == 0 &&
        bind(datagram->base.index, (struct sockaddr *)&name, size) != 0) {
        return -1;
    }
    atomic_store(&datagram->has_port, true);
    return 0;
}

int datagram_bind(struct rsocket *socket, const struct sockaddr *address, socklen_t length)
{
    if (ensure_set_up(datagram_of(socket)) != 0) {
        return -1;
    }
    return bind(socket->index, address, length);
}

/* 0 or an errno value. */
static int check_address(const struct sockaddr *address, socklen_t length)
{
    if (length < sizeof address->sa_family) {
        return EINVAL;
    }
    bool ours = address->sa_family == AF_INET || address->sa_family == AF_INET6;
    return !ours ? EAFNOSUPPORT : length < rsocket_address_length(address) ? EINVAL : 0;
}

/* AF_UNSPEC: from and to anybody again. The kernel takes the port back that it had chosen itself;
 * but the peers know us by it. */
static int end_connection(struct datagram *datagram, const struct sockaddr *nobody,
                          socklen_t length)
{
    int descriptor = datagram->base.index;
    struct sockaddr_storage before, now;
    socklen_t size = sizeof before, size_now = sizeof now;
    if (ensure_port(datagram) != 0 ||
        getsockname(descriptor, (struct sockaddr *)&before, &size) != 0 ||
        connect(descriptor, nobody, length) != 0 ||
        getsockname(descriptor, (struct sockaddr *)&now, &size_now) != 0) {
        return -1;
    }
    pthread_mutex_lock(&datagram->map_lock);
    datagram->connected = NULL;
    pthread_mutex_unlock(&datagram->map_lock);
    if (*datagram_port_of((struct sockaddr *)&now) != 0) {
        return 0;
    }
    *datagram_port_of((struct sockaddr *)&now) = *datagram_port_of((struct sockaddr *)&before);
    int result = bind(descriptor, (struct sockaddr *)&now, size_now);
    atomic_store(&datagram->has_port, result == 0);
    return result;
}

int datagram_connect(struct rsocket *socket, const struct sockaddr *target, socklen_t length)
{
    struct datagram *datagram = datagram_of(socket);
    if (ensure_set_up(datagram) != 0) {
        return -1;
    }
    if (length >= sizeof target->sa_family && target->sa_family == AF_UNSPEC) {
        return end_connection(datagram, target, length);
    }
    int error = check_address(target, length);
    if (error != 0 || connect(socket->index, target, length) != 0) {
        return error != 0 ? cma_error(error) : -1;
    }
    pthread_mutex_lock(&datagram->map_lock);
    struct datagram_peer *peer = datagram_peer(datagram, target, length);
    datagram->connected = peer != NULL ? peer : datagram->connected;
    pthread_mutex_unlock(&datagram->map_lock);
    return peer == NULL ? -1 : 0;
}

static uint32_t take_place(struct datagram *datagram)
{
    pthread_mutex_lock(&datagram->queue_lock);
    uint32_t place = datagram->free_places[atomic_fetch_sub(&datagram->places, 1) - 1];
    pthread_mutex_unlock(&datagram->queue_lock);
    return place;
}

static void give_place(struct datagram *datagram, uint32_t place)
{
    pthread_mutex_lock(&datagram->queue_lock);
    datagram->free_places[atomic_fetch_add(&datagram->places, 1)] = place;
    pthread_mutex_unlock(&datagram->queue_lock);
}

/* With map_lock and send_lock held, and a place free. */
static ssize_t send_to(struct datagram *datagram, struct datagram_peer *peer,
                       const struct iovec *bytes)
{
    const struct datagram_pair *pair = peer->pair;
    if (bytes->iov_len > pair->payload_max) {
        return cma_error(EMSGSIZE);
    }
    uint32_t place = take_place(datagram);
    uint8_t *to = datagram->send_buffer + (size_t)place * LOW_WATER;
    memcpy(to, pair->header, pair->header_length);
    memcpy(to + pair->header_length, bytes->iov_base, bytes->iov_len);
    if (datagram_post(peer, place, pair->header_length + (uint32_t)bytes->iov_len) != 0) {
        give_place(datagram, place);
        return -1;
    }
    return (ssize_t)bytes->iov_len;
}

static ssize_t send_bytes(struct datagram *datagram, const struct iovec *bytes, int flags,
                          const struct sockaddr *target, socklen_t length)
{
    bool blocks = rsocket_blocks(&datagram->base, flags);
    struct datagram_over_udp over;
    ssize_t sent = -1;
    RSOCKET_HOLDS(held, &datagram->send_lock);
    if (!datagram_can_send(datagram) && datagram_wait(datagram, blocks, datagram_can_send) != 0) {
        return -1;
    }
    pthread_mutex_lock(&datagram->map_lock);
    struct datagram_peer *peer =
        target == NULL ? datagram->connected : datagram_peer(datagram, target, length);
    bool over_udp = peer != NULL && peer->vector == NULL;
    if (over_udp) {
        datagram_address_udp(peer, RSOCKET_DATA, &over);
    } else if (peer != NULL) {
        sent = send_to(datagram, peer, bytes);
    } else if (target == NULL) {
        errno = EDESTADDRREQ;
    }
    pthread_mutex_unlock(&datagram->map_lock);
    return over_udp
               ? datagram_send_udp(datagram, &over, bytes, blocks ? flags : flags | MSG_DONTWAIT)
               : sent;
}

ssize_t datagram_send(struct rsocket *socket, const struct iovec *pieces, int count, int flags,
                      const struct sockaddr *target, socklen_t length)
{
    struct datagram *datagram = datagram_of(socket);
    uint8_t bytes[DATAGRAM_PAYLOAD];
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        if (pieces[i].iov_len > sizeof bytes - total) {
            return cma_error(EMSGSIZE);
        }
        if (pieces[i].iov_len > 0) {
            memcpy(bytes + total, pieces[i].iov_base, pieces[i].iov_len);
        }
        total += pieces[i].iov_len;
    }
    int error = socket->is_foreign ? EBADF : target != NULL ? check_address(target, length) : 0;
    if (error != 0 || ensure_set_up(datagram) != 0 || ensure_port(datagram) != 0) {
        return error != 0 ? cma_error(error) : -1;
    }
    const struct iovec all = {bytes, total};
    return send_bytes(datagram, &all, flags, target, length);
}

/* Spreads a message over the pieces; what does not fit is lost. */
static size_t spread(const struct datagram_message *message, const struct iovec *pieces, int count)
{
    size_t done = 0;
    for (int i = 0; i < count && done < message->length; i++) {
        size_t left = message->length - done;
        size_t part = pieces[i].iov_len < left ? pieces[i].iov_len : left;
        memcpy(pieces[i].iov_base, message->bytes + done, part);
        done += part;
    }
    return done;
}

ssize_t datagram_receive(struct rsocket *socket, const struct iovec *pieces, int count, int flags,
                         struct sockaddr *ret_source, socklen_t *ret_length)
{
    struct datagram *datagram = datagram_of(socket);
    if (!datagram->is_set_up || socket->is_foreign) {
        return cma_error(EINVAL);
    }
    for (;;) {
        if (!datagram_has_message(datagram) &&
            datagram_wait(datagram, rsocket_blocks(socket, flags), datagram_has_message) != 0) {
            return -1;
        }
        pthread_mutex_lock(&datagram->setup_lock); /* one reader at a time */
        struct datagram_message *message = datagram_oldest(datagram);
        if (message != NULL) {
            size_t length = spread(message, pieces, count);
            if (ret_source != NULL && ret_length != NULL) {
                rsocket_copy_address((struct sockaddr *)&message->source, ret_source, ret_length);
            }
            if ((flags & MSG_PEEK) == 0) {
                datagram_done(datagram, message);
            }
            pthread_mutex_unlock(&datagram->setup_lock);
            return (ssize_t)length;
        }
        pthread_mutex_unlock(&datagram->setup_lock); /* another one was quicker */
    }
}

static bool looked(struct datagram *datagram)
{
    return datagram != NULL;
}

short datagram_events(struct rsocket *socket, short wanted)
{
    struct datagram *datagram = datagram_of(socket);
    short events = 0;
    (void)datagram_wait(datagram, false, looked);
    if (datagram_has_message(datagram)) {
        events |= RSOCKET_READABLE & wanted;
    }
    if (!datagram->is_set_up || datagram_can_send(datagram)) {
        events |= RSOCKET_WRITABLE & wanted;
    }
    return events;
}

int datagram_descriptor(const struct rsocket *socket)
{
    return ((const struct datagram *)socket)->epoll;
}

static void finish_closing(struct datagram **datagram)
{
    atomic_store(&(*datagram)->base.is_closed, true);
    datagram_wake(*datagram);
}

void datagram_close(struct rsocket *socket)
{
    __attribute__((cleanup(finish_closing))) struct datagram *datagram = datagram_of(socket);
    service_remove(&datagram->udp);
    if (datagram->is_set_up && !socket->is_foreign) {
        while (datagram_wait(datagram, true, datagram_all_sent) != 0 && errno == EINTR) {
        }
    }
}
