/* Address vectors as paths.
 *
 * A vector without a GRH names a LID. The port has one made from the lower half of its first IPv4
 * address, so that programs that know LIDs only work between hosts of one /16. */
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

uint16_t port_lid(void);
bool port_gid_of_lid(uint16_t lid, struct gid *ret_gid);
/* False: no such source GID, no destination, or two families. */
bool port_path(const struct ibv_ah_attr *vector, uint32_t entropy, struct path *ret_path);

#endif
