/* Sockets with a UDP source port of their own, for paths whose flow label asks for one: it is what
 * routers and adapters tell flows apart by, IPv4's included. [RoCEv2 annex A17.9.2]
 *
 * All other packets leave from port 4791 itself, so that a flow looks alike in both directions,
 * and passes firewalls and address translators that expect answers where questions came from.
 * These sockets only send, and are never closed before the link is: the ICRC of a packet that waits
 * covers its port. */
#include <linux/filter.h>
#include <unistd.h>

#include "rnic/io/udp_private.h"

/* Nobody sends to such a port; what comes all the same is not kept. */
static void refuse_all(int descriptor)
{
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {.len = 1, .filter = &nothing};
    int result = setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    (void)result; /* else the socket's small buffer is its end */
}

static const struct udp_port *find(const struct udp *udp, enum udp_family family, uint16_t number)
{
    for (uint32_t i = 0; i < udp->port_count; i++) {
        if (udp->ports[i].number == number && udp->ports[i].family == family) {
            return &udp->ports[i];
        }
    }
    return NULL;
}

uint16_t udp_source_port(struct udp *udp, enum udp_family family, const struct path *path)
{
    if (path->flow_label == 0 || path->source_port == udp->port) {
        return udp->port;
    }
    const struct udp_port *known = find(udp, family, path->source_port);
    if (known != NULL) {
        return known->descriptor >= 0 ? path->source_port : udp->port;
    }
    if (udp->port_count == UDP_PORTS) {
        return udp->port;
    }
    struct udp_port *port = &udp->ports[udp->port_count++];
    *port = (struct udp_port){.number = path->source_port, .family = family, .descriptor = -1};
    if (udp_open_socket(family, &udp->bound[family], port->number, false, &port->descriptor) != 0) {
        return udp->port; /* somebody else's, for as long as we are here */
    }
    refuse_all(port->descriptor);
    return port->number;
}

int udp_sending_socket(const struct udp *udp, enum udp_family family, uint16_t source_port)
{
    const struct udp_port *port = source_port == udp->port ? NULL : find(udp, family, source_port);
    return port != NULL ? port->descriptor : udp->sockets[family];
}

void udp_close_ports(struct udp *udp)
{
    for (uint32_t i = 0; i < udp->port_count; i++) {
        if (udp->ports[i].descriptor >= 0) {
            close(udp->ports[i].descriptor);
        }
    }
    udp->port_count = 0;
}
