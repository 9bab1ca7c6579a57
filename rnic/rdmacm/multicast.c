/* Multicast groups of an id. There is nobody to ask for admission on an IP network: a join is an
 * event, and when the application takes it, its queue pair is attached. Membership of the host is
 * what ibv_attach_mcast brings about; who joins for sending only needs none. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/io/system/cancel.h"
#include "rnic/rdmacm/cma.h"

#define HOP_LIMIT_GROUP 1 /* as the kernel has it: groups do not leave their network */

struct cma_group {
    struct cma_group *next; /* of the same id */
    struct sockaddr_storage address;
    struct gid gid;
    uint16_t flags;
    void *context;
    bool attached;                                  /* by us */
    uint32_t events_delivered, events_acknowledged; /* under cma_lock */
};

static enum status group_gid(const struct sockaddr *address, struct gid *ret_gid)
{
    uint16_t port;
    struct gid gid;
    enum status status = cma_device()->core->address_from_socket(address, &gid, &port);
    if (status != STATUS_OK || gid_is_zero(&gid)) {
        return STATUS_INVALID;
    }
    *ret_gid = gid;
    return STATUS_OK;
}

static void tell_join(struct cma_event *event)
{
    struct cma_id *id = event->owner;
    struct cma_group *group = event->group;
    struct rdma_ud_param *param = &event->ibv.param.ud;
    param->private_data = group->context;
    cma_fill_vector(id, &param->ah_attr);
    memcpy(param->ah_attr.grh.dgid.raw, group->gid.bytes, sizeof group->gid.bytes);
    param->ah_attr.grh.hop_limit = HOP_LIMIT_GROUP;
    param->qp_num = QPN_MULTICAST.value;
    param->qkey = RDMA_UDP_QKEY;
}

void cma_group_process(struct cma_event *event)
{
    struct cma_id *id = event->owner;
    struct cma_group *group = event->group;
    tell_join(event);
    if (id->ibv.qp == NULL || group->flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) {
        return;
    }
    union ibv_gid gid;
    memcpy(gid.raw, group->gid.bytes, sizeof gid.raw);
    int error = ibv_attach_mcast(id->ibv.qp, &gid, 0);
    group->attached = error == 0;
    if (error != 0) {
        event->ibv.event = RDMA_CM_EVENT_MULTICAST_ERROR;
        event->ibv.status = -error;
    }
}

void cma_group_delivered(struct cma_group *group)
{
    group->events_delivered++;
}

void cma_group_acknowledged(struct cma_group *group)
{
    group->events_acknowledged++;
}

static int join(struct cma_id *id, const struct sockaddr *address, size_t length, uint16_t flags,
                void *context)
{
    bool is_bound = id->state == CMA_BOUND || id->state == CMA_ADDRESS_RESOLVED ||
                    id->state == CMA_ROUTE_RESOLVED;
    if (!cma_is_datagram(id) || id->ibv.verbs == NULL || !is_bound || !cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    struct cma_group *group = calloc(1, sizeof *group);
    struct cma_event *event = cma_event_new(id, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
    if (group == NULL || event == NULL || group_gid(address, &group->gid) != STATUS_OK) {
        int error = group == NULL || event == NULL ? ENOMEM : EINVAL;
        free(group);
        free(event);
        return cma_error(error);
    }
    memcpy(&group->address, address, length);
    group->flags = flags;
    group->context = context;
    event->group = group;
    const bool waits = id->is_synchronous;
    pthread_mutex_lock(&cma_lock);
    group->next = id->groups;
    id->groups = group;
    bool is_queued = cma_event_queue(event);
    pthread_mutex_unlock(&cma_lock);
    if (!is_queued) {
        return cma_error(ENOENT);
    }
    return waits ? cma_complete(id) : 0;
}

PUBLIC int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *address, void *context)
{
    size_t length = cma_address_length(address);
    return length == 0 ? cma_error(EINVAL)
                       : join(cma_id(id), address, length, RDMA_MC_JOIN_FLAG_FULLMEMBER, context);
}

PUBLIC int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attributes,
                                  void *context)
{
    const uint32_t needed = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    if (attributes->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED) {
        return cma_error(ENOTSUP);
    }
    if ((attributes->comp_mask & needed) != needed ||
        attributes->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) {
        return cma_error(EINVAL);
    }
    size_t length = cma_address_length(attributes->addr);
    return length == 0 ? cma_error(EINVAL)
                       : join(cma_id(id), attributes->addr, length,
                              (uint16_t)attributes->join_flags, context);
}

/* The join may not have been taken yet. */
static void drop_events(struct cma_id *id, const struct cma_group *group)
{
    struct cma_channel *channel = cma_channel(id->ibv.channel);
    LIST_FOR_EACH(node, &channel->events)
    {
        struct cma_event *event = CONTAINER_OF(node, struct cma_event, node);
        if (event->group == group) {
            list_remove(node);
            free(event);
        }
    }
    weir_seam()->notify_forget(channel->notify, group);
}

static void detach(struct cma_id *id, const struct cma_group *group)
{
    union ibv_gid gid;
    memcpy(gid.raw, group->gid.bytes, sizeof gid.raw);
    if (group->attached && id->ibv.qp != NULL) {
        ibv_detach_mcast(id->ibv.qp, &gid, 0);
    }
}

static bool is_of(const struct rdma_cm_event *event, const struct cma_group *group)
{
    return event != NULL && ((const struct cma_event *)event)->group == group;
}

PUBLIC int rdma_leave_multicast(struct rdma_cm_id *ibv, struct sockaddr *address)
{
    struct cma_id *id = cma_id(ibv);
    size_t length = cma_address_length(address);
    if (length == 0) {
        return cma_error(EINVAL);
    }
    int cancel = cancel_hold();
    pthread_mutex_lock(&cma_lock);
    struct cma_group **link = &id->groups;
    while (*link != NULL && memcmp(&(*link)->address, address, length) != 0) {
        link = &(*link)->next;
    }
    struct cma_group *group = *link;
    if (group == NULL) {
        pthread_mutex_unlock(&cma_lock);
        cancel_restore(cancel);
        return cma_error(EADDRNOTAVAIL);
    }
    *link = group->next;
    drop_events(id, group);
    if (is_of(ibv->event, group)) { /* else a synchronous id would wait for itself */
        pthread_mutex_unlock(&cma_lock);
        cma_acknowledge_previous(id);
        pthread_mutex_lock(&cma_lock);
    }
    cma_wait_for_all(&group->events_acknowledged, &group->events_delivered);
    pthread_mutex_unlock(&cma_lock);
    detach(id, group);
    free(group);
    cancel_restore(cancel);
    return 0;
}

void cma_leave_groups(struct cma_id *id)
{
    while (id->groups != NULL) {
        struct cma_group *group = id->groups;
        id->groups = group->next;
        detach(id, group);
        free(group);
    }
}
