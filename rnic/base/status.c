/* Names of statuses. */
#include "rnic/base/status.h"

static const char *const names[STATUS_COUNT] = {
    [STATUS_OK] = "ok",
    [STATUS_FULL] = "full",
    [STATUS_EMPTY] = "empty",
    [STATUS_INVALID] = "invalid argument",
    [STATUS_STATE] = "wrong state",
    [STATUS_NO_MEMORY] = "no memory",
    [STATUS_NOT_FOUND] = "not found",
    [STATUS_BUSY] = "busy",
    [STATUS_IN_USE] = "name in use",
    [STATUS_DENIED] = "denied",
    [STATUS_OUT_OF_RANGE] = "out of range",
    [STATUS_TOO_LONG] = "too long",
    [STATUS_MALFORMED] = "malformed",
    [STATUS_UNSUPPORTED] = "not supported",
    [STATUS_TIMED_OUT] = "timed out",
    [STATUS_CLOSED] = "closed by the other end",
};

const char *status_name(enum status status)
{
    return (unsigned)status < STATUS_COUNT ? names[status] : "unknown status";
}
