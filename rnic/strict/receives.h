/* Queues that a message found empty. */
#ifndef WEIR_STRICT_RECEIVES_H
#define WEIR_STRICT_RECEIVES_H

#include "rnic/queue/receive_queue.h"
#include "rnic/wire/ids.h"

/* A message for `qpn` found nothing in `queue` (NULL: there is no queue any more). Of one
 * that may be lost nothing is said unless a receive follows. */
void receives_missing(const struct receive_queue *queue, struct qpn qpn, bool may_be_lost);

#endif
