/* The IP multicast groups that the host joins for the link's sockets, so that RoCEv2 multicast
 * reaches them: UDP datagrams to the group's address.
 *
 * The kernel gives a multicast datagram to every socket that has joined its group on the interface
 * where it came in, whatever SO_REUSEPORT and steering say of others; so each process of the host
 * that joined gets each packet once, and our sends come back to it and to us (IP_MULTICAST_LOOP).
 * Sockets get no groups but their own (IP_MULTICAST_ALL is 0), until they have joined more than the
 * kernel lets one socket join (net.ipv4.igmp_max_memberships, 20 by default): then further sockets
 * carry the rest and ours get all that the host has joined; the device drops what is not for it.
 * Any thread may call, without the engine's lock. */
#ifndef WEIR_IO_GROUPS_H
#define WEIR_IO_GROUPS_H

#include "rnic/base/status.h"
#include "rnic/io/udp/udp.h"
#include "rnic/wire/ids.h"

struct groups;

/* NULL: out of memory. `udp` outlives it. */
struct groups *groups_create(struct udp *udp);
/* Leaves all. NULL is allowed. */
void groups_destroy(struct groups *groups);
/* In a forked child: closes the child's copies of sockets. */
void groups_abandon(struct groups *groups);

/* One more user of the group on an interface. FULL: the kernel takes no more. UNSUPPORTED: the host
 * does not have the IP version. NOT_FOUND: no such interface, or it cannot. */
enum status groups_join(struct groups *groups, const struct gid *group,
                        uint32_t interface_index) MUST_USE;
/* One fewer; with the last the host leaves the group. Does nothing to what was not joined. */
void groups_leave(struct groups *groups, const struct gid *group, uint32_t interface_index);

#endif
