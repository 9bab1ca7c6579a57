/* What udp.c (sockets, receiving), udp_gather.c (packets into runs), udp_send.c (runs to the
 * kernel), udp_ports.c (source ports), udp_hold.c (who waits) and udp_errors.c (what did not get
 * through) share. */
#ifndef WEIR_IO_UDP_PRIVATE_H
#define WEIR_IO_UDP_PRIVATE_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "rnic/base/time.h"
#include "rnic/io/system/clock.h"
#include "rnic/io/system/complaints.h"
#include "rnic/io/udp/backlog.h"
#include "rnic/io/udp/fault.h"
#include "rnic/io/udp/lender.h"
#include "rnic/io/udp/udp.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"

#define UDP_RUNS           16u    /* that wait at once */
#define UDP_RUN_BYTES      64000u /* of UDP payload; an IP packet holds little more */
#define UDP_RUN_SEGMENTS   64u    /* the limit of kernels before 6.9 */
#define UDP_READS          16u    /* in one recvmmsg, at most */
#define UDP_READ_BYTES     65536u
#define UDP_DATAGRAM_MAX   (PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX + 4u + ICRC_LENGTH)
#define UDP_DELAYED_MAX    16u
#define UDP_LINK_LOCAL_MAX 8u
#define UDP_CONTROL_BYTES  256u
#define UDP_WAYS           64u
#define UDP_PORTS          64u /* source ports besides our own */

/* Packets of one path: all of `segment` bytes but the last, which may be shorter and closes it.
 * They are for one block of queue pair numbers, for the peer's kernel may give a run as a whole to
 * one of the processes there. */
struct udp_run {
    struct path path;
    uint8_t *bytes;
    bool borrowed;          /* from the lender, who may have them back */
    bool mixed;             /* not of one queue pair alone: not to be lent */
    bool trains;            /* else it was not meant to be lent */
    uint64_t ns;            /* that they took, where the lender's trial asks */
    struct qpn destination; /* of the first */
    uint32_t block;
    uint32_t length; /* bytes so far */
    uint32_t segment;
    uint32_t count;
    uint32_t sent; /* of those, where they leave one by one */
    bool closed;
    bool single; /* made to leave one by one: every identification is 0 */
};

/* A packet that a fault holds back: from BTH to before the ICRC. */
struct udp_delayed {
    struct path path;
    uint32_t length;
    uint32_t packets_to_go; /* before it leaves */
    bool used, seen_flush;  /* it leaves with the second flush at the latest */
    uint8_t bytes[UDP_DATAGRAM_MAX];
};

/* Datagrams so long have passed this host's own interface. */
struct udp_way {
    struct gid local, remote;
    uint32_t length; /* of the longest, UDP payload */
    struct instant passed;
};

struct udp_port {
    uint16_t number;
    enum udp_family family;
    int descriptor; /* -1: not to be had */
    bool used;      /* since the last udp_tidy */
    struct backlog backlog;
};

/* Addresses and marks of a message, as sendmsg wants them. */
struct udp_address {
    struct msghdr message;
    struct sockaddr_storage name;
    uint8_t control[UDP_CONTROL_BYTES] __attribute__((aligned(__alignof__(struct cmsghdr))));
    uint8_t *segment; /* where its length stands in `control`; NULL: it is no segmented send */
};

struct udp {
    struct packet_sink sink;
    uint16_t port;
    int sockets[UDP_FAMILY_COUNT];
    struct backlog backlogs[UDP_FAMILY_COUNT];
    struct gid bound[UDP_FAMILY_COUNT];
    struct udp_port ports[UDP_PORTS];
    uint32_t port_count;
    struct instant tidied;
    bool segmentation; /* the kernel takes UDP_SEGMENT, as far as known */
    uint32_t refusals; /* of it, since it took one: what it refused passed in single packets */
    bool blocked;

    struct udp_run runs[UDP_RUNS]; /* a ring, oldest at run_first */
    uint32_t run_first, run_count;
    uint8_t (*run_bytes)[UDP_RUN_BYTES]; /* UDP_RUNS of them */
    struct lender lender;
    struct roce_series series; /* of what leaves */
    struct path addressed;     /* of the latest run that left by itself, a segmented send or not: */
    struct udp_address addresses[2];

