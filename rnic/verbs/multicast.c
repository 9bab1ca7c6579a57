/* Attaching datagram queue pairs to multicast groups: in the core, which copies datagrams to them,
 * and on the host, which joins the group on every interface of the port.
 *
 * A group is joined where the port has an address at that moment; an interface that comes later is
 * not. The LID of the call is InfiniBand's and means nothing on IP networks. */
#include <errno.h>
#include <stdlib.h>

#include "rnic/io/loop.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/gid_table.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/objects.h"
#include "rnic/verbs/port.h"

#define INTERFACES_MAX 32u

struct multicast_attachment {
    struct multicast_attachment *next;
    struct gid group;
    uint32_t interfaces[INTERFACES_MAX]; /* on which the group was joined for it */
    uint32_t count;
};

static bool has(const struct multicast_attachment *attachment, uint32_t interface_index)
{
    for (uint32_t i = 0; i < attachment->count; i++) {
        if (attachment->interfaces[i] == interface_index) {
            return true;
        }
    }
    return false;
}

/* Not OK: no interface took it. */
static enum status join_all(struct soft_qp *qp, struct gid_table *gids,
                            struct multicast_attachment *attachment)
{
    bool ipv4 = gid_is_ipv4(&attachment->group);
    enum status status = STATUS_NOT_FOUND;
    struct address address;
    for (uint32_t i = 0; gid_table_get(gids, i, &address); i++) {
        if (gid_is_zero(&address.gid) || gid_is_ipv4(&address.gid) != ipv4 ||
            has(attachment, address.interface_index) || attachment->count == INTERFACES_MAX) {
            continue;
        }
        enum status one = loop_join_group(qp->engine, &attachment->group, address.interface_index);
        if (one == STATUS_OK) {
            attachment->interfaces[attachment->count++] = address.interface_index;
        } else {
            status = one;
        }
    }
    return attachment->count > 0 ? STATUS_OK : status;
}

static void leave_all(struct soft_qp *qp, struct multicast_attachment *attachment)
{
    for (uint32_t i = 0; i < attachment->count; i++) {
        loop_leave_group(qp->engine, &attachment->group, attachment->interfaces[i]);
    }
    free(attachment);
}

static enum status attach(struct soft_qp *qp, struct multicast_attachment *attachment)
{
    struct qp_attributes attributes;
    engine_lock(qp->engine);
    qp_query(qp->qp, &attributes);
    engine_unlock(qp->engine);
    struct ibv_device *device = qp->extended.qp_base.context->device;
    struct gid_table *gids = devices_gids(device, attributes.port);
    /* Before INIT it has no port: the first one, then. */
    enum status status = join_all(qp, gids != NULL ? gids : devices_gids(device, 1), attachment);
    if (status != STATUS_OK) {
        return status;
    }
    engine_lock(qp->engine);
    status = device_attach_multicast(qp->engine->device, qp->qp, &attachment->group);
    if (status == STATUS_OK) {
        attachment->next = qp->attachments;
        qp->attachments = attachment;
    }
    engine_unlock(qp->engine);
    return status;
}

/* Attached already: no error, and one detach ends it, as the kernel has it. */
PUBLIC int ibv_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
    HOST_FORWARD(ibv->context, ibv_attach_mcast, ibv, gid, lid);
    struct soft_qp *qp = soft_qp(ibv);
    struct multicast_attachment *attachment = calloc(1, sizeof *attachment);
    if (attachment == NULL) {
        return ENOMEM;
    }
    attachment->group = port_group(gid);
    enum status status = STATUS_INVALID;
    if (ibv->qp_type == IBV_QPT_UD && gid_is_multicast(&attachment->group)) {
        status = attach(qp, attachment);
    }
    if (status != STATUS_OK) {
        leave_all(qp, attachment);
    }
    return status == STATUS_IN_USE ? 0 : errno_of(status);
}

PUBLIC int ibv_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
    HOST_FORWARD(ibv->context, ibv_detach_mcast, ibv, gid, lid);
    struct soft_qp *qp = soft_qp(ibv);
    struct multicast_attachment *found = NULL;
    struct gid group = port_group(gid);
    engine_lock(qp->engine);
    if (device_detach_multicast(qp->engine->device, qp->qp, &group) == STATUS_OK) {
        struct multicast_attachment **place = &qp->attachments;
        while (!gid_equal(&(*place)->group, &group)) {
            place = &(*place)->next;
        }
        found = *place;
        *place = found->next;
    }
    engine_unlock(qp->engine);
    if (found == NULL) {
        return EINVAL;
    }
    leave_all(qp, found);
    return 0;
}
