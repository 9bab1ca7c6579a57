#include "test/interop/tour/tap.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rnic/base/bytes.h"
#include "rnic/wire/mad.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"
#include "test/interop/tour/link.h"

#define UDP_LENGTH  8u
#define BUFFER_SIZE (1 << 22)
#define BEFORE_IP                                                                                  \
    (sizeof(struct virtio_net_hdr) + ETH_HLEN) /* the loopback device has the latter too */

/* The index of the interface with that address; IPv4 comes as ::ffff:a.b.c.d. */
static int interface_of(const struct in6_addr *wanted)
{
    struct ifaddrs *all, *one;
    int found = 0;
    if (getifaddrs(&all) != 0) {
        tour_die("getifaddrs");
    }
    for (one = all; one != NULL && found == 0; one = one->ifa_next) {
        if (one->ifa_addr == NULL) {
            continue;
        }
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)one->ifa_addr;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)one->ifa_addr;
        bool same = one->ifa_addr->sa_family == AF_INET
                        ? IN6_IS_ADDR_V4MAPPED(wanted) &&
                              memcmp(&wanted->s6_addr[12], &v4->sin_addr, 4) == 0
                        : one->ifa_addr->sa_family == AF_INET6 &&
                              memcmp(wanted, &v6->sin6_addr, sizeof *wanted) == 0;
        found = same ? (int)if_nametoindex(one->ifa_name) : 0;
    }
    freeifaddrs(all);
    return found;
}

struct tap tap_open(const struct link *link, uint32_t qpn, bool with_successes)
{
    struct tap tap = {.qpn = qpn, .with_successes = with_successes};
    int one = 1, size = BUFFER_SIZE;
    /* Segments that travel as one are told by the header that comes before the frame. */
    tap.socket = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL));
    if (tap.socket < 0) {
        tour_die("a packet socket (CAP_NET_RAW is needed)");
    }
    setsockopt(tap.socket, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    if (setsockopt(tap.socket, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) != 0) {
        tour_die("PACKET_VNET_HDR");
    }
    struct sockaddr_ll here = {
        .sll_family = AF_PACKET,
        .sll_protocol = htons(ETH_P_ALL),
        .sll_ifindex = interface_of(&link->local.sin6_addr),
    };
    if (bind(tap.socket, (struct sockaddr *)&here, sizeof here) != 0) {
        tour_die("a packet socket at the interface");
    }
    return tap;
}

static void list(struct tap *tap, const char *name)
{
    tap->answers++;
    if (strcmp(name, tap->last) == 0) {
        return;
    }
    size_t used = strlen(tap->seen);
    snprintf(tap->seen + used, sizeof tap->seen - used, "%s%s", used > 0 ? "," : "", name);
    snprintf(tap->last, sizeof tap->last, "%s", name);
}

/* False for what is no answer to the transaction. */
static bool name_message(const struct tap *tap, const struct packet *packet, char *ret_name,
                         size_t size)
{
    struct cm_message message;
    if (cm_message_parse(packet->payload, packet->payload_length, &message) != STATUS_OK ||
        message.transaction != tap->transaction || message.kind == CM_MESSAGE_MRA) {
        return false;
    }
    if (message.kind == CM_MESSAGE_REJ) {
        snprintf(ret_name, size, "REJ(%u)", message.reject_reason);
    } else {
        snprintf(ret_name, size, "%s", cm_message_kind_name(message.kind));
    }
    return true;
}

static const char *name_of(const struct packet *packet)
{
    static const char *const naks[] = {"SEQ", "INV", "ACC", "OP", "RD"};
    if (packet->info->has_aeth && packet->aeth.kind == AETH_RNR_NAK) {
        return "RNR";
    }
    if (packet->info->has_aeth && packet->aeth.kind == AETH_NAK) {
        return packet->aeth.value < 5 ? naks[packet->aeth.value] : "NAK?";
    }
    switch (packet->info->operation) {
    case OPERATION_ACKNOWLEDGE:
        return "ACK";
    case OPERATION_READ_RESPONSE:
        return "READ";
    case OPERATION_ATOMIC_ACKNOWLEDGE:
        return "ATOMIC";
    default:
        return NULL;
    }
}

static void see(struct tap *tap, const uint8_t *bytes, size_t length)
{
    struct packet packet;
    if (length < ICRC_LENGTH || packet_parse(bytes, length - ICRC_LENGTH, &packet) != REFUSED_NOT ||
        packet.destination.value != tap->qpn) {
        return;
    }
    char message[16];
    const char *name = name_of(&packet);
    if (tap->transaction != 0) {
        name = name_message(tap, &packet, message, sizeof message) ? message : NULL;
    }
    if (name == NULL) {
        return;
    }
    bool success = !packet.info->has_aeth || packet.aeth.kind == AETH_ACK;
    if (strcmp(name, "RNR") == 0) {
        tap->not_ready++;
    }
    if (tap->with_successes || !success) {
        list(tap, name);
    }
}

/* The bytes behind the IP header where it is UDP to our port. */
static const uint8_t *find_udp(const uint8_t *bytes, size_t length, size_t *ret_length)
{
    size_t header = 0;
    uint8_t protocol = 0;
    if (length >= 20 && bytes[0] >> 4 == 4) {
        header = (size_t)(bytes[0] & 15) * 4;
        protocol = bytes[9];
    } else if (length >= 40 && bytes[0] >> 4 == 6) {
        header = 40;
        protocol = bytes[6];
    }
    if (protocol != 17 || length < header + UDP_LENGTH ||
        bytes_load_u16(bytes + header + 2) != ROCE_UDP_PORT) {
        return NULL;
    }
    *ret_length = length - header - UDP_LENGTH;
    return bytes + header + UDP_LENGTH;
}

void tap_read(struct tap *tap)
{
    static uint8_t bytes[1 << 17];
    for (;;) {
        struct sockaddr_ll from;
        socklen_t size = sizeof from;
        ssize_t got =
            recvfrom(tap->socket, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &size);
        if (got < 0) {
            return;
        }
        struct virtio_net_hdr offload;
        if ((size_t)got < BEFORE_IP || from.sll_pkttype == PACKET_OUTGOING) {
            continue;
        }
        memcpy(&offload, bytes, sizeof offload);
        size_t length;
        const uint8_t *udp = find_udp(bytes + BEFORE_IP, (size_t)got - BEFORE_IP, &length);
        size_t step = offload.gso_type != VIRTIO_NET_HDR_GSO_NONE && offload.gso_size > 0
                          ? offload.gso_size
                          : length;
        for (size_t at = 0; udp != NULL && at < length; at += step) {
            see(tap, udp + at, length - at < step ? length - at : step);
        }
    }
}

const char *tap_text(struct tap *tap)
{
    static char text[TAP_TEXT + 16];
    tap_read(tap);
    snprintf(text, sizeof text, "%s", tap->seen[0] == '\0' ? "-" : tap->seen);
    if (strcmp(tap->seen, "RNR") == 0) {
        snprintf(text, sizeof text, "RNR*%u", tap->not_ready);
    }
    return text;
}

void tap_close(struct tap *tap)
{
    close(tap->socket);
    tap->socket = -1;
}
