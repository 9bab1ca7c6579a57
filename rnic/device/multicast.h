/* Which queue pairs are attached to which multicast group. [IBA 10.5]
 *
 * Here: the table and the delivery of a datagram to every queue pair of its group. Not here: that
 * the host joins the group, which is io's; whether a queue pair takes the datagram
 * (transport/datagram.h).
 *
 * Invariant: a group that stands in the table has a member; groups are in the order of their GIDs.
 */
#ifndef WEIR_DEVICE_MULTICAST_H
#define WEIR_DEVICE_MULTICAST_H

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"
#include "rnic/base/time.h"
#include "rnic/transport/environment.h"
#include "rnic/transport/qp.h"

struct multicast_group;

struct multicast {
    struct allocator *allocator;
    struct multicast_group **groups; /* MULTICAST_GROUPS_MAX of them */
    uint32_t count;
};

enum status multicast_init(struct multicast *multicast, struct allocator *allocator) MUST_USE;
/* A zeroed one is allowed. */
void multicast_fini(struct multicast *multicast);

/* As device_attach_multicast and device_detach_multicast. */
enum status multicast_attach(struct multicast *multicast, struct qp *qp,
                             const struct gid *group) MUST_USE;
enum status multicast_detach(struct multicast *multicast, struct qp *qp,
                             const struct gid *group) MUST_USE;
bool multicast_has(const struct multicast *multicast, const struct gid *group);
/* From all groups. */
void multicast_forget(struct multicast *multicast, struct qp *qp);

/* A packet to QPN_MULTICAST. */
void multicast_receive(struct multicast *multicast, struct environment *environment,
                       struct instant now, const struct arrival *arrival,
                       const struct packet *packet);

#endif
