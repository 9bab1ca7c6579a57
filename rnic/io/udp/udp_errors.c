/* What the kernel reports of packets that did not get through: refused by our own host when sent,
 * or by somebody on the way, with an ICMP message that quotes them. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include <linux/errqueue.h> /* needs time.h */

#include "rnic/base/bytes.h"
#include "rnic/io/system/raw_socket.h"
#include "rnic/io/udp/address.h"
#include "rnic/io/udp/udp_private.h"

#define HEADERS_IPV4 (20u + 8u)
#define HEADERS_IPV6 (40u + 8u)
#define QUOTE_BYTES  64u /* of the packet, from the BTH */
#define ERRORS_MAX   32u /* in one go */

void udp_quote(struct trouble *trouble, const uint8_t *bytes, size_t length)
{
    const struct opcode_info *info = opcode_lookup(bytes[0]);
    trouble->destination = packet_destination(bytes);
    trouble->psn = (struct psn){bytes_load_u24(bytes + 9)};
    bool is_report = info == NULL;
    trouble->answers = is_report || (service_is_reliable(info->service) && !info->is_request);
    if (info != NULL && info->service == SERVICE_UD && length >= BTH_LENGTH + DETH_LENGTH) {
        trouble->source = (struct qpn){bytes_load_u24(bytes + BTH_LENGTH + 5)};
    }
}

struct complaints *udp_complaints(struct udp *udp)
{
    return &udp->complaints;
}

uint32_t udp_interface_mtu(const struct path *path, uint32_t length)
{
    uint32_t refused = length + (gid_is_ipv4(&path->remote) ? HEADERS_IPV4 : HEADERS_IPV6);
    struct address_table table;
    const struct address *address =
        address_read(&table) == STATUS_OK ? address_find(&table, &path->local) : NULL;
    return address != NULL && address->link_mtu < refused ? address->link_mtu : refused - 1;
}

void udp_complain(struct udp *udp, const struct path *path, const uint8_t *bytes, uint32_t length)
{
    struct complaint complaint = {
        .trouble = {.kind = TROUBLE_TOO_LONG, .certain = true, .remote = path->remote},
        .length = length,
    };
    udp_quote(&complaint.trouble, bytes, length);
    if (!complaints_has(&udp->complaints, &complaint.trouble)) { /* of another packet of the run */
        complaint.trouble.mtu = udp_interface_mtu(path, length);
        complaints_add(&udp->complaints, &complaint);
    }
}

/* NULL: there is none. */
static const struct sock_extended_err *find_record(struct msghdr *message)
{
    for (struct cmsghdr *control = CMSG_FIRSTHDR(message); control != NULL;
         control = CMSG_NXTHDR(message, control)) {
        bool ipv4 = control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_RECVERR;
        bool ipv6 = control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_RECVERR;
        if (ipv4 || ipv6) {
            return (const struct sock_extended_err *)(const void *)CMSG_DATA(control);
        }
    }
    return NULL;
}

/* It is the network's. */
static bool has_reporter(const struct sock_extended_err *record, struct gid *ret_reporter)
{
    uint16_t port;
    return (record->ee_origin == SO_EE_ORIGIN_ICMP || record->ee_origin == SO_EE_ORIGIN_ICMP6) &&
           address_from_socket(SO_EE_OFFENDER(record), ret_reporter, &port) == STATUS_OK;
}

static void take_error(struct udp *udp, struct msghdr *message, const uint8_t *quote, size_t length)
{
    struct complaint complaint = {.length = 0};
    uint16_t port;
    const struct sock_extended_err *record = find_record(message);
    if (record == NULL) {
        return;
    }
    if (record->ee_origin == SO_EE_ORIGIN_LOCAL) { /* the send has failed, too */
        udp->refused_here |= record->ee_errno == EMSGSIZE;
        return;
    }
    if (!has_reporter(record, &complaint.reporter)) {
        return;
    }
    switch (record->ee_errno) {
    case EMSGSIZE:
        udp->counters.icmp_too_long++;
        complaint.trouble.kind = TROUBLE_TOO_LONG;
        complaint.trouble.mtu = record->ee_info;
        break;
    case ECONNREFUSED:
        udp->counters.icmp_port_unreachable++;
        complaint.trouble.kind = TROUBLE_REFUSED;
        break;
    default:
        udp->counters.icmp_other++;
        return;
    }
    if (length >= BTH_LENGTH && message->msg_namelen > 0 &&
        address_from_socket(message->msg_name, &complaint.trouble.remote, &port) == STATUS_OK) {
        udp_quote(&complaint.trouble, quote, length);
        complaints_add(&udp->complaints, &complaint);
    }
}

uint32_t udp_take_errors_of(struct udp *udp, int descriptor)
{
    uint32_t count = 0;
    for (; descriptor >= 0 && count < ERRORS_MAX; count++) {
        uint8_t quote[QUOTE_BYTES];
        struct sockaddr_storage name = {0};
        uint8_t control[UDP_CONTROL_BYTES] __attribute__((aligned(__alignof__(struct cmsghdr))));
        struct iovec place = {quote, sizeof quote};
        struct msghdr message = {
            .msg_name = &name,
            .msg_namelen = sizeof name,
            .msg_iov = &place,
            .msg_iovlen = 1,
            .msg_control = control,
            .msg_controllen = sizeof control,
        };
        ssize_t length = raw_receive_one(descriptor, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
        if (length < 0) {
            break;
        }
        take_error(udp, &message, quote, (size_t)length);
    }
    return count;
}

uint32_t udp_take_errors(struct udp *udp, enum udp_family family)
{
    uint32_t count = udp_take_errors_of(udp, udp->sockets[family]);
    for (uint32_t i = 0; i < udp->port_count; i++) {
        if (udp->ports[i].family == family) {
            count += udp_take_errors_of(udp, udp->ports[i].descriptor);
        }
    }
    return count;
}
