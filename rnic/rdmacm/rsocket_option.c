/* Options and flags of rsockets. Those that a reliable connection has no use for are taken and
 * remembered, or answered as rdma-core does; the rest is ENOTSUP. */
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/rdmacm/rsocket_datagram.h"

#define KEEPALIVE_S  7200u
#define MTU_FALLBACK 2048
#define BUFFER_MAX   (1 << 27)

/* What an application gave. */
struct given {
    const void *value;
    socklen_t length;
};

static int set_bit(uint64_t *bits, int name, bool on)
{
    uint64_t bit = UINT64_C(1) << name;
    *bits = on ? *bits | bit : *bits & ~bit;
    return 0;
}

static bool has_bit(uint64_t bits, int name)
{
    return (bits >> name & 1) != 0;
}

static int int_of(const struct given *given, int *ret_number)
{
    if (given->value == NULL || given->length < sizeof *ret_number) {
        return cma_error(EINVAL);
    }
    memcpy(ret_number, given->value, sizeof *ret_number);
    return 0;
}

/* The host's, for who did not choose. */
static unsigned default_keepalive_s(void)
{
    unsigned seconds = KEEPALIVE_S;
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_keepalive_time", "re");
    if (file != NULL) {
        if (fscanf(file, "%u", &seconds) != 1 || seconds == 0) {
            seconds = KEEPALIVE_S;
        }
        fclose(file);
    }
    return seconds;
}

static int restart_keepalive(struct stream *stream)
{
    service_lock();
    stream->keepalive.due_us = rsocket_now_us() + (uint64_t)stream->keepalive_s * 1000000;
    int result = service_add(&stream->keepalive);
    stream->keeps_alive = result == 0;
    service_unlock();
    return result;
}

static int set_keepalive(struct stream *stream, bool on)
{
    set_bit(&stream->base.socket_options, SO_KEEPALIVE, on);
    if (!on) {
        service_remove(&stream->keepalive);
        stream->keeps_alive = false;
        return 0;
    }
    if (stream->keeps_alive) {
        return 0;
    }
    if (stream->keepalive_s == 0) {
        stream->keepalive_s = default_keepalive_s();
    }
    return restart_keepalive(stream);
}

static int set_reuse(struct stream *stream, int on)
{
    bool begun = atomic_load(&stream->state) != STREAM_IDLE;
    if (!begun && rdma_set_option(stream->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on,
                                  sizeof on) != 0) {
        return -1;
    }
    return set_bit(&stream->base.socket_options, SO_REUSEADDR, on != 0);
}

/* Sockets count their own needs, too: twice what was asked for. */
static uint32_t buffer_of(int asked)
{
    asked = asked > BUFFER_MAX ? BUFFER_MAX : asked;
    return asked < (int)LOW_WATER ? 2 * LOW_WATER : 2 * (uint32_t)asked;
}

static void set_buffer(struct rsocket *socket, int name, int number)
{
    uint32_t *size = name == SO_RCVBUF ? &socket->sizes.receive_buffer : &socket->sizes.send_buffer;
    *size = buffer_of(number);
}

/* The UDP socket hears everything; the sizes of buffers are ours, too, until they are in use. */
static int set_datagram_option(struct rsocket *socket, int level, int name,
                               const struct given *given)
{
    int number = 0;
    if (setsockopt(socket->index, level, name, given->value, given->length) != 0) {
        return -1;
    }
    if (level != SOL_SOCKET || (name != SO_RCVBUF && name != SO_SNDBUF) ||
        datagram_has_buffers(socket)) {
        return 0;
    }
    if (int_of(given, &number) != 0) {
        return -1;
    }
    set_buffer(socket, name, number);
    return 0;
}

/* Not while the service makes the buffers: it looks at their sizes more than once. */
static void set_stream_buffer(struct stream *stream, int name, int number)
{
    pthread_mutex_lock(&stream->connect_lock);
    if (stream->send_buffer == NULL) {
        set_buffer(&stream->base, name, number);
    }
    pthread_mutex_unlock(&stream->connect_lock);
}

static int set_socket_option(struct stream *stream, int name, const struct given *given)
{
    struct rsocket *base = &stream->base;
    int number = 0;
    if (int_of(given, &number) != 0) {
        return -1;
    }
    switch (name) {
    case SO_REUSEADDR:
        return set_reuse(stream, number);
    case SO_RCVBUF:
    case SO_SNDBUF:
        set_stream_buffer(stream, name, number);
        return 0;
    case SO_LINGER: /* on by default: the bit says that it is off */
        return set_bit(&base->socket_options, name, number == 0);
    case SO_KEEPALIVE:
        return set_keepalive(stream, number != 0);
    case SO_OOBINLINE:
        return set_bit(&base->socket_options, name, number != 0);
    default:
        return cma_error(ENOTSUP);
    }
}

