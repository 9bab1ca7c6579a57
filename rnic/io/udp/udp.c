/* The sockets, and what comes in through them. */
#include "rnic/io/udp/udp.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/io/system/raw_file.h"
#include "rnic/io/system/raw_socket.h"
#include "rnic/io/system/shortage.h"
#include "rnic/io/udp/address.h"
#include "rnic/io/udp/udp_private.h"

#define SOCKET_BUFFER_BYTES (16 << 20) /* asked for; the kernel grants what it allows */

#ifndef IPV6_FLOWINFO_SEND
#define IPV6_FLOWINFO_SEND 33
#endif
#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

static void set_option(int descriptor, int level, int option, int value)
{
    int result = setsockopt(descriptor, level, option, &value, sizeof value);
    (void)result; /* each is an improvement; what needs one fails by itself later */
}

static void set_buffer(int descriptor, int option, int force)
{
    int wanted = SOCKET_BUFFER_BYTES;
    if (setsockopt(descriptor, SOL_SOCKET, force, &wanted, sizeof wanted) != 0) {
        set_option(descriptor, SOL_SOCKET, option, wanted);
    }
}

/* DF, but not the kernel's memory of the path MTU: a forged ICMP message would stop us for minutes.
 * What the way takes is heard and judged packet by packet (udp_errors.c). */
