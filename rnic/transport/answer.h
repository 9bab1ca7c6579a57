/* What a responder sends: responses to READs and atomics, in order, then the acknowledgement that
 * is owed. */
#ifndef WEIR_TRANSPORT_ANSWER_H
#define WEIR_TRANSPORT_ANSWER_H

#include <stdbool.h>

#include "rnic/base/time.h"
#include "rnic/transport/step.h"
#include "rnic/wire/psn.h"

struct qp;
struct replay_entry;

/* IDLE also while a response waits for its time: `throttle.resume` of `pace` or of the queue pair's
 * rate then. */
enum step answer_transmit(struct qp *qp, struct instant now);
/* An acknowledgement is owed, and nothing else, to a peer that is near. */
bool answer_is_plain(const struct qp *qp);
/* What is owed is an acknowledgement that the next request may bring, if there is one. */
bool answer_may_ride(const struct qp *qp);
/* The last PSN that an acknowledgement acknowledges now. */
struct psn answer_acknowledges(const struct qp *qp);
/* A response longer than all that the device has in flight on one queue pair. Our own requester
 * never asks for one. */
bool answer_is_paced(const struct qp *qp, const struct replay_entry *entry);

#endif