    uint8_t (*read_bytes)[UDP_READ_BYTES]; /* UDP_READS of them */
    uint32_t reads_wanted;                 /* in the next recvmmsg */
    struct mmsghdr reads[UDP_READS];
    struct iovec read_places[UDP_READS];
    struct sockaddr_storage read_names[UDP_READS];
    uint8_t read_control[UDP_READS][UDP_CONTROL_BYTES]
        __attribute__((aligned(__alignof__(struct cmsghdr))));

    struct {
        struct gid gid;
        uint32_t interface_index; /* 0: nobody's when last asked */
        struct instant asked;
    } link_local[UDP_LINK_LOCAL_MAX]; /* a cache, round robin; also of sources of multicasts */
    uint32_t link_local_next;

    struct {
        bool known;
        struct gid local;
        bool is_wireless; /* the interface that has it */
    } radio;              /* of whom the answer was wanted last */

    bool has_fault;
    struct fault fault;
    struct udp_delayed *delayed; /* UDP_DELAYED_MAX of them, with a fault only */
    uint32_t delayed_count;

    struct complaints complaints;
    bool refused_here; /* our own host says that the packet sent last is too long for it */
    struct udp_way ways[UDP_WAYS];

    struct udp_counters counters;
    char message[160];
};

static inline enum udp_family udp_family_of(const struct gid *gid)
{
    return gid_is_ipv4(gid) ? UDP_IPV4 : UDP_IPV6;
}

/* For the lender's trial; 0 where it does not ask. */
static inline struct instant udp_time_asked(const struct udp *udp)
{
    return trial_asks(&udp->lender.trial) ? clock_now() : (struct instant){0};
}

static inline uint64_t udp_time_since(const struct udp *udp, struct instant began)
{
    return trial_asks(&udp->lender.trial) ? instant_elapsed_ns(began, clock_now()) : 0;
}

static inline uint32_t udp_run_slot(const struct udp *udp, uint32_t index)
{
    return (udp->run_first + index) % UDP_RUNS;
}

static inline uint8_t *udp_run_end(const struct udp_run *run)
{
    return run->bytes + run->length;
}

/* The ICRC of the packet at `bytes`, put behind its `length_before` bytes. */
void udp_put_icrc(struct udp *udp, const struct path *path, uint32_t identification, uint8_t *bytes,
                  uint32_t length_before);
/* Hands the runs to the kernel. False: its buffers are full. */
bool udp_send_all(struct udp *udp);

/* As udp_take_errors, of one socket, or of none (-1). */
uint32_t udp_take_errors_of(struct udp *udp, int descriptor);
/* The host's own interface has refused the packet at `bytes`, of `length` bytes of UDP payload. */
void udp_complain(struct udp *udp, const struct path *path, const uint8_t *bytes, uint32_t length);
/* How much that interface takes: the one with the source address, unless packets leave by another,
 * of which is known only what it does not take. */
uint32_t udp_interface_mtu(const struct path *path, uint32_t length);
/* What the packet's headers say, of which `length` bytes are known: a BTH at least. */
void udp_quote(struct trouble *trouble, const uint8_t *bytes, size_t length);

/* A socket of the link, bound to `address` and `port`; one that only sends has no use for what
 * receiving needs. Returns 0 or an errno value. */
int udp_open_socket(enum udp_family family, const struct gid *address, uint16_t port, bool receives,
                    int *ret_descriptor);
/* The source port that packets of this path to that queue pair leave from; opens it where it is
 * new. */
uint16_t udp_source_port(struct udp *udp, enum udp_family family, const struct path *path,
                         struct qpn destination);
/* For a port that udp_source_port has named. */
int udp_sending_socket(struct udp *udp, enum udp_family family, uint16_t source_port);
struct backlog *udp_backlog(struct udp *udp, enum udp_family family, uint16_t source_port);
/* udp_hold.c. As a packet_sink's. */
uint64_t udp_hold_ns(struct packet_sink *sink, const struct path *path, struct qpn destination,
                     uint64_t *mark);
void udp_close_ports(struct udp *udp);

bool udp_emit(struct packet_sink *sink, const struct outgoing *outgoing);
uint32_t udp_emit_train(struct packet_sink *sink, const struct train *train);

#endif
