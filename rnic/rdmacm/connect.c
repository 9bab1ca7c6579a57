/* Connections: what each side asks for, and what the queue pair is told when the answer comes. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/rdmacm/cma.h"

/* Private data of a REQ that is the application's. */
#define REQUEST_PRIVATE_MAX (CM_REQ_PRIVATE_MAX - RDMA_CM_HEADER_LENGTH)

static uint8_t smaller(uint8_t a, uint8_t b)
{
    return a < b ? a : b;
}

/* 255 asks for as many as there may be. */
static uint8_t reads_wanted(uint8_t asked, uint8_t limit)
{
    return asked == RDMA_MAX_RESP_RES ? limit : asked;
}

uint8_t cma_data_length(const struct rdma_conn_param *param)
{
    return param->private_data != NULL ? param->private_data_len : 0;
}

static bool is_too_much(const struct rdma_conn_param *param)
{
    uint8_t most = cma_device()->max_reads;
    return (param->responder_resources != RDMA_MAX_RESP_RES && param->responder_resources > most) ||
           (param->initiator_depth != RDMA_MAX_INIT_DEPTH && param->initiator_depth > most);
}

/* What both sides say of themselves. */
static void fill_parameters(struct cma_id *id, const struct rdma_conn_param *param,
                            struct cm_parameters *ret_parameters)
{
    *ret_parameters = (struct cm_parameters){
        .qpn = {id->ibv.qp != NULL ? id->ibv.qp->qp_num : param->qp_num},
        .starting_psn = id->terms.local_psn,
        .responder_resources = id->terms.responder_resources,
        .initiator_depth = id->terms.initiator_depth,
        .retry_count = smaller(param->retry_count, 7),
        .rnr_retry_count = smaller(param->rnr_retry_count, 7),
        .ack_timeout = id->terms.ack_timeout,
        .path_mtu = id->terms.path_mtu,
        .flow_control = param->flow_control != 0,
        .shared_receive_queue = id->ibv.qp != NULL ? id->ibv.qp->srq != NULL : param->srq != 0,
        .transport_service = id->ibv.qp_type == IBV_QPT_UC         ? 1
                             : id->ibv.qp_type == IBV_QPT_XRC_SEND ? 3
                                                                   : 0,
        .ece = id->local_ece,
    };
}

struct cm_connect_request *cma_request_new(struct cma_id *id)
{
    struct cm_connect_request *request = calloc(1, sizeof *request);
    if (request == NULL) {
        cma_error(ENOMEM);
        return NULL;
    }
    *request = (struct cm_connect_request){
        .path = id->path,
        .service_id = rdma_cm_service_id((uint16_t)id->ibv.ps, ntohs(rdma_get_dst_port(&id->ibv))),
        .context = id,
        .response_timeout = RESPONSE_TIMEOUT,
        .max_retries = RESPONSE_RETRIES,
    };
    free(id->request); /* of an attempt that failed at once */
    id->request = request;
    return request;
}

void cma_request_forget(struct cma_id *id)
{
    free(id->request);
    id->request = NULL;
}

void cma_set_request_data(struct cma_id *id, const void *data, uint8_t length, uint8_t whole)
{
    struct cm_parameters *parameters = &id->request->parameters;
    struct rdma_cm_header header = {
        .ip_version = gid_is_ipv4(&id->path.local) ? 4 : 6,
        .port = ntohs(rdma_get_src_port(&id->ibv)),
        .source = id->path.local,
        .destination = id->path.remote,
    };
    cma_device()->core->rdma_cm_header_build(&header, parameters->private_data);
    if (length != 0) {
        memcpy(parameters->private_data + RDMA_CM_HEADER_LENGTH, data, length);
    }
    parameters->private_length = whole;
}

static enum status send_request(struct cma_id *id)
{
    struct cma_device *device = cma_device();
    enum status status = STATUS_NOT_FOUND;
    engine_lock(device->engine);
    if (!cma_is_ending(id)) {
        status = device->core->cm_connect(device->engine->cm, engine_now(device->engine),
                                          id->request, &id->connection);
    }
    if (status == STATUS_OK) {
        id->state = CMA_CONNECTING;
    }
    engine_unlock(device->engine);
    return status;
}

