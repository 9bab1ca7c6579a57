/* Sockets with a UDP source port of their own, for paths whose flow label asks for one: it is what
 * routers and adapters tell flows apart by, IPv4's included. [RoCEv2 annex A17.9.2]
 *
 * All other packets leave from port 4791 itself, so that a flow looks alike in both directions,
 * and passes firewalls and address translators that expect answers where questions came from. So do
 * MADs, whatever their path: it may be a stranger's choice, and a port is taken only for a queue
 * pair that sends.
 *
 * These sockets only send. One that nothing has left from for a while is closed, and opened again
 * when something does; but not while a packet waits whose ICRC covers its port. */
#include <linux/filter.h>
#include <unistd.h>

#include "rnic/io/system/clock.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/io/udp/udp_private.h"

/* Nobody sends to such a port; what comes all the same is not kept. */
static void refuse_all(int descriptor)
{
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {.len = 1, .filter = &nothing};
    int result = setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    (void)result; /* else the socket's small buffer is its end */
}

static struct udp_port *find(struct udp *udp, enum udp_family family, uint16_t number)
{
    for (uint32_t i = 0; i < udp->port_count; i++) {
        if (udp->ports[i].number == number && udp->ports[i].family == family) {
            return &udp->ports[i];
        }
    }
    return NULL;
}

static enum udp_family family_of(const struct path *path)
{
    return gid_is_ipv4(&path->remote) ? UDP_IPV4 : UDP_IPV6;
}

static bool is_from(const struct path *path, const struct udp_port *port)
{
    return path->source_port == port->number && family_of(path) == port->family;
}

static bool is_waited_for(const struct udp *udp, const struct udp_port *port)
{
    bool found = false;
    for (uint32_t i = 0; i < udp->run_count; i++) {
        found |= is_from(&udp->runs[(udp->run_first + i) % UDP_RUNS].path, port);
    }
    for (uint32_t i = 0; i < UDP_DELAYED_MAX && udp->delayed_count > 0; i++) {
        found |= udp->delayed[i].used && is_from(&udp->delayed[i].path, port);
    }
    return found;
}

static void close_port(const struct udp_port *port)
{
    if (port->descriptor >= 0) {
        raw_close(port->descriptor);
    }
}

void udp_tidy(struct udp *udp, struct instant now)
{
    if (instant_elapsed_ns(udp->tidied, now) < UDP_PORT_IDLE_NS) {
        return;
    }
    udp->tidied = now;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < udp->port_count; i++) {
        struct udp_port port = udp->ports[i];
        if (!port.used && !is_waited_for(udp, &port)) {
            close_port(&port);
            continue;
        }
        port.used = false;
        udp->ports[kept++] = port;
    }
    udp->port_count = kept;
}

struct instant udp_next_tidy(const struct udp *udp)
{
    return udp->port_count == 0 ? INSTANT_NEVER : instant_after(udp->tidied, UDP_PORT_IDLE_NS);
}

uint16_t udp_source_port(struct udp *udp, enum udp_family family, const struct path *path,
                         struct qpn destination)
{
    if (path->flow_label == 0 || path->source_port == udp->port || path->source_port == 0 ||
        qpn_equal(destination, QPN_MANAGEMENT)) {
        return udp->port;
    }
    struct udp_port *known = find(udp, family, path->source_port);
    if (known != NULL) {
        known->used = true;
        return known->descriptor >= 0 ? path->source_port : udp->port;
    }
    if (udp->port_count == UDP_PORTS) {
        udp_tidy(udp, clock_now()); /* a thread that always finds something to do does not */
    }
    if (udp->port_count == UDP_PORTS) {
        return udp->port;
    }
    struct udp_port *port = &udp->ports[udp->port_count++];
    *port = (struct udp_port){
        .number = path->source_port, .family = family, .descriptor = -1, .used = true};
    if (udp_open_socket(family, &udp->bound[family], port->number, false, &port->descriptor) != 0) {
        return udp->port; /* somebody else's, for a while */
    }
    refuse_all(port->descriptor);
    return port->number;
}

int udp_sending_socket(struct udp *udp, enum udp_family family, uint16_t source_port)
{
    const struct udp_port *port = source_port == udp->port ? NULL : find(udp, family, source_port);
    return port != NULL ? port->descriptor : udp->sockets[family];
}

struct backlog *udp_backlog(struct udp *udp, enum udp_family family, uint16_t source_port)
{
    struct udp_port *port = source_port == udp->port ? NULL : find(udp, family, source_port);
    return port != NULL ? &port->backlog : &udp->backlogs[family];
}

void udp_close_ports(struct udp *udp)
{
    for (uint32_t i = 0; i < udp->port_count; i++) {
        close_port(&udp->ports[i]);
    }
    udp->port_count = 0;
}
