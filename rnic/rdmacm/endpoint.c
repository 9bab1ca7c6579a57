/* Endpoints: ids that are made with everything they need, and used synchronously. */
#include <errno.h>
#include <stdlib.h>

#include "rnic/rdmacm/cma.h"

#define RESOLVE_MS 2000

static int make_passive(struct cma_id *id, const struct rdma_addrinfo *address, struct ibv_pd *pd,
                        const struct ibv_qp_init_attr *init)
{
    if (rdma_bind_addr(&id->ibv, address->ai_src_addr) != 0) {
        return -1;
    }
    if (init != NULL) {
        id->endpoint_init = malloc(sizeof *init);
        if (id->endpoint_init == NULL) {
            return cma_error(ENOMEM);
        }
        *id->endpoint_init = *init;
        id->endpoint_init->qp_type = (enum ibv_qp_type)address->ai_qp_type;
    }
    if (pd != NULL) {
        id->ibv.pd = pd;
    }
    return 0;
}

static int make_active(struct cma_id *id, const struct rdma_addrinfo *address, struct ibv_pd *pd,
                       struct ibv_qp_init_attr *init)
{
    if (rdma_resolve_addr(&id->ibv, address->ai_src_addr, address->ai_dst_addr, RESOLVE_MS) != 0 ||
        rdma_resolve_route(&id->ibv, RESOLVE_MS) != 0) {
        return -1;
    }
    if (init == NULL) {
        return 0;
    }
    init->qp_type = (enum ibv_qp_type)address->ai_qp_type;
    return rdma_create_qp(&id->ibv, pd, init);
}

PUBLIC int rdma_create_ep(struct rdma_cm_id **ret_id, struct rdma_addrinfo *address,
                          struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
    struct rdma_cm_id *id;
    if (address == NULL) {
        return cma_error(EINVAL);
    }
    if (rdma_create_id(NULL, &id, NULL, (enum rdma_port_space)address->ai_port_space) != 0) {
        return -1;
    }
    id->qp_type = (enum ibv_qp_type)address->ai_qp_type;
    int result = (address->ai_flags & RAI_PASSIVE) != 0
                     ? make_passive(cma_id(id), address, pd, init)
                     : make_active(cma_id(id), address, pd, init);
    if (result != 0) {
        int error = errno;
        rdma_destroy_ep(id);
        return cma_error(error);
    }
    *ret_id = id;
    return 0;
}

PUBLIC void rdma_destroy_ep(struct rdma_cm_id *id)
{
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

PUBLIC int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **ret_id)
{
    struct cma_id *own = cma_id(listener);
    struct rdma_cm_event *event;
    if (!own->is_synchronous) {
        return cma_error(EINVAL);
    }
    if (listener->event != NULL) {
        rdma_ack_cm_event(listener->event);
        listener->event = NULL;
    }
    if (rdma_get_cm_event(listener->channel, &event) != 0) {
        return -1;
    }
    if (event->status != 0 || event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
        int error = event->status < 0 ? -event->status : EINVAL;
        listener->event = event;
        return cma_error(error);
    }
    struct rdma_cm_id *id = event->id;
    id->event = event;
    if (own->endpoint_init != NULL) {
        struct ibv_qp_init_attr init = *own->endpoint_init;
        if (rdma_create_qp(id, listener->pd, &init) != 0) {
            int error = errno;
            rdma_reject(id, NULL, 0);
            rdma_destroy_ep(id);
            return cma_error(error);
        }
    }
    *ret_id = id;
    return 0;
}
