/* Ids for datagrams (RDMA_PS_UDP, RDMA_PS_IPOIB): to connect is to ask which queue pair has the
 * service, to accept is to name ours. There is nothing to disconnect. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "rnic/rdmacm/cma.h"

/* Private data of a SIDR_REQ that is the application's. */
#define QUESTION_PRIVATE_MAX (CM_SIDR_REQ_PRIVATE_MAX - RDMA_CM_HEADER_LENGTH)

int cma_datagram_connect(struct cma_id *id, const struct rdma_conn_param *param)
{
    uint8_t length = param == NULL ? 0 : cma_data_length(param);
    if (id->state != CMA_ROUTE_RESOLVED || length > QUESTION_PRIVATE_MAX) {
        return cma_error(EINVAL);
    }
    if (cma_request_new(id) == NULL) {
        return -1;
    }
    id->refusals = 0;
    cma_set_request_data(id, param == NULL ? NULL : param->private_data, length,
                         CM_SIDR_REQ_PRIVATE_MAX);
    struct cma_device *device = cma_device();
    const bool waits = id->is_synchronous;
    enum status status = STATUS_NOT_FOUND;
    engine_lock(device->engine);
    if (!cma_is_ending(id)) {
        status = device->core->cm_resolve(device->engine->cm, engine_now(device->engine),
                                          id->request, &id->connection);
    }
    if (status == STATUS_OK) {
        id->state = CMA_CONNECTING;
    }
    engine_unlock(device->engine);
    return status == STATUS_OK && waits ? cma_complete(id) : cma_status(status);
}

int cma_datagram_accept(struct cma_id *id, const struct rdma_conn_param *param)
{
    struct cma_device *device = cma_device();
    uint8_t length = param == NULL ? 0 : cma_data_length(param);
    if (id->state != CMA_REQUESTED || length > CM_SIDR_REP_PRIVATE_MAX ||
        (id->ibv.qp == NULL && param == NULL)) {
        return cma_error(EINVAL);
    }
    struct cm_parameters answer = {
        .qpn = {id->ibv.qp != NULL ? id->ibv.qp->qp_num : param->qp_num},
        .qkey = {RDMA_UDP_QKEY},
        .ece = id->local_ece,
        .private_length = length,
    };
    if (length != 0) {
        memcpy(answer.private_data, param->private_data, length);
    }
    enum status status = STATUS_NOT_FOUND;
    engine_lock(device->engine);
    if (!cma_is_ending(id)) {
        status =
            device->core->cm_service_accept(id->connection, engine_now(device->engine), &answer);
    }
    if (status == STATUS_OK) {
        id->state = CMA_CONNECTED;
        id->is_unanswered = false;
    }
    engine_unlock(device->engine);
    if (id->is_synchronous) {
        cma_acknowledge_previous(id);
    }
    return cma_status(status);
}

enum status cma_datagram_reject(struct cma_id *id, const void *data, uint8_t length)
{
    struct cma_device *device = cma_device();
    return device->core->cm_service_reject(id->connection, engine_now(device->engine),
                                           CM_SIDR_REJECTED, data, length);
}

static void tell_private_data(struct cma_event *event, uint8_t skip, uint8_t length)
{
    event->ibv.param.ud = (struct rdma_ud_param){
        .private_data = event->cm.parameters.private_data + skip,
        .private_data_len = length,
    };
}

void cma_datagram_process(struct cma_event *event)
{
    struct cma_id *id = event->owner;
    const struct cm_parameters *theirs = &event->cm.parameters;
    if (event->cm.kind == CM_EVENT_SERVICE_REQUEST) {
        tell_private_data(event, RDMA_CM_HEADER_LENGTH, QUESTION_PRIVATE_MAX);
        return;
    }
    tell_private_data(event, 0, CM_SIDR_REP_PRIVATE_MAX);
    if (event->cm.sidr_status != CM_SIDR_SUCCESS) {
        event->ibv.event = RDMA_CM_EVENT_UNREACHABLE;
        event->ibv.status = event->cm.sidr_status;
        id->state = CMA_ENDED;
        return;
    }
    event->ibv.event = RDMA_CM_EVENT_ESTABLISHED;
    event->ibv.param.ud.qp_num = theirs->qpn.value;
    event->ibv.param.ud.qkey = theirs->qkey.value;
    cma_fill_vector(id, &event->ibv.param.ud.ah_attr);
    id->remote_ece = theirs->ece;
    id->state = CMA_CONNECTED;
}
