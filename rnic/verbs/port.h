/* Address vectors as paths.
 *
 * A vector without a GRH names a LID. A port's LID is the lower half of its first address
 * (10.77.0.5 is LID 5, 127.0.0.1 is LID 1), and a LID stands for the first address of the port that
 * uses it with its lower half replaced. So programs that know LIDs only work between processes,
 * namespaces and hosts whose addresses share the upper half: those of an IPv4 /16, or of an IPv6
 * /112. Beyond that it is ambiguous: the LID of a host elsewhere stands for one of the same lower
 * half here; if there is none, nobody answers. LID 0 is nobody. LIDs from 0xc000 on, which are
 * multicast to InfiniBand, are unicast here like the others.
 *
 * Where programs are told of InfiniBand, GID 0 of a port is fe80:: with a GUID that holds the
 * port's first IPv4 address, and a destination of that form is that address. */
#ifndef WEIR_VERBS_PORT_H
#define WEIR_VERBS_PORT_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "rnic/wire/path.h"

/* A group's address as it stands in packets. Interface-local scope (ff01::) means to IP that no
 * packet leaves the host, and the kernel sees to that; to RDMA programs, perftest among them, it is
 * a group like any other. So it travels as link-local scope (ff02::). */
struct gid port_group(const union ibv_gid *gid);

/* False: no such port or source GID, no destination, or two families. */
bool port_path(struct ibv_context *context, const struct ibv_ah_attr *vector, uint32_t entropy,
               struct path *ret_path);

/* Whether packets of that path MTU fit the way as far as the host knows it. Asks the kernel only
 * where the source's own interface is too narrow: to a peer of this host they do not pass it. */
bool port_takes(struct ibv_context *context, const struct ibv_ah_attr *vector,
                const struct path *path, enum path_mtu mtu);

#endif
