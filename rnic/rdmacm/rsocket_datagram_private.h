/* What the files of datagram rsockets share.
 *
 * Locks, outermost first: the service's; `setup_lock` (the first use; one reader); `send_lock` (one
 * sender; held while it waits for a place to send from); `map_lock` (queue pairs, destinations, and
 * posting to them); `queue_lock` as for streams. */
#ifndef WEIR_RDMACM_RSOCKET_DATAGRAM_PRIVATE_H
#define WEIR_RDMACM_RSOCKET_DATAGRAM_PRIVATE_H

#include <netinet/in.h>

#include "rnic/rdmacm/rsocket_datagram.h"
#include "rnic/rdmacm/rsocket_peers.h"

#define GRH_LENGTH       40u
#define DATAGRAM_STRIDE  (GRH_LENGTH + LOW_WATER)
#define DATAGRAM_PAYLOAD (LOW_WATER - RSOCKET_UDP_HEADER_MAX) /* both ways to send have room */

/* One for each local address that datagrams leave from. */
struct datagram_pair {
    struct list_node node;
    struct datagram *owner;
    struct rdma_cm_id *id;
    struct ibv_comp_channel *channel;
    struct ibv_cq *queue;
    struct sockaddr_storage local;
    uint8_t header[RSOCKET_DATAGRAM_HEADER_MAX];
    uint32_t header_length;
    uint8_t *receive_buffer;
    struct datagram_message *messages; /* what each slot of it holds */
    struct ibv_mr *receive_region, *send_region;
    uint32_t payload_max; /* its port's MTU allows */
    bool is_armed;
};

struct datagram_peer {
    struct peer_entry entry;
    struct datagram_pair *pair;
    struct ibv_ah *vector; /* NULL: reached over UDP */
    uint32_t qpn;
};

/* Received and not yet read. */
struct datagram_message {
    struct list_node node;
    struct datagram_pair *pair; /* NULL: it came over UDP; the bytes follow */
    struct sockaddr_storage source;
    const uint8_t *bytes;
    uint32_t length, slot;
};

struct datagram {
    struct rsocket base;
    pthread_mutex_t setup_lock, send_lock, map_lock, queue_lock;
    pthread_cond_t event_taken;
    bool has_sleeper; /* under queue_lock: somebody polls `epoll` */
    bool is_set_up;
    atomic_bool has_port; /* of the UDP socket; once it has one, it keeps it */
    struct service_entry udp;
    int epoll, forwarded; /* an eventfd: something came over UDP */
    struct list pairs;
    struct peer_table peers;
    struct datagram_peer *connected;
    uint8_t *send_buffer;
    uint32_t *free_places; /* a stack, under queue_lock */
    _Atomic uint32_t places;
    struct list messages; /* under queue_lock */
    _Atomic uint32_t waiting;
    atomic_bool is_armed;
};

static inline in_port_t *datagram_port_of(struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? &((struct sockaddr_in6 *)address)->sin6_port
                                          : &((struct sockaddr_in *)address)->sin_port;
}

static inline struct datagram *datagram_of(struct rsocket *socket)
{
    return (struct datagram *)socket;
}

/* rsocket_datagram_pair.c; map_lock held for pairs. */
/* The queue pair for a local address. NULL and errno. */
struct datagram_pair *datagram_pair(struct datagram *datagram, const struct sockaddr *local);
void datagram_free_pair(struct datagram_pair *pair);
int datagram_post(struct datagram_peer *peer, uint32_t place, uint32_t length);
typedef bool datagram_test(struct datagram *datagram);
bool datagram_can_send(struct datagram *datagram);
bool datagram_has_message(struct datagram *datagram);
bool datagram_all_sent(struct datagram *datagram);
/* Until `test` holds, trying for a moment before it sleeps. -1: EAGAIN for who does not block,
 * EBADF once it is closed. */
int datagram_wait(struct datagram *datagram, bool blocks, datagram_test *test);
/* Whoever waits looks again. */
void datagram_wake(struct datagram *datagram);
/* The oldest message; it goes back with datagram_done. */
struct datagram_message *datagram_oldest(struct datagram *datagram);
void datagram_done(struct datagram *datagram, struct datagram_message *message);
/* What came over UDP. Dropped where there are too many. */
void datagram_forward(struct datagram *datagram, const struct sockaddr *source,
                      const uint8_t *bytes, uint32_t length);

/* rsocket_datagram_peer.c */
/* The service's: the UDP socket is readable. */
void datagram_handle_udp(struct service_entry *entry);
/* With map_lock held, also while the result is used: another may take its place. NULL and errno. */
struct datagram_peer *datagram_peer(struct datagram *datagram, const struct sockaddr *address,
                                    socklen_t length);
/* Out of the table already. NULL is allowed. */
void datagram_free_peer(struct peer_entry *entry);
/* What goes to a peer over UDP: addressed with map_lock held, and sent without, for that may wait.
 */
struct datagram_over_udp {
    struct sockaddr_storage target;
    uint8_t header[RSOCKET_UDP_HEADER_MAX];
    size_t header_length;
};
void datagram_address_udp(const struct datagram_peer *peer, enum rsocket_operation operation,
                          struct datagram_over_udp *ret_over);
ssize_t datagram_send_udp(struct datagram *datagram, struct datagram_over_udp *over,
                          const struct iovec *bytes, int flags);

#endif
