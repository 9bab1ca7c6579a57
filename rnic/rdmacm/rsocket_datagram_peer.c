/* Who a datagram rsocket has spoken with, and how they are reached.
 *
 * The first datagram to a peer travels over UDP and names our queue pair; the peer answers over UDP
 * with its own, and from then on datagrams go from one queue pair to the other. A peer that comes
 * back with another queue pair is a new program at the same address. */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rnic/io/system/raw_socket.h"
#include "rnic/rdmacm/rsocket_datagram_private.h"

static bool is_any(const struct sockaddr *address)
{
    return address->sa_family == AF_INET
               ? ((const struct sockaddr_in *)address)->sin_addr.s_addr == INADDR_ANY
               : IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* The address of ours from which `target` is reached, with the port of the UDP socket. */
static int find_local(const struct datagram *datagram, const struct sockaddr *target,
                      socklen_t length, struct sockaddr_storage *ret_local)
{
    struct sockaddr *local = (struct sockaddr *)ret_local;
    socklen_t size = sizeof *ret_local;
    if (getsockname(datagram->base.index, local, &size) != 0 || !is_any(local)) {
        return local->sa_family == 0 ? -1 : 0;
    }
    uint16_t port = *datagram_port_of(local);
    int probe = raw_socket(target->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (probe < 0) {
        return -1;
    }
    size = sizeof *ret_local;
    int result = connect(probe, target, length);
    result = result == 0 ? getsockname(probe, local, &size) : result;
    int error = errno;
    close(probe);
    *datagram_port_of(local) = port;
    return result == 0 ? 0 : cma_error(error);
}

void datagram_free_peer(struct peer_entry *entry)
{
    if (entry != NULL) {
        struct datagram_peer *peer = CONTAINER_OF(entry, struct datagram_peer, entry);
        if (peer->vector != NULL) {
            ibv_destroy_ah(peer->vector);
        }
        free(peer);
    }
}

static struct datagram_peer *meet(struct datagram *datagram, const struct sockaddr *address,
                                  socklen_t length)
{
    struct sockaddr_storage local = {0};
    if (find_local(datagram, address, length, &local) != 0) {
        return NULL;
    }
    struct datagram_pair *pair = datagram_pair(datagram, (struct sockaddr *)&local);
    struct datagram_peer *peer = pair == NULL ? NULL : calloc(1, sizeof *peer);
    if (peer == NULL) {
        return NULL;
    }
    memcpy(&peer->entry.address, address, rsocket_address_length(address));
    peer->pair = pair;
    const struct datagram_peer *connected = datagram->connected;
    datagram_free_peer(peer_table_add(&datagram->peers, &peer->entry,
                                      connected == NULL ? NULL : &connected->entry));
    return peer;
}

struct datagram_peer *datagram_peer(struct datagram *datagram, const struct sockaddr *address,
                                    socklen_t length)
{
    struct peer_entry *entry = peer_table_find(&datagram->peers, address);
    if (entry != NULL) {
        return CONTAINER_OF(entry, struct datagram_peer, entry);
    }
    int cancel = cancel_hold();
    struct datagram_peer *peer = meet(datagram, address, length);
    cancel_restore(cancel);
    return peer;
}

void datagram_address_udp(const struct datagram_peer *peer, enum rsocket_operation operation,
                          struct datagram_over_udp *ret_over)
{
    const struct rsocket_udp_header said = {operation, peer->pair->id->qp->qp_num};
    ret_over->target = peer->entry.address;
    ret_over->header_length =
        rsocket_udp_build(&said, (struct sockaddr *)&peer->pair->local, ret_over->header);
}

ssize_t datagram_send_udp(struct datagram *datagram, struct datagram_over_udp *over,
                          const struct iovec *bytes, int flags)
{
    struct iovec pieces[2] = {{over->header, over->header_length}};
    struct msghdr message = {
        .msg_name = &over->target,
        .msg_namelen = rsocket_address_length((const struct sockaddr *)&over->target),
        .msg_iov = pieces,
        .msg_iovlen = bytes == NULL ? 1 : 2,
    };
    if (bytes != NULL) {
        pieces[1] = *bytes;
    }
    ssize_t sent = raw_send_one(datagram->base.index, &message, flags);
    return sent < 0 ? -1 : sent - (ssize_t)pieces[0].iov_len;
}

/* Without an id, whose port would be claimed in the registry: any stranger may be met here. */
static int find_path(const struct datagram_peer *peer, struct ibv_ah_attr *ret_attributes)
{
    struct path path = {.local = cma_id(peer->pair->id)->path.local};
    uint16_t port;
    if (cma_device()->core->address_from_socket((const struct sockaddr *)&peer->entry.address,
                                                &path.remote, &port) != STATUS_OK) {
        return -1;
    }
    cma_fill_vector_along(&path, peer->pair->id->port_num, ret_attributes);
    return 0;
}

/* With map_lock held. */
static void learn(struct datagram_peer *peer, uint32_t qpn)
{
    struct ibv_ah_attr attributes;
    if (peer->vector != NULL && peer->qpn == qpn) {
        return;
    }
    if (peer->vector != NULL) {
        ibv_destroy_ah(peer->vector);
        peer->vector = NULL;
    }
    if (find_path(peer, &attributes) == 0) {
        peer->qpn = qpn;
        peer->vector = ibv_create_ah(peer->pair->id->pd, &attributes);
    }
}

void datagram_handle_udp(struct service_entry *entry)
{
    struct datagram *datagram = CONTAINER_OF(entry, struct datagram, udp);
    uint8_t bytes[LOW_WATER + RSOCKET_UDP_HEADER_MAX];
    struct sockaddr_storage source;
    struct rsocket_udp_header header;
    socklen_t size = sizeof source;
    ssize_t length = recvfrom(datagram->base.index, bytes, sizeof bytes, MSG_DONTWAIT,
                              (struct sockaddr *)&source, &size);
    if (length <= 0) {
        return;
    }
    size_t start = rsocket_udp_parse(bytes, (size_t)length, (struct sockaddr *)&source, &header);
    if (start == 0) {
        return;
    }
    pthread_mutex_lock(&datagram->map_lock);
    struct datagram_peer *peer = datagram_peer(datagram, (struct sockaddr *)&source, size);
    if (peer != NULL) {
        if (header.operation == RSOCKET_DATA) {
            struct datagram_over_udp answer;
            datagram_address_udp(peer, RSOCKET_CONTROL, &answer);
            (void)datagram_send_udp(datagram, &answer, NULL, MSG_DONTWAIT);
        }
        learn(peer, header.qpn);
    }
    pthread_mutex_unlock(&datagram->map_lock);
    if (peer != NULL && header.operation == RSOCKET_DATA) {
        datagram_forward(datagram, (struct sockaddr *)&source, bytes + start,
                         (uint32_t)((size_t)length - start));
    }
}
