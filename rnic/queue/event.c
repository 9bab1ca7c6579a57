/* Names of asynchronous events. */
#include "rnic/queue/event.h"

const char *event_kind_name(enum event_kind kind)
{
    static const char *const names[EVENT_KIND_COUNT] = {
        [EVENT_CQ_ERROR] = "cq_error",
        [EVENT_QP_FATAL] = "qp_fatal",
        [EVENT_QP_REQUEST_ERROR] = "qp_request_error",
        [EVENT_PATH_ERROR] = "path_error",
        [EVENT_QP_ACCESS_ERROR] = "qp_access_error",
        [EVENT_COMMUNICATION_ESTABLISHED] = "communication_established",
        [EVENT_SQ_DRAINED] = "sq_drained",
        [EVENT_QP_LAST_RECEIVE_REACHED] = "qp_last_receive_reached",
        [EVENT_SRQ_LIMIT_REACHED] = "srq_limit_reached",
        [EVENT_SRQ_ERROR] = "srq_error",
        [EVENT_PORT_ACTIVE] = "port_active",
        [EVENT_PORT_ERROR] = "port_error",
        [EVENT_GID_CHANGE] = "gid_change",
    };
    return (unsigned)kind < EVENT_KIND_COUNT ? names[kind] : "unknown";
}
