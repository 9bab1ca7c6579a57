/* The addresses of the simulated hosts, and the paths between them. Declared in network.h. */
#include "sim/network.h"

struct gid network_gid(unsigned index, bool ipv6)
{
    struct gid gid = {{0}};
    if (ipv6) {
        gid.bytes[0] = 0xfd;
        gid.bytes[1] = 0x77;
        gid.bytes[15] = (uint8_t)(index + 1);
        return gid;
    }
    gid.bytes[10] = 0xff;
    gid.bytes[11] = 0xff;
    gid.bytes[12] = 10;
    gid.bytes[13] = 77;
    gid.bytes[15] = (uint8_t)(index + 1);
    return gid;
}

struct path network_path(unsigned from, unsigned to, bool ipv6, uint16_t source_port)
{
    return (struct path){
        .local = network_gid(from, ipv6),
        .remote = network_gid(to, ipv6),
        .source_port = source_port,
        .hop_limit = 64,
    };
}

unsigned network_host_of(const struct gid *gid)
{
    unsigned index = gid->bytes[15] - 1u;
    if (index >= HOST_MAX) {
        return HOST_MAX;
    }
    struct gid ours = network_gid(index, !gid_is_ipv4(gid));
    return gid_equal(gid, &ours) ? index : HOST_MAX;
}

bool network_is_here(struct packet_sink *sink, const struct gid *gid)
{
    const struct network_port *port = (struct network_port *)sink;
    return (port->addresses >> network_host_of(gid) & 1) != 0;
}

void network_share(struct network *network, unsigned a, unsigned b)
{
    network->ports[a].addresses |= 1u << b;
    network->ports[b].addresses |= 1u << a;
}
