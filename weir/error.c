/* Names of the kinds of errors and the making of sentences. */
#include "weir/error_private.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const names[WEIR_STATUS_COUNT] = {
    [WEIR_OK] = "ok",
    [WEIR_INVALID] = "invalid argument",
    [WEIR_STATE] = "wrong state",
    [WEIR_NO_MEMORY] = "no memory",
    [WEIR_NO_DEVICE] = "no device",
    [WEIR_NO_LIBRARY] = "no library",
    [WEIR_ADDRESS] = "bad address",
    [WEIR_REFUSED] = "refused",
    [WEIR_UNREACHABLE] = "unreachable",
    [WEIR_TIMED_OUT] = "timed out",
    [WEIR_DISCONNECTED] = "disconnected",
    [WEIR_PEER_LOST] = "peer lost",
    [WEIR_TOO_LONG] = "too long",
    [WEIR_ACCESS] = "access denied",
    [WEIR_PROTOCOL] = "protocol error",
    [WEIR_UNSUPPORTED] = "unsupported",
    [WEIR_SYSTEM] = "system error",
    [WEIR_CANCELED] = "canceled",
};

const char *weir_status_name(enum weir_status status)
{
    if ((unsigned)status >= WEIR_STATUS_COUNT) {
        return "unknown";
    }
    return names[status];
}

enum weir_status error_set(struct weir_error *ret_error, enum weir_status status,
                           const char *format, ...)
{
    if (ret_error != NULL) {
        ret_error->status = status;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(ret_error->message, sizeof(ret_error->message), format, arguments);
        va_end(arguments);
    }
    return status;
}
