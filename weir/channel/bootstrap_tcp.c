/* The TCP control plane. */
#include "weir/channel/bootstrap_tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "weir/channel/connection.h"
#include "weir/channel/listener.h"
#include "weir/error_private.h"

#define BACKLOG           128
#define ACCEPTS_AT_ONCE   32  /* who keeps knocking does not hold up the rest */
#define ACCEPT_PAUSE_MS   100 /* where the system has no descriptor or memory left */
#define READS_MAX         16
#define HOP_LIMIT         64
#define RNR_RETRY_FOREVER 7  /* never needed: credit keeps the receiver ahead */
#define MIN_RNR_TIMER     12 /* 0.64 ms [IBA table 45] */

static const struct verbs *verbs_of(const struct weir_connection *connection)
{
    return &connection->poller->fabric->library.verbs;
}

/* --- this side's endpoint --- */

static bool bring_to_init(struct weir_connection *connection, struct lane *lane)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = connection->poller->fabric->port,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    return verbs_of(connection)
               ->modify_qp(lane->pair, &attributes,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
           0;
}

static bool find_local(struct weir_connection *connection, struct sockaddr_storage *ret_local)
{
    socklen_t length = sizeof(*ret_local);
    if (getsockname(connection->tcp.source.fd, (struct sockaddr *)ret_local, &length) != 0) {
        return false;
    }
    address_format((struct sockaddr *)ret_local, connection->local_name);
    return true;
}

/* Makes the queue pairs and says what they are. */
static enum weir_status make_endpoint(struct weir_connection *connection, unsigned lanes,
                                      struct weir_error *ret_error)
{
    struct weir_fabric *fabric = connection->poller->fabric;
    struct endpoint *endpoint = &connection->tcp.local;
    struct sockaddr_storage local;
    if (!find_local(connection, &local)) {
        return error_set(ret_error, WEIR_SYSTEM, "getsockname: %m");
    }
    union ibv_gid gid = {0};
    connection->tcp.gid_index = fabric_choose_gid(fabric, (struct sockaddr *)&local, &gid);
    if (connection->tcp.gid_index < 0) {
        return fabric_say_no_gid(fabric, ret_error);
    }
    memcpy(endpoint->gid, gid.raw, 16);
    endpoint->lid = fabric->port_attributes.lid;
    endpoint->mtu = (uint8_t)fabric->port_attributes.active_mtu;
    endpoint->is_infiniband = fabric->port_attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
    int reads = fabric->attributes.max_qp_rd_atom;
    endpoint->reads_max = (uint8_t)(reads > READS_MAX ? READS_MAX : reads);
    enum weir_status status = connection_prepare(connection, ret_error);
    for (unsigned i = 0; status == WEIR_OK && i <= lanes; i++) {
        status = connection_add_lane(connection, i, ret_error);
        if (status == WEIR_OK && !bring_to_init(connection, &connection->lanes[i])) {
            status = error_set(ret_error, WEIR_SYSTEM, "queue pair to INIT: %m");
        }
        if (status == WEIR_OK) {
            endpoint->qpn[i] = connection->lanes[i].pair->qp_num;
            getrandom(&endpoint->psn[i], sizeof(endpoint->psn[i]), 0);
            endpoint->psn[i] &= 0xffffff;
        }
    }
    return status == WEIR_OK ? connection_post_receives(connection, ret_error) : status;
}

/* --- queue pairs up --- */

static struct ibv_ah_attr route_to(const struct weir_connection *connection,
                                   const struct endpoint *peer)
{
    struct ibv_ah_attr route = {
        .port_num = connection->poller->fabric->port,
        .dlid = peer->lid,
        .is_global = !connection->tcp.local.is_infiniband,
        .grh = {.sgid_index = (uint8_t)connection->tcp.gid_index, .hop_limit = HOP_LIMIT},
    };
    memcpy(route.grh.dgid.raw, peer->gid, 16);
    return route;
}

