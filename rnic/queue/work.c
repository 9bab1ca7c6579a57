/* Names of completion statuses. */
#include "rnic/queue/work.h"

const char *completion_status_name(enum completion_status status)
{
    static const char *const names[COMPLETION_STATUS_COUNT] = {
        [COMPLETION_SUCCESS] = "success",
        [COMPLETION_LOCAL_LENGTH_ERROR] = "local length error",
        [COMPLETION_LOCAL_QP_OPERATION_ERROR] = "local QP operation error",
        [COMPLETION_LOCAL_EEC_OPERATION_ERROR] = "local EE context operation error",
        [COMPLETION_LOCAL_PROTECTION_ERROR] = "local protection error",
        [COMPLETION_FLUSHED] = "flushed",
        [COMPLETION_WINDOW_BIND_ERROR] = "memory management error",
        [COMPLETION_BAD_RESPONSE_ERROR] = "bad response",
        [COMPLETION_LOCAL_ACCESS_ERROR] = "local access error",
        [COMPLETION_REMOTE_INVALID_REQUEST_ERROR] = "remote invalid request",
        [COMPLETION_REMOTE_ACCESS_ERROR] = "remote access error",
        [COMPLETION_REMOTE_OPERATION_ERROR] = "remote operation error",
        [COMPLETION_RETRY_EXCEEDED] = "retry exceeded",
        [COMPLETION_RNR_RETRY_EXCEEDED] = "RNR retry exceeded",
        [COMPLETION_LOCAL_RDD_VIOLATION] = "local RDD violation",
        [COMPLETION_REMOTE_INVALID_RD_REQUEST] = "remote invalid RD request",
        [COMPLETION_REMOTE_ABORTED] = "remote aborted",
        [COMPLETION_INVALID_EECN] = "invalid EE context number",
        [COMPLETION_INVALID_EEC_STATE] = "invalid EE context state",
        [COMPLETION_FATAL] = "fatal",
        [COMPLETION_RESPONSE_TIMEOUT] = "response timeout",
        [COMPLETION_GENERAL_ERROR] = "general error",
        [COMPLETION_TAG_ERROR] = "tag matching error",
        [COMPLETION_TAG_RENDEZVOUS_INCOMPLETE] = "rendezvous incomplete",
    };
    return (unsigned)status < COMPLETION_STATUS_COUNT ? names[status] : "unknown";
}