static int set_tcp_option(struct stream *stream, int name, const struct given *given)
{
    int number = 0;
    switch (name) {
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
    case TCP_MAXSEG:
    case TCP_CONGESTION:
        return 0; /* the connection is reliable below us */
    case TCP_KEEPIDLE:
        if (int_of(given, &number) != 0 || number <= 0) {
            return cma_error(EINVAL);
        }
        stream->keepalive_s = (unsigned)number;
        return stream->keeps_alive ? restart_keepalive(stream) : 0;
    case TCP_NODELAY:
        return int_of(given, &number) != 0 ? -1
                                           : set_bit(&stream->base.tcp_options, name, number != 0);
    default:
        return cma_error(ENOTSUP);
    }
}

static int set_network_option(struct stream *stream, int level, int name, const struct given *given)
{
    int number = 0;
    if (int_of(given, &number) != 0) {
        return -1;
    }
    if (level == IPPROTO_IP && name == IP_TOS) {
        uint8_t service = (uint8_t)number;
        stream->base.type_of_service = number;
        return rdma_set_option(stream->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &service,
                               sizeof service);
    }
    if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
        if (rdma_set_option(stream->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &number,
                            sizeof number) != 0) {
            return -1;
        }
        return set_bit(&stream->base.ipv6_options, name, number != 0);
    }
    return cma_error(ENOTSUP);
}

static int set_route(struct stream *stream, const struct given *given)
{
    void *copy = malloc(given->length);
    if (copy == NULL) {
        return cma_error(ENOMEM);
    }
    memcpy(copy, given->value, given->length);
    free(stream->route);
    stream->route = copy;
    stream->route_length = given->length;
    return 0;
}

static uint16_t queue_length(uint32_t asked)
{
    return (uint16_t)(asked > QUEUE_LENGTH_MAX ? QUEUE_LENGTH_MAX : asked);
}

static int set_size_or_route(struct rsocket *socket, int name, const struct given *given)
{
    int number = 0;
    bool is_stream = socket->type == SOCK_STREAM;
    if (name == RDMA_ROUTE && is_stream && given->value != NULL && given->length != 0) {
        return set_route(stream_of(socket), given);
    }
    if (int_of(given, &number) != 0) {
        return -1;
    }
    switch (name) {
    case RDMA_SQSIZE:
        socket->sizes.send_queue = queue_length((uint32_t)number);
        return 0;
    case RDMA_RQSIZE:
        socket->sizes.receive_queue = queue_length((uint32_t)number);
        return 0;
    case RDMA_INLINE:
        socket->sizes.inline_data = queue_length((uint32_t)number);
        return 0;
    case RDMA_IOMAPSIZE:
        socket->sizes.mappings = rsocket_round_mappings((uint32_t)number);
        return 0;
    default:
        return cma_error(ENOTSUP);
    }
}

static int set_rdma_option(struct rsocket *socket, int name, const struct given *given)
{
    if (socket->type == SOCK_DGRAM) {
        return datagram_has_buffers(socket) ? cma_error(EINVAL)
                                            : set_size_or_route(socket, name, given);
    }
    struct stream *stream = stream_of(socket);
    RSOCKET_HOLDS(held, &stream->connect_lock);
    return atomic_load(&stream->state) > STREAM_LISTENING ? cma_error(EINVAL)
                                                          : set_size_or_route(socket, name, given);
}

PUBLIC int rsetsockopt(int descriptor, int level, int name, const void *value, socklen_t length)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    const struct given given = {value, length};
    if (socket == NULL) {
        return -1;
    }
    if (level == SOL_RDMA) {
        return set_rdma_option(socket, name, &given);
    }
    if (socket->type == SOCK_DGRAM) {
        return set_datagram_option(socket, level, name, &given);
    }
    switch (level) {
    case SOL_SOCKET:
        return set_socket_option(stream_of(socket), name, &given);
    case IPPROTO_TCP:
        return set_tcp_option(stream_of(socket), name, &given);
    case IPPROTO_IP:
    case IPPROTO_IPV6:
        return set_network_option(stream_of(socket), level, name, &given);
    default:
        return cma_error(ENOTSUP);
    }
}

static int give(const void *answer, size_t size, void *ret_value, socklen_t *length)
{
    if (*length < size) {
        return cma_error(EINVAL);
    }
    memcpy(ret_value, answer, size);
    *length = (socklen_t)size;
    return 0;
}

static int give_int(int number, void *ret_value, socklen_t *length)
{
    return give(&number, sizeof number, ret_value, length);
}

static int get_socket_option(struct rsocket *socket, int name, void *ret_value, socklen_t *length)
{
    const struct linger linger = {.l_onoff = !has_bit(socket->socket_options, SO_LINGER)};
    switch (name) {
    case SO_REUSEADDR:
    case SO_KEEPALIVE:
    case SO_OOBINLINE:
        return give_int(has_bit(socket->socket_options, name), ret_value, length);
    case SO_RCVBUF:
        return give_int((int)socket->sizes.receive_buffer, ret_value, length);
    case SO_SNDBUF:
        return give_int((int)socket->sizes.send_buffer, ret_value, length);
    case SO_LINGER:
        return give(&linger, sizeof linger, ret_value, length);
    case SO_ERROR:
        return give_int(atomic_exchange(&socket->error, 0), ret_value, length);
    case SO_TYPE:
        return give_int(socket->type, ret_value, length);
    case SO_BROADCAST:
        return give_int(0, ret_value, length);
    default:
        return cma_error(ENOTSUP);
    }
}

