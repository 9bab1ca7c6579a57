/* Attaching datagram queue pairs to multicast groups: in the core, which copies datagrams to them,
 * and on the host, which joins the group on every interface of the port.
 *
 * A group is joined where the port has an address: at once, and again whenever the addresses
 * change. The LID of the call is InfiniBand's and means nothing on IP networks. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "rnic/io/loop/loop.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/gid_table.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"
#include "rnic/verbs/port.h"

#define INTERFACES_MAX 32u

struct multicast_attachment {
    struct list_node node;
    struct soft_qp *qp;
    struct gid_table *gids; /* of its port */
    struct gid group;
    uint32_t interfaces[INTERFACES_MAX]; /* on which the group was joined for it */
    uint32_t count;
};

/* All of the process. Outside of the engine's lock, for joining is a system call. */
static struct list attachments = {{&attachments.head, &attachments.head}};
static pthread_mutex_t attachments_lock = PTHREAD_MUTEX_INITIALIZER;

/* In a child: a thread that held it is gone. */
static void after_fork(void)
{
    pthread_mutex_init(&attachments_lock, NULL);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static bool has(const struct multicast_attachment *attachment, uint32_t interface_index)
{
    for (uint32_t i = 0; i < attachment->count; i++) {
        if (attachment->interfaces[i] == interface_index) {
            return true;
        }
    }
    return false;
}

/* Not OK: it is joined nowhere. */
static enum status join_all(struct multicast_attachment *attachment)
{
    bool ipv4 = gid_is_ipv4(&attachment->group);
    enum status status = STATUS_NOT_FOUND;
    struct address address;
    for (uint32_t i = 0; gid_table_get(attachment->gids, i, &address); i++) {
        if (gid_is_zero(&address.gid) || gid_is_ipv4(&address.gid) != ipv4 ||
            has(attachment, address.interface_index) || attachment->count == INTERFACES_MAX) {
            continue;
        }
        enum status one =
            loop_join_group(attachment->qp->engine, &attachment->group, address.interface_index);
        if (one == STATUS_OK) {
            attachment->interfaces[attachment->count++] = address.interface_index;
        } else {
            status = one;
        }
    }
    return attachment->count > 0 ? STATUS_OK : status;
}

static bool is_there(const struct multicast_attachment *attachment, uint32_t interface_index)
{
    struct address address;
    for (uint32_t i = 0; gid_table_get(attachment->gids, i, &address); i++) {
        if (address.interface_index == interface_index && !gid_is_zero(&address.gid) &&
            gid_is_ipv4(&address.gid) == gid_is_ipv4(&attachment->group)) {
            return true;
        }
    }
    return false;
}

/* Where the port has no address any more; `all`: everywhere. */
static void leave(struct multicast_attachment *attachment, bool all)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < attachment->count; i++) {
        uint32_t interface_index = attachment->interfaces[i];
        if (!all && is_there(attachment, interface_index)) {
            attachment->interfaces[kept++] = interface_index;
        } else {
            loop_leave_group(attachment->qp->engine, &attachment->group, interface_index);
        }
    }
    attachment->count = kept;
}

void multicast_look_again(void)
{
    pthread_mutex_lock(&attachments_lock);
    LIST_FOR_EACH(node, &attachments)
    {
        struct multicast_attachment *attachment =
            CONTAINER_OF(node, struct multicast_attachment, node);
        leave(attachment, false);
        (void)join_all(attachment); /* nowhere, for now */
    }
    pthread_mutex_unlock(&attachments_lock);
}

/* Before INIT it has no port: the first one, then. */
static struct gid_table *gids_of(struct soft_qp *qp)
{
    struct qp_attributes attributes;
    engine_lock(qp->engine);
    qp_query(qp->qp, &attributes);
    engine_unlock(qp->engine);
    struct ibv_device *device = qp->extended.qp_base.context->device;
    struct gid_table *gids = devices_gids(device, attributes.port);
    return gids != NULL ? gids : devices_gids(device, 1);
}

static enum status attach(struct multicast_attachment *attachment)
{
    struct soft_qp *qp = attachment->qp;
    enum status status = join_all(attachment);
    if (status == STATUS_OK) {
        engine_lock(qp->engine);
        status = device_attach_multicast(qp->engine->device, qp->qp, &attachment->group);
        engine_unlock(qp->engine);
    }
    if (status == STATUS_OK) {
        list_append(&attachments, &attachment->node);
    }
    return status;
}

/* Attached already: no error, and one detach ends it, as the kernel has it. */
PUBLIC int ibv_attach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
    HOST_FORWARD(ibv->context, ibv_attach_mcast, ibv, gid, lid);
    struct soft_qp *qp = soft_qp(ibv);
    if (!limits_offer(ABILITY_MULTICAST)) {
        return EOPNOTSUPP;
    }
    struct multicast_attachment *attachment = calloc(1, sizeof *attachment);
    if (attachment == NULL) {
        return ENOMEM;
    }
    attachment->qp = qp;
    attachment->gids = gids_of(qp);
    attachment->group = port_group(gid);
    enum status status = STATUS_INVALID;
    pthread_mutex_lock(&attachments_lock);
    if (ibv->qp_type == IBV_QPT_UD && gid_is_multicast(&attachment->group)) {
        status = attach(attachment);
    }
    if (status != STATUS_OK) {
        leave(attachment, true);
        free(attachment);
    }
    pthread_mutex_unlock(&attachments_lock);
    return status == STATUS_IN_USE ? 0 : errno_of(status);
}

/* With attachments_lock held. */
static void detach(const struct soft_qp *qp, const struct gid *group)
{
    LIST_FOR_EACH(node, &attachments)
    {
        struct multicast_attachment *attachment =
            CONTAINER_OF(node, struct multicast_attachment, node);
        if (attachment->qp == qp && gid_equal(&attachment->group, group)) {
            list_remove(&attachment->node);
            leave(attachment, true);
            free(attachment);
        }
    }
}

PUBLIC int ibv_detach_mcast(struct ibv_qp *ibv, const union ibv_gid *gid, uint16_t lid)
{
    HOST_FORWARD(ibv->context, ibv_detach_mcast, ibv, gid, lid);
    struct soft_qp *qp = soft_qp(ibv);
    struct gid group = port_group(gid);
    pthread_mutex_lock(&attachments_lock);
    engine_lock(qp->engine);
    enum status status = device_detach_multicast(qp->engine->device, qp->qp, &group);
    engine_unlock(qp->engine);
    if (status == STATUS_OK) {
        detach(qp, &group);
    }
    pthread_mutex_unlock(&attachments_lock);
    return status == STATUS_OK ? 0 : EINVAL;
}
