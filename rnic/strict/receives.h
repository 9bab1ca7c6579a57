/* Queues that a message found empty. */
#ifndef WEIR_STRICT_RECEIVES_H
#define WEIR_STRICT_RECEIVES_H

#include "rnic/queue/receive_queue.h"
#include "rnic/wire/ids.h"

/* A message for `qpn` found nothing in `queue`. */
void receives_missing(const struct receive_queue *queue, struct qpn qpn);

#endif