static int get_tcp_info(const struct stream *stream, void *ret_value, socklen_t *length)
{
    struct tcp_info info = {
        .tcpi_state = stream_is_connected(stream) ? 1 /* established */ : 7 /* closed */,
        .tcpi_snd_cwnd = stream->base.sizes.send_queue,
    };
    *length = *length < sizeof info ? *length : (socklen_t)sizeof info;
    return give(&info, *length, ret_value, length);
}

static int get_tcp_option(const struct stream *stream, int name, void *ret_value, socklen_t *length)
{
    const struct rdma_route *route = &stream->id->route;
    switch (name) {
    case TCP_CONGESTION:
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
        return give_int(1, ret_value, length);
    case TCP_KEEPIDLE:
        return give_int((int)stream->keepalive_s, ret_value, length);
    case TCP_NODELAY:
        return give_int(has_bit(stream->base.tcp_options, name), ret_value, length);
    case TCP_MAXSEG:
        return give_int(route->num_paths > 0 ? 1 << (7 + route->path_rec->mtu) : MTU_FALLBACK,
                        ret_value, length);
    case TCP_INFO:
        return get_tcp_info(stream, ret_value, length);
    default:
        return cma_error(ENOTSUP);
    }
}

/* The route as it was given, or as it was found. */
static int get_route(const struct stream *stream, void *ret_value, socklen_t *length)
{
    const struct rdma_route *route = &stream->id->route;
    struct ibv_path_data data = {0};
    if (stream->route != NULL) {
        return give(stream->route, stream->route_length, ret_value, length);
    }
    if (*length < sizeof data) {
        return cma_error(EINVAL);
    }
    if (route->num_paths == 0) {
        *length = 0;
        return 0;
    }
    const struct ibv_sa_path_rec *record = route->path_rec;
    data.flags = record->preference;
    data.path.dgid = record->dgid;
    data.path.sgid = record->sgid;
    data.path.dlid = record->dlid;
    data.path.slid = record->slid;
    data.path.flowlabel_hoplimit = htonl(ntohl(record->flow_label) << 8 | record->hop_limit);
    data.path.tclass = record->traffic_class;
    data.path.reversible_numpath = (uint8_t)(record->reversible << 7 | 1);
    data.path.pkey = record->pkey;
    data.path.qosclass_sl = htons(record->sl);
    data.path.mtu = (uint8_t)(record->mtu | 2 << 6); /* exactly */
    data.path.rate = (uint8_t)(record->rate | 2 << 6);
    data.path.packetlifetime = (uint8_t)(record->packet_life_time | 2 << 6);
    return give(&data, sizeof data, ret_value, length);
}

static int get_rdma_option(const struct rsocket *socket, int name, void *ret_value,
                           socklen_t *length)
{
    switch (name) {
    case RDMA_SQSIZE:
        return give_int(socket->sizes.send_queue, ret_value, length);
    case RDMA_RQSIZE:
        return give_int(socket->sizes.receive_queue, ret_value, length);
    case RDMA_INLINE:
        return give_int(socket->sizes.inline_data, ret_value, length);
    case RDMA_IOMAPSIZE:
        return give_int((int)socket->sizes.mappings, ret_value, length);
    case RDMA_ROUTE:
        return socket->type == SOCK_STREAM
                   ? get_route((const struct stream *)socket, ret_value, length)
                   : cma_error(ENOTSUP);
    default:
        return cma_error(ENOTSUP);
    }
}

PUBLIC int rgetsockopt(int descriptor, int level, int name, void *value, socklen_t *length)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    if (level == SOL_RDMA) {
        return get_rdma_option(socket, name, value, length);
    }
    if (socket->type == SOCK_DGRAM) {
        return getsockopt(descriptor, level, name, value, length);
    }
    if (level == SOL_SOCKET) {
        return get_socket_option(socket, name, value, length);
    }
    if (level == IPPROTO_TCP) {
        return get_tcp_option(stream_of(socket), name, value, length);
    }
    if (level == IPPROTO_IP && name == IP_TOS) {
        return give_int(socket->type_of_service, value, length);
    }
    if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
        return give_int(has_bit(socket->ipv6_options, name), value, length);
    }
    return cma_error(ENOTSUP);
}

PUBLIC int rfcntl(int descriptor, int command, ...)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    va_list arguments;
    if (socket == NULL) {
        return -1;
    }
    va_start(arguments, command);
    int given = command == F_SETFL || command == F_SETFD ? va_arg(arguments, int) : 0;
    va_end(arguments);
    switch (command) {
    case F_GETFL:
        return atomic_load(&socket->status_flags);
    case F_SETFL:
        atomic_store(&socket->status_flags, given);
        return 0;
    case F_GETFD:
        return socket->descriptor_flags;
    case F_SETFD:
        socket->descriptor_flags = given;
        return 0;
    default:
        return cma_error(ENOTSUP);
    }
}