static bool bring_up(struct weir_connection *connection, struct lane *lane,
                     const struct endpoint *peer)
{
    const struct endpoint *local = &connection->tcp.local;
    int depth = connection->poller->fabric->attributes.max_qp_init_rd_atom;
    depth = depth > peer->reads_max ? peer->reads_max : depth;
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = (enum ibv_mtu)(local->mtu < peer->mtu ? local->mtu : peer->mtu),
        .dest_qp_num = peer->qpn[lane->index],
        .rq_psn = peer->psn[lane->index],
        .max_dest_rd_atomic = local->reads_max,
        .min_rnr_timer = MIN_RNR_TIMER,
        .ah_attr = route_to(connection, peer),
    };
    if (verbs_of(connection)
            ->modify_qp(lane->pair, &attributes,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) !=
        0) {
        return false;
    }
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .sq_psn = local->psn[lane->index],
        .timeout = lane_ack_timeout(connection),
        .retry_cnt = LANE_RETRY_COUNT,
        .rnr_retry = RNR_RETRY_FOREVER,
        .max_rd_atomic = (uint8_t)depth,
    };
    return verbs_of(connection)
               ->modify_qp(lane->pair, &attributes,
                           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                               IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

static bool bring_all_up(struct weir_connection *connection, const struct endpoint *peer)
{
    if (peer->is_infiniband != connection->tcp.local.is_infiniband) {
        connection_fail(connection, WEIR_UNREACHABLE,
                        "one end is on InfiniBand, the other on Ethernet");
        return false;
    }
    for (unsigned i = 0; i <= connection->lane_count; i++) {
        if (!bring_up(connection, &connection->lanes[i], peer)) {
            connection_fail(connection, WEIR_UNREACHABLE, "queue pair to the peer's %u: %m",
                            peer->qpn[i]);
            return false;
        }
    }
    return true;
}

/* --- frames --- */

/* Frames are far smaller than any socket buffer, and no more than two are ever on the way. */
static bool send_frame(struct weir_connection *connection, enum hello_purpose purpose,
                       enum weir_status status)
{
    struct hello hello = connection->local;
    hello.purpose = purpose;
    hello.status = (uint8_t)status;
    memcpy(hello.words, connection->refusal, sizeof(hello.words));
    uint8_t bytes[FRAME_LENGTH];
    hello_pack(&hello, bytes);
    endpoint_pack(&connection->tcp.local, bytes + HELLO_LENGTH);
    if (send(connection->tcp.source.fd, bytes, sizeof(bytes), MSG_NOSIGNAL) !=
        (ssize_t)sizeof(bytes)) {
        connection_fail(connection, WEIR_PEER_LOST, "the control connection broke: %m");
        return false;
    }
    return true;
}

/* Ends a server's connection, and tells the client, which would see else that we have gone. */
static void refuse(struct weir_connection *connection, enum weir_status status, const char *reason)
{
    connection_fail(connection, status, "%s", reason);
    send_frame(connection, HELLO_REFUSE, status);
}

static void take_connect(struct weir_connection *connection, const struct hello *hello,
                         const struct endpoint *peer)
{
    connection->peer = *hello;
    if (!connection_choose_token(connection)) {
        return;
    }
    connection_fill_hello(connection, HELLO_ACCEPT, connection->options.lanes);
    connection_agree(connection);
    if (connection->listener == NULL || !listener_ask(connection->listener, connection) ||
        connection->state != CONNECTION_CONNECTING) {
        refuse(connection, WEIR_REFUSED, "refused");
        return;
    }
    struct weir_error error;
    enum weir_status status = make_endpoint(connection, connection->lane_count, &error);
    if (status != WEIR_OK) {
        refuse(connection, status, error.message);
    } else if (!bring_all_up(connection, peer)) {
        weir_refuse(connection, "no RDMA path back");
        refuse(connection, WEIR_UNREACHABLE, connection->refusal);
    } else {
        send_frame(connection, HELLO_ACCEPT, WEIR_OK);
    }
}

static void take_accept(struct weir_connection *connection, const struct hello *hello,
                        const struct endpoint *peer)
{
    connection->peer = *hello;
    connection->token = hello->token;
    connection_answered(connection);
    connection_agree(connection);
    if (bring_all_up(connection, peer)) {
        send_frame(connection, HELLO_READY, WEIR_OK);
    }
}

static void take_frame(struct weir_connection *connection)
{
    struct hello hello;
    struct endpoint peer;
    const char *wrong = hello_parse(connection->tcp.frame, HELLO_LENGTH, &hello);
    if (wrong == NULL && (hello.purpose == HELLO_CONNECT || hello.purpose == HELLO_ACCEPT)) {
        wrong = endpoint_parse(connection->tcp.frame + HELLO_LENGTH, &peer);
    }
    bool is_server = connection->is_server;
    bool has_peer = connection->peer.purpose != 0;
    if (wrong != NULL && is_server && !has_peer) {
        refuse(connection, WEIR_PROTOCOL, wrong);
    } else if (wrong != NULL) {
        connection_fail(connection, WEIR_PROTOCOL, "%s", wrong);
    } else if (hello.purpose == HELLO_CONNECT && is_server && !has_peer) {
        take_connect(connection, &hello, &peer);
    } else if (hello.purpose == HELLO_ACCEPT && !is_server && !has_peer) {
        take_accept(connection, &hello, &peer);
    } else if (hello.purpose == HELLO_REFUSE && !is_server && !has_peer) {
        connection_refused(connection, &hello);
    } else if (hello.purpose == HELLO_READY && has_peer) {
        if (!is_server || send_frame(connection, HELLO_READY, WEIR_OK)) {
            connection_opened(connection);
        }
    } else {
        connection_fail(connection, WEIR_PROTOCOL, "a hello out of turn");
    }
}

/* --- the socket --- */

static void tune(int fd, const struct weir_connection *connection)
{
    int on = 1;
    unsigned timeout_ms = connection->options.silence_timeout_ms;
    int seconds = timeout_ms < 4000 ? 1 : (int)timeout_ms / 4000;
    int probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

/* A child that the program has forked may hold it, too: so it is ended for both, and no event of it
 * comes any more. */
static void end_socket(struct weir_poller *poller, struct source *source)
{
    if (source->fd >= 0) {
        poller_unwatch(poller, source);
        shutdown(source->fd, SHUT_RDWR);
        close(source->fd);
        source->fd = -1;
    }
}

static void connected(struct weir_connection *connection)
{
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(connection->tcp.source.fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0 && connection_try_next(connection)) {
        return;
    }
    if (error != 0) {
        connection_fail(connection, error == ECONNREFUSED ? WEIR_REFUSED : WEIR_UNREACHABLE,
                        error == ECONNREFUSED ? "nobody listens there (%s)" : "no way there: %s",
                        strerror(error));
        return;
    }
    connection->tcp.is_connecting = false;
    poller_rewatch(connection->poller, &connection->tcp.source, EPOLLIN | EPOLLRDHUP);
    struct weir_error reason;
    enum weir_status status = make_endpoint(connection, connection->local.lanes, &reason);
    if (status != WEIR_OK) {
        connection_fail(connection, status, "%s", reason.message);
        return;
    }
    send_frame(connection, HELLO_CONNECT, WEIR_OK);
}

static void tcp_ready(struct source *source, uint32_t events)
{
    struct weir_connection *connection =
        (struct weir_connection *)((char *)source - offsetof(struct weir_connection, tcp.source));
    if (connection->state == CONNECTION_ENDED) {
        return;
    }
    if (connection->tcp.is_connecting) {
        connected(connection);
        return;
    }
    struct tcp_link *tcp = &connection->tcp;
    ssize_t count =
        recv(source->fd, tcp->frame + tcp->frame_length, FRAME_LENGTH - tcp->frame_length, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (count <= 0) {
        poller_unwatch(connection->poller, source);
        connection_disconnected(connection);
        return;
    }
    tcp->frame_length += (size_t)count;
    if (tcp->frame_length == FRAME_LENGTH) {
        tcp->frame_length = 0;
        take_frame(connection);
    }
}

enum weir_status bootstrap_tcp_connect(struct weir_connection *connection, struct sockaddr *target,
                                       struct weir_error *ret_error)
{
    struct source *source = &connection->tcp.source;
    source->ready = tcp_ready;
    source->fd = socket(target->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (source->fd < 0) {
        return error_set(ret_error, WEIR_SYSTEM, "socket: %m");
    }
    tune(source->fd, connection);
    connection->tcp.is_connecting = true;
    if (connect(source->fd, target, address_length(target)) != 0 && errno != EINPROGRESS) {
        return error_set(ret_error, WEIR_UNREACHABLE, "%s: %m", connection->peer_name);
    }
    if (!poller_watch(connection->poller, source, EPOLLOUT)) {
        return error_set(ret_error, WEIR_SYSTEM, "epoll: %m");
    }
    return WEIR_OK;
}

/* --- listening --- */

static void turn_away(int fd, enum weir_status status, const char *words)
{
    struct hello hello = {.purpose = HELLO_REFUSE, .status = (uint8_t)status};
    snprintf(hello.words, sizeof(hello.words), "%s", words);
    uint8_t bytes[FRAME_LENGTH] = {0};
    hello_pack(&hello, bytes);
    send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
    close(fd);
}

static void take_client(struct weir_listener *listener, int fd, const struct sockaddr *peer)
{
    struct weir_connection *connection;
    char name[ADDRESS_TEXT_MAX];
    address_format(peer, name);
    if (listener_is_crowded(listener, name)) {
        turn_away(fd, WEIR_STATE, LISTENER_CROWDED);
        return;
    }
    if (connection_create(listener->poller, &listener->options, &connection, NULL) != WEIR_OK) {
        turn_away(fd, WEIR_NO_MEMORY, "");
        return;
    }
    listener_take(listener, connection);
    connection->is_server = true;
    connection->tcp.source = (struct source){fd, tcp_ready};
    memcpy(connection->peer_name, name, sizeof(name));
    tune(fd, connection);
    struct sockaddr_storage local; /* who is asked whether to accept may want to know it */
    if (!find_local(connection, &local)) {
        connection_fail(connection, WEIR_SYSTEM, "getsockname: %m");
        return;
    }
    if (!poller_watch(listener->poller, &connection->tcp.source, EPOLLIN | EPOLLRDHUP)) {
        connection_fail(connection, WEIR_SYSTEM, "epoll: %m");
    }
}

/* The socket stays readable meanwhile: looked at again and again, it would hold the poller. */
static void pause_accepting(struct weir_listener *listener)
{
    if (poller_set_timer(listener->poller, &listener->pause, ACCEPT_PAUSE_MS)) {
        poller_rewatch(listener->poller, &listener->tcp, 0);
    }
}

static void pause_over(struct timer *timer)
{
    struct weir_listener *listener =
        (struct weir_listener *)((char *)timer - offsetof(struct weir_listener, pause));
    poller_rewatch(listener->poller, &listener->tcp, EPOLLIN);
}

static void listener_ready(struct source *source, uint32_t events)
{
    struct weir_listener *listener =
        (struct weir_listener *)((char *)source - offsetof(struct weir_listener, tcp));
    for (unsigned i = 0; i < ACCEPTS_AT_ONCE && !listener->is_closed; i++) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof(peer);
        int fd =
            accept4(source->fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                pause_accepting(listener);
            }
            return;
        }
        take_client(listener, fd, (struct sockaddr *)&peer);
    }
}

enum weir_status bootstrap_tcp_listen(struct weir_listener *listener, struct sockaddr *local,
                                      struct weir_error *ret_error)
{
    int on = 1, off = 0;
    struct source *source = &listener->tcp;
    source->ready = listener_ready;
    listener->pause.fire = pause_over;
    source->fd = socket(local->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (source->fd < 0) {
        return error_set(ret_error, WEIR_SYSTEM, "socket: %m");
    }
    setsockopt(source->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address_is_all_of_v6(local)) { /* whatever net.ipv6.bindv6only is */
        setsockopt(source->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    if (bind(source->fd, local, address_length(local)) != 0 || listen(source->fd, BACKLOG) != 0 ||
        getsockname(source->fd, (struct sockaddr *)&bound, &length) != 0) {
        return error_set(ret_error, WEIR_ADDRESS, "%s: cannot listen: %m", listener->address);
    }
    address_format((struct sockaddr *)&bound, listener->address);
    if (!poller_watch(listener->poller, source, EPOLLIN)) {
        return error_set(ret_error, WEIR_SYSTEM, "epoll: %m");
    }
    return WEIR_OK;
}

void bootstrap_tcp_unlisten(struct weir_listener *listener)
{
    timers_cancel(&listener->poller->timers, &listener->pause);
    end_socket(listener->poller, &listener->tcp);
}

void bootstrap_tcp_leave(struct weir_connection *connection)
{
    end_socket(connection->poller, &connection->tcp.source);
}
