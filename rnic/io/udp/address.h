/* The host's IP addresses as the GID table of the one port of the device `weir0`, and which of
 * them reaches a peer.
 *
 * A table is a snapshot: read it again to see changes. Order: IPv4, IPv6 global, IPv6 link-local,
 * then the loopback addresses, so that there is always something. The environment variable
 * WEIR_ADDRESS (addresses or interfaces, separated by commas) restricts the table to those, in that
 * order. WEIR_BIND (an IPv4 address, an IPv6 address, or both) restricts it to those, too, and says
 * that the process listens to nothing else. */
#ifndef WEIR_IO_ADDRESS_H
#define WEIR_IO_ADDRESS_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "rnic/base/status.h"
#include "rnic/wire/path.h"

#define ADDRESS_DEVICE_NAME "weir0"
#define ADDRESS_MAX         128u

struct address {
    struct gid gid;
    char interface[IF_NAMESIZE];
    uint32_t interface_index;
    uint32_t link_mtu;      /* bytes */
    enum path_mtu path_mtu; /* the largest that the link takes */
    bool loopback;
    bool link_local;
    uint8_t mac[6]; /* zero where the interface has none */
};

struct address_table {
    struct address entries[ADDRESS_MAX];
    uint32_t count;
};

/* NOT_FOUND: no address at all (or none of WEIR_ADDRESS). NO_MEMORY: the kernel has no descriptor
 * or no memory for the question. The table is empty then. */
enum status address_read(struct address_table *ret_table) MUST_USE;
/* WEIR_BIND: the IPv4 address and the IPv6 one, zero where it has none. NOT_FOUND: it is not set.
 * MALFORMED: it names anything but one address of a family at most. */
enum status address_read_bind(struct gid ret_addresses[2]) MUST_USE;
/* NULL where the GID is none of ours. */
const struct address *address_find(const struct address_table *table, const struct gid *gid);

/* Keeps what `places` names, in its order: addresses, and interfaces with all addresses they have;
 * `separator` between two. What the host does not have is passed over. */
void address_keep(struct address_table *table, const char *places, char separator);

/* What the port as a whole can promise: the smallest path MTU of its addresses that are not
 * loopback; of loopback ones where there are no others. */
enum path_mtu address_port_mtu(const struct address_table *table);

/* The largest path MTU whose packets fit `link_mtu` bytes with every header; 256 at least. */
enum path_mtu address_path_mtu(uint32_t link_mtu);

struct address_route {
    struct gid local;
    uint32_t interface_index;
    enum path_mtu path_mtu;
};

/* How packets to `remote` would go. `local` (may be NULL) demands that source address;
 * `interface_index` is needed for link-local peers without `local`, else 0. Sends nothing.
 * NOT_FOUND: no route, or its source is not in the table. NO_MEMORY: the kernel could not be asked,
 * for want of descriptors or memory. */
enum status address_route(const struct gid *remote, const struct gid *local,
                          uint32_t interface_index, struct address_route *ret_route) MUST_USE;

/* Between socket addresses and GIDs; IPv4 becomes ::ffff:a.b.c.d. UNSUPPORTED: another family.
 * The port is in host order; 0 stands for none. */
enum status address_from_socket(const struct sockaddr *socket, struct gid *ret_gid,
                                uint16_t *ret_port) MUST_USE;
/* Returns the length of what it wrote. */
socklen_t address_to_socket(const struct gid *gid, uint16_t port, uint32_t interface_index,
                            struct sockaddr_storage *ret_socket);

#endif