PUBLIC int rdma_connect(struct rdma_cm_id *ibv, struct rdma_conn_param *given)
{
    static const struct rdma_conn_param defaults = {
        .responder_resources = RDMA_MAX_RESP_RES,
        .initiator_depth = RDMA_MAX_INIT_DEPTH,
        .retry_count = 7,
        .rnr_retry_count = 7,
    };
    struct cma_id *id = cma_id(ibv);
    const struct rdma_conn_param *param = given != NULL ? given : &defaults;
    if (!cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    if (cma_is_datagram(id)) {
        return cma_datagram_connect(id, given);
    }
    if (ibv->qp == NULL && given == NULL) {
        return cma_error(EINVAL); /* which queue pair? */
    }
    uint8_t length = cma_data_length(param);
    if (id->state != CMA_ROUTE_RESOLVED || is_too_much(param) || length > REQUEST_PRIVATE_MAX) {
        return cma_error(EINVAL);
    }
    struct cm_connect_request *request = cma_request_new(id);
    if (request == NULL) {
        return -1;
    }
    const uint8_t most = cma_device()->max_reads;
    id->terms.responder_resources = reads_wanted(param->responder_resources, most);
    id->terms.initiator_depth = reads_wanted(param->initiator_depth, most);
    id->terms.retry_count = smaller(param->retry_count, 7);
    id->terms.rnr_retry_count = smaller(param->rnr_retry_count, 7);
    id->refusals = 0;
    fill_parameters(id, param, &request->parameters);
    cma_set_request_data(id, param->private_data, length, CM_REQ_PRIVATE_MAX);
    const bool waits = id->is_synchronous;
    enum status status = send_request(id);
    return status == STATUS_OK && waits ? cma_complete(id) : cma_status(status);
}

void cma_take_request(struct cma_id *id, const struct cm_event *event)
{
    const struct cm_parameters *theirs = &event->parameters;
    uint8_t ack_timeout = theirs->ack_timeout, most = cma_device()->max_reads;
    id->state = CMA_REQUESTED;
    id->is_unanswered = true;
    id->connection = event->connection;
    id->path = event->path;
    cma_attach(id);
    id->remote_ece = theirs->ece;
    id->terms = (struct cma_terms){
        .remote_qpn = theirs->qpn,
        .remote_psn = theirs->starting_psn,
        .local_psn = id->terms.local_psn,
        .path_mtu = theirs->path_mtu,
        .responder_resources = smaller(theirs->initiator_depth, most),
        .initiator_depth = smaller(theirs->responder_resources, most),
        .retry_count = theirs->retry_count,
        .rnr_retry_count = theirs->rnr_retry_count,
        .ack_timeout = ack_timeout,
    };
}

/* The queue pair is up before the REP leaves: the peer's first packet may follow at once. */
static int bring_up(struct cma_id *id)
{
    if (id->ibv.qp == NULL) {
        return 0;
    }
    return cma_modify(id, IBV_QPS_RTR) != 0 || cma_modify(id, IBV_QPS_RTS) != 0 ? -1 : 0;
}

static enum status send_reply(struct cma_id *id, const struct cm_parameters *parameters)
{
    struct cma_device *device = cma_device();
    enum status status = STATUS_NOT_FOUND;
    engine_lock(device->engine);
    if (!cma_is_ending(id)) {
        status = device->core->cm_accept(id->connection, engine_now(device->engine), parameters);
    }
    if (status == STATUS_OK) {
        id->state = CMA_ACCEPTED;
        id->is_unanswered = false;
    }
    engine_unlock(device->engine);
    return status;
}

PUBLIC int rdma_accept(struct rdma_cm_id *ibv, struct rdma_conn_param *given)
{
    struct cma_id *id = cma_id(ibv);
    const struct rdma_conn_param defaults = {
        .responder_resources = RDMA_MAX_RESP_RES,
        .initiator_depth = RDMA_MAX_INIT_DEPTH,
        .rnr_retry_count = 7,
    };
    const struct rdma_conn_param *param = given != NULL ? given : &defaults;
    if (!cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    if (cma_is_datagram(id)) {
        return cma_datagram_accept(id, given);
    }
    uint8_t length = cma_data_length(param);
    if (id->state != CMA_REQUESTED || is_too_much(param) || (ibv->qp == NULL && given == NULL) ||
        length > CM_REP_PRIVATE_MAX) {
        return cma_error(EINVAL);
    }
    id->terms.responder_resources =
        reads_wanted(param->responder_resources, id->terms.responder_resources);
    id->terms.initiator_depth = reads_wanted(param->initiator_depth, id->terms.initiator_depth);
    struct cm_parameters parameters;
    fill_parameters(id, param, &parameters);
    parameters.ece.vendor_id = id->remote_ece.vendor_id;
    if (length != 0) {
        memcpy(parameters.private_data, param->private_data, length);
        parameters.private_length = length;
    }
    if (bring_up(id) != 0) {
        return -1;
    }
    const bool waits = id->is_synchronous;
    enum status status = send_reply(id, &parameters);
    if (status != STATUS_OK) { /* the peer has gone, and told of no event yet */
        cma_modify_error(id);
        return cma_status(status);
    }
    return waits ? cma_complete(id) : 0;
}

static int reject(struct rdma_cm_id *ibv, const void *data, uint8_t length, uint16_t reason)
{
    struct cma_id *id = cma_id(ibv);
    struct cma_device *device = cma_device();
    enum status status = STATUS_INVALID;
    length = data == NULL ? 0 : length;
    if (!cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    engine_lock(device->engine);
    if (id->connection != NULL) {
        status = cma_is_datagram(id)
                     ? cma_datagram_reject(id, data, length)
                     : device->core->cm_reject(id->connection, engine_now(device->engine), reason,
                                               data, length);
    }
    engine_unlock(device->engine);
    if (status == STATUS_OK) {
        id->state = CMA_ENDED;
    }
    return cma_status(status);
}

PUBLIC int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length)
{
    return reject(id, data, length, CM_REJECT_CONSUMER);
}

PUBLIC int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t length)
{
    return reject(id, data, length, 35); /* vendor option is not supported */
}

static enum status confirm(struct cma_id *id)
{
    struct cma_device *device = cma_device();
    enum status status = STATUS_CLOSED;
    if (!cma_is_ours(id)) {
        return STATUS_INVALID;
    }
    engine_lock(device->engine);
    if (id->connection != NULL) { /* else another thread destroys the id and waits for us */
        status = device->core->cm_confirm(id->connection, engine_now(device->engine));
    }
    engine_unlock(device->engine);
    return status;
}

PUBLIC int rdma_establish(struct rdma_cm_id *ibv)
{
    struct cma_id *id = cma_id(ibv);
    if (ibv->qp != NULL || id->state != CMA_ACCEPTED) {
        return cma_error(EINVAL);
    }
    id->state = CMA_CONNECTED;
    return cma_status(confirm(id));
}

PUBLIC int rdma_notify(struct rdma_cm_id *ibv, enum ibv_event_type event)
{
    struct cma_id *id = cma_id(ibv);
    struct cma_device *device = cma_device();
    if (id->state == CMA_CONNECTED && event == IBV_EVENT_COMM_EST) {
        return cma_error(EISCONN);
    }
    if (event != IBV_EVENT_COMM_EST || id->state != CMA_ACCEPTED || !cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    engine_lock(device->engine);
    bool is_there = id->connection != NULL; /* else another thread destroys the id */
    if (is_there) {
        device->core->cm_data_arrived(id->connection, engine_now(device->engine));
    }
    engine_unlock(device->engine);
    return is_there ? 0 : cma_error(ENOENT);
}

static bool has_queued_event(struct cma_id *id)
{
    pthread_mutex_lock(&cma_lock);
    bool has = !list_is_empty(&cma_channel(id->ibv.channel)->events);
    pthread_mutex_unlock(&cma_lock);
    return has;
}

PUBLIC int rdma_disconnect(struct rdma_cm_id *ibv)
{
    struct cma_id *id = cma_id(ibv);
    struct cma_device *device = cma_device();
    if (!cma_is_ours(id)) {
        return cma_error(EINVAL);
    }
    if (cma_modify_error(id) != 0) { /* receives come back even where nothing is connected */
        return -1;
    }
    if (id->connection == NULL) {
        return cma_error(EINVAL);
    }
    if (cma_is_datagram(id)) { /* nothing connects the two queue pairs but what they know */
        return 0;
    }
    const bool waits = id->is_synchronous;
    enum status status = STATUS_INVALID;
    engine_lock(device->engine);
    if (id->connection != NULL) { /* else its request is about to be sent again */
        status = device->core->cm_disconnect(id->connection, engine_now(device->engine));
    }
    engine_unlock(device->engine);
    if (status != STATUS_OK && status != STATUS_STATE) {
        return cma_status(status);
    }
    /* The peer, or a former call, may have been first: then wait only for what is already there. */
    if (!waits || id->has_disconnected || id->has_failed ||
        (status == STATUS_STATE && !has_queued_event(id))) {
        return 0;
    }
    return cma_complete(id);
}

/* The public event's view of the other side's parameters: what is theirs to have outstanding is
 * ours to answer. */
static void tell_parameters(struct cma_event *event, uint8_t skip, uint8_t length)
{
    const struct cm_parameters *theirs = &event->cm.parameters;
    event->ibv.param.conn = (struct rdma_conn_param){
        .private_data = length == 0 ? NULL : theirs->private_data + skip,
        .private_data_len = length,
        .responder_resources = theirs->initiator_depth,
        .initiator_depth = theirs->responder_resources,
        .flow_control = theirs->flow_control,
        .retry_count = theirs->retry_count,
        .rnr_retry_count = theirs->rnr_retry_count,
        .srq = theirs->shared_receive_queue,
        .qp_num = theirs->qpn.value,
    };
}

static void process_reply(struct cma_event *event)
{
    struct cma_id *id = event->owner;
    const struct cm_parameters *theirs = &event->cm.parameters;
    tell_parameters(event, 0, CM_REP_PRIVATE_MAX);
    id->terms.remote_qpn = theirs->qpn;
    id->terms.remote_psn = theirs->starting_psn;
    /* Never more than we offered, whatever they say. */
    id->terms.responder_resources = smaller(theirs->initiator_depth, id->terms.responder_resources);
    id->terms.initiator_depth = smaller(theirs->responder_resources, id->terms.initiator_depth);
    id->terms.rnr_retry_count = theirs->rnr_retry_count;
    id->remote_ece = theirs->ece;
    id->state = CMA_ACCEPTED;
    if (id->ibv.qp == NULL) {
        event->ibv.event = RDMA_CM_EVENT_CONNECT_RESPONSE;
        return;
    }
    int error = bring_up(id) != 0 ? errno : 0;
    if (error == 0) {
        error = cma_device()->core->errno_of(confirm(id));
    }
    if (error == 0) {
        id->state = CMA_CONNECTED;
        event->ibv.event = RDMA_CM_EVENT_ESTABLISHED;
        return;
    }
    reject(&id->ibv, NULL, 0, CM_REJECT_CONSUMER);
    cma_modify_error(id);
    id->has_failed = true;
    event->ibv.event = RDMA_CM_EVENT_CONNECT_ERROR;
    event->ibv.status = -error;
}

static void process_refusal(struct cma_event *event, enum rdma_cm_event_type type, int status)
{
    event->ibv.event = type;
    event->ibv.status = status;
    event->owner->state = CMA_ENDED;
    if (!cma_is_datagram(event->owner)) { /* those are connected to nobody */
        cma_modify_error(event->owner);
    }
}

/* The application has it now: it is in no backlog any more. */
static void take_request(struct cma_id *id)
{
    struct cma_device *device = cma_device();
    if (cma_is_ours(id)) {
        engine_lock(device->engine);
        if (id->connection != NULL) {
            device->core->cm_taken(id->connection);
        }
        engine_unlock(device->engine);
    }
}

/* A request for a synchronous listener comes with a channel of its own. Where there is none to be
 * had, its sender hears so, and the application does not hear of it. */
static bool present_request(struct cma_event *event)
{
    struct cma_id *id = cma_id(event->ibv.id);
    take_request(id);
    if (!event->owner->is_synchronous || cma_id_make_synchronous(id) == 0) {
        return true;
    }
    reject(&id->ibv, NULL, 0, CM_REJECT_NO_RESOURCES);
    rdma_destroy_id(&id->ibv);
    return false;
}

bool cma_process(struct cma_event *event)
{
    struct cma_id *id = event->owner;
    switch (event->cm.kind) {
    case CM_EVENT_REQUEST:
        tell_parameters(event, RDMA_CM_HEADER_LENGTH, REQUEST_PRIVATE_MAX);
        return present_request(event);
    case CM_EVENT_SERVICE_REQUEST:
        cma_datagram_process(event);
        return present_request(event);
    case CM_EVENT_SERVICE_REPLY:
        cma_datagram_process(event);
        return true;
    case CM_EVENT_REPLY:
        process_reply(event);
        return true;
    case CM_EVENT_ESTABLISHED:
        id->state = CMA_CONNECTED;
        event->ibv.event = RDMA_CM_EVENT_ESTABLISHED;
        return true;
    case CM_EVENT_REJECTED:
        tell_parameters(event, 0, CM_REJ_PRIVATE_MAX);
        process_refusal(event, RDMA_CM_EVENT_REJECTED, event->cm.reject_reason);
        return !id->has_failed;
    case CM_EVENT_UNREACHABLE:
        process_refusal(event, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
        return true;
    case CM_EVENT_DISCONNECTED:
        id->has_disconnected = true;
        id->state = CMA_ENDED;
        event->ibv.event = RDMA_CM_EVENT_DISCONNECTED;
        event->ibv.status = event->cm.parameters.private_length == 0 ? -ETIMEDOUT : 0;
        return !id->has_failed;
    case CM_EVENT_TIME_WAIT_OVER:
        event->ibv.event = RDMA_CM_EVENT_TIMEWAIT_EXIT;
        return true;
    }
    return false;
}
