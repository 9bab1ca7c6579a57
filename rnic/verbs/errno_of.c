/* The one table of statuses as errno values. */
#include "rnic/verbs/errno_of.h"

#include <errno.h>
#include <stddef.h>

int errno_of(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return 0;
    case STATUS_FULL:
    case STATUS_NO_MEMORY:
        return ENOMEM;
    case STATUS_EMPTY:
        return EAGAIN;
    case STATUS_NOT_FOUND:
        return ENOENT;
    case STATUS_BUSY:
        return EBUSY;
    case STATUS_IN_USE:
        return EADDRINUSE;
    case STATUS_DENIED:
        return EACCES;
    case STATUS_UNSUPPORTED:
        return EOPNOTSUPP;
    case STATUS_TIMED_OUT:
        return ETIMEDOUT;
    case STATUS_CLOSED:
        return ECONNRESET;
    case STATUS_INVALID:
    case STATUS_STATE:
    case STATUS_OUT_OF_RANGE:
    case STATUS_TOO_LONG:
    case STATUS_MALFORMED:
    case STATUS_COUNT:
        break;
    }
    return EINVAL;
}

int errno_of_post(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return 0;
    case STATUS_FULL:
    case STATUS_NO_MEMORY:
        return ENOMEM;
    default:
        return EINVAL;
    }
}

void *errno_null(enum status status)
{
    errno = errno_of(status);
    return NULL;
}
