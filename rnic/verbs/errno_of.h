/* From the core's status to what libibverbs reports. */
#ifndef WEIR_VERBS_ERRNO_OF_H
#define WEIR_VERBS_ERRNO_OF_H

#include "rnic/base/status.h"

/* The errno value of a control call's status; 0 for STATUS_OK. */
int errno_of(enum status status);
/* The same for posting: a full queue is ENOMEM, everything else that is wrong EINVAL. */
int errno_of_post(enum status status);
/* Sets errno and returns NULL. */
void *errno_null(enum status status);

#endif