static void set_ipv4_options(int descriptor)
{
    set_option(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
    set_option(descriptor, IPPROTO_IP, IP_RECVERR, 1);
    set_option(descriptor, IPPROTO_IP, IP_PKTINFO, 1);
    set_option(descriptor, IPPROTO_IP, IP_RECVTOS, 1);
    set_option(descriptor, IPPROTO_IP, IP_RECVTTL, 1);
}

static void set_ipv6_options(int descriptor)
{
    set_option(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set_option(descriptor, IPPROTO_IPV6, IPV6_FLOWINFO_SEND, 1);
    set_option(descriptor, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    set_option(descriptor, IPPROTO_IPV6, IPV6_RECVERR, 1);
    set_option(descriptor, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
    set_option(descriptor, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
    set_option(descriptor, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    set_option(descriptor, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
    set_option(descriptor, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1); /* rxe sends checksum 0 */
}

int udp_open_socket(enum udp_family family, const struct gid *address, uint16_t port, bool receives,
                    int *ret_descriptor)
{
    int domain = family == UDP_IPV4 ? AF_INET : AF_INET6;
    int descriptor = raw_socket(domain, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) {
        return errno;
    }
    if (family == UDP_IPV4) {
        set_ipv4_options(descriptor);
    } else {
        set_ipv6_options(descriptor);
    }
    set_option(descriptor, SOL_SOCKET, SO_REUSEPORT, 1);
    if (receives) {
        set_option(descriptor, IPPROTO_UDP, UDP_GRO, 1);
        set_buffer(descriptor, SO_RCVBUF, SO_RCVBUFFORCE);
    }
    set_buffer(descriptor, SO_SNDBUF, SO_SNDBUFFORCE);

    struct sockaddr_storage name;
    socklen_t length = address_to_socket(address, port, 0, &name);
    if (bind(descriptor, (struct sockaddr *)&name, length) != 0) {
        int error = errno;
        raw_close(descriptor);
        return error;
    }
    *ret_descriptor = descriptor;
    return 0;
}

static enum status open_sockets(struct udp *udp, const struct udp_config *config,
                                const char **ret_message)
{
    static const struct gid any[UDP_FAMILY_COUNT] = {[UDP_IPV4] = {{[10] = 0xff, 0xff}}}, none;
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        const struct gid *address = config->bind != NULL ? &config->bind[family] : &any[family];
        if (config->bind != NULL && gid_equal(address, &none)) {
            continue;
        }
        udp->bound[family] = *address;
        int error = udp_open_socket(family, address, udp->port, true, &udp->sockets[family]);
        if (error == EADDRINUSE) {
            *ret_message = "the UDP port is taken";
            return STATUS_IN_USE;
        }
        if (error == EACCES || error == EPERM) {
            *ret_message = "no right to open UDP port 4791";
            return STATUS_DENIED;
        }
        if (is_shortage(error)) {
            *ret_message = "no file descriptor or memory left for a UDP socket";
            return STATUS_NO_MEMORY;
        }
        if (error != 0 && config->bind != NULL) { /* what was asked for is not left out */
            *ret_message =
                "WEIR_BIND names an address that this host does not have, or a link-local one";
            return STATUS_NOT_FOUND;
        }
    }
    if (udp->sockets[UDP_IPV4] < 0 && udp->sockets[UDP_IPV6] < 0) {
        *ret_message = "the host has neither IPv4 nor IPv6";
        return STATUS_UNSUPPORTED;
    }
    return STATUS_OK;
}

static void prepare_reads(struct udp *udp)
{
    for (uint32_t i = 0; i < UDP_READS; i++) {
        udp->read_places[i] = (struct iovec){udp->read_bytes[i], UDP_READ_BYTES};
        udp->reads[i].msg_hdr = (struct msghdr){
            .msg_name = &udp->read_names[i],
            .msg_iov = &udp->read_places[i],
            .msg_iovlen = 1,
            .msg_control = udp->read_control[i],
        };
    }
}

static enum status prepare(struct udp *udp, const struct udp_config *config,
                           const char **ret_message)
{
    udp->run_bytes = calloc(UDP_RUNS, sizeof *udp->run_bytes);
    udp->read_bytes = calloc(UDP_READS, sizeof *udp->read_bytes);
    if (udp->run_bytes == NULL || udp->read_bytes == NULL) {
        *ret_message = "out of memory";
        return STATUS_NO_MEMORY;
    }
    prepare_reads(udp);
    if (config->fault == NULL || config->fault[0] == '\0') {
        return STATUS_OK;
    }
    if (fault_parse(config->fault, &udp->fault) != STATUS_OK) {
        *ret_message = "WEIR_FAULT does not read like "
                       "\"loss=0.01,reorder=0.01,duplicate=0.001,corrupt=0.001,seed=7\"";
        return STATUS_INVALID;
    }
    udp->has_fault = true;
    udp->delayed = calloc(UDP_DELAYED_MAX, sizeof *udp->delayed);
    if (udp->delayed == NULL) {
        *ret_message = "out of memory";
        return STATUS_NO_MEMORY;
    }
    return STATUS_OK;
}

enum status udp_create(const struct udp_config *config, struct udp **ret_udp,
                       const char **ret_message)
{
    struct udp *udp = calloc(1, sizeof *udp);
    if (udp == NULL) {
        *ret_message = "out of memory";
        return STATUS_NO_MEMORY;
    }
    udp->sink.emit = udp_emit;
    udp->sink.emit_train = udp_emit_train;
    udp->sink.hold_ns = udp_hold_ns;
    udp->sink.run_packets = UDP_RUN_SEGMENTS;
    udp->sink.run_bytes = UDP_RUN_BYTES;
    udp->port = config->port;
    udp->segmentation = true;
    udp->reads_wanted = 1;
    udp->sockets[UDP_IPV4] = udp->sockets[UDP_IPV6] = -1;
    enum status status = prepare(udp, config, ret_message);
    if (status == STATUS_OK) {
        status = open_sockets(udp, config, ret_message);
    }
    if (status != STATUS_OK) {
        udp_destroy(udp);
        return status;
    }
    *ret_udp = udp;
    return STATUS_OK;
}

void udp_abandon(struct udp *udp)
{
    udp_close_ports(udp);
    lender_close(&udp->lender);
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        if (udp->sockets[family] >= 0) {
            raw_close(udp->sockets[family]);
            udp->sockets[family] = -1;
        }
    }
}

void udp_destroy(struct udp *udp)
{
    if (udp == NULL) {
        return;
    }
    udp_abandon(udp);
    free(udp->run_bytes);
    free(udp->read_bytes);
    free(udp->delayed);
    free(udp);
}

struct packet_sink *udp_sink(struct udp *udp)
{
    return &udp->sink;
}

int udp_descriptor(const struct udp *udp, enum udp_family family)
{
    return udp->sockets[family];
}

uint32_t udp_receive_buffer(const struct udp *udp)
{
    uint32_t least = UINT32_MAX;
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        int granted = 0;
        socklen_t length = sizeof granted;
        if (udp->sockets[family] >= 0 &&
            getsockopt(udp->sockets[family], SOL_SOCKET, SO_RCVBUF, &granted, &length) == 0 &&
            (uint32_t)granted < least) {
            least = (uint32_t)granted;
        }
    }
    return least;
}

uint64_t udp_dropped_unread(const struct udp *udp)
{
    uint64_t sum = 0;
    for (enum udp_family family = 0; family < UDP_FAMILY_COUNT; family++) {
        uint32_t facts[SK_MEMINFO_VARS] = {0};
        socklen_t length = sizeof facts;
        if (udp->sockets[family] >= 0 &&
            getsockopt(udp->sockets[family], SOL_SOCKET, SO_MEMINFO, facts, &length) == 0) {
            sum += facts[SK_MEMINFO_DROPS];
        }
    }
    return sum;
}

const struct udp_counters *udp_counters(const struct udp *udp)
{
    return &udp->counters;
}

const char *udp_message(const struct udp *udp)
{
    return udp->message;
}

static int control_int(const struct cmsghdr *control)
{
    int value;
    if (control->cmsg_len < CMSG_LEN(sizeof value)) { /* IP_TOS comes as one byte */
        return *CMSG_DATA(control);
    }
    memcpy(&value, CMSG_DATA(control), sizeof value);
    return value;
}

/* What the kernel would answer from is the datagram's destination, unless that is no single host's.
 * A kernel that does not know what to answer from says 0. */
static bool is_broadcast(const struct in_pktinfo *info)
{
    uint32_t destination = ntohl(info->ipi_addr.s_addr);
    if (IN_MULTICAST(destination)) {
        return false;
    }
    if (destination == INADDR_BROADCAST || destination == INADDR_ANY) {
        return true;
    }
    return info->ipi_spec_dst.s_addr != 0 && info->ipi_spec_dst.s_addr != info->ipi_addr.s_addr;
}

/* Reads addresses, marks and segment size; false where the destination address is missing. */
static bool read_control(struct msghdr *message, struct udp_datagrams *datagrams)
{
    struct path *path = &datagrams->arrival.path;
    bool has_destination = false;
    int traffic_class = 0;
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control != NULL;
         control = CMSG_NXTHDR(message, control)) {
        int level = control->cmsg_level, type = control->cmsg_type;
        if (level == IPPROTO_IP && type == IP_PKTINFO) {
            struct in_pktinfo info;
            memcpy(&info, CMSG_DATA(control), sizeof info);
            path->local = (struct gid){{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}};
            memcpy(path->local.bytes + 12, &info.ipi_addr, 4);
            datagrams->broadcast = is_broadcast(&info);
            has_destination = true;
        } else if (level == IPPROTO_IPV6 && type == IPV6_PKTINFO) {
            struct in6_pktinfo info;
            memcpy(&info, CMSG_DATA(control), sizeof info);
            memcpy(path->local.bytes, &info.ipi6_addr, 16);
            has_destination = true;
        } else if ((level == IPPROTO_IP && type == IP_TOS) ||
                   (level == IPPROTO_IPV6 && type == IPV6_TCLASS)) {
            traffic_class = control_int(control);
        } else if ((level == IPPROTO_IP && type == IP_TTL) ||
                   (level == IPPROTO_IPV6 && type == IPV6_HOPLIMIT)) {
            path->hop_limit = (uint8_t)control_int(control);
        } else if (level == IPPROTO_UDP && type == UDP_GRO) {
            int segment = control_int(control);
            datagrams->segment = segment > 0 ? (uint32_t)segment : datagrams->segment;
        }
    }
    path->traffic_class = (uint8_t)traffic_class;
    datagrams->arrival.congestion_experienced = (traffic_class & 3) == 3; /* [RFC 3168, CE] */
    return has_destination;
}

static void take_read(struct udp *udp, enum udp_family family, uint32_t index,
                      struct udp_receiver *receiver)
{
    struct msghdr *message = &udp->reads[index].msg_hdr;
    struct udp_datagrams datagrams = {
        .family = family,
        .bytes = udp->read_bytes[index],
        .length = udp->reads[index].msg_len,
        .segment = udp->reads[index].msg_len,
    };
    struct path *path = &datagrams.arrival.path;
    const struct sockaddr *name = (const struct sockaddr *)&udp->read_names[index];
    if ((message->msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
        !read_control(message, &datagrams) ||
        address_from_socket(name, &path->remote, &path->source_port) != STATUS_OK) {
        udp->counters.truncated++;
        return;
    }
    uint32_t length = datagrams.length, segment = datagrams.segment;
    udp->counters.packets_received += segment > 0 ? (length + segment - 1) / segment : 1;
    receiver->receive(receiver, &datagrams);
}

void udp_expect_many(struct udp *udp)
{
    udp->reads_wanted = UDP_READS;
}

/* As many reads as are wanted; as recvmmsg(2). */
static int read_some(struct udp *udp, enum udp_family family)
{
    for (uint32_t i = 0; i < udp->reads_wanted; i++) { /* what an earlier one has changed */
        udp->reads[i].msg_hdr.msg_namelen = sizeof udp->read_names[i];
        udp->reads[i].msg_hdr.msg_controllen = UDP_CONTROL_BYTES;
    }
    return raw_receive(udp->sockets[family], udp->reads, udp->reads_wanted, MSG_DONTWAIT);
}

uint32_t udp_receive(struct udp *udp, enum udp_family family, struct udp_receiver *receiver)
{
    if (udp->sockets[family] < 0) {
        return 0;
    }
    int count = read_some(udp, family);
    if (count < 0 && errno != EAGAIN && errno != EINTR && udp_take_errors(udp, family) > 0) {
        count = read_some(udp, family);
    }
    if (count <= 0) {
        udp->reads_wanted = 1;
        return 0;
    }
    uint32_t reads = (uint32_t)count;
    udp->counters.receive_calls++;
    for (uint32_t i = 0; i < reads; i++) {
        take_read(udp, family, i, receiver);
    }
    uint32_t wanted = reads == udp->reads_wanted ? 2 * reads : reads;
    udp->reads_wanted = wanted < UDP_READS ? wanted : UDP_READS;
    return reads;
}
