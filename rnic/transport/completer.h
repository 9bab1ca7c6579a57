/* Answers to our requests: acknowledgements, NAKs, READ and atomic responses.
 *
 * An answer at a PSN also answers everything before it that needs no data. Data that is missing
 * before it was lost (an implied NAK), so the requester goes back. [IBA 9.7.5.1.2, 9.7.6.1]
 * Whatever does not lie between `unacked` and `frontier` is stale or forged: counted and ignored.
 */
#ifndef WEIR_TRANSPORT_COMPLETER_H
#define WEIR_TRANSPORT_COMPLETER_H

#include <stdbool.h>

#include "rnic/base/time.h"
#include "rnic/wire/packet.h"

struct qp;

/* A request has brought an acknowledgement of all up to `psn`. */
void completer_acknowledged(struct qp *qp, struct instant now, struct psn psn);
/* Never fails: every packet has its effect, or is counted as refused. */
void completer_receive(struct qp *qp, struct instant now, const struct packet *packet);
/* A response by reference, whose payload is not to be had. */
void completer_miss(struct qp *qp, struct instant now, const struct packet *packet);

/* Takes everything before `psn` as answered, which lies in unacked .. frontier. False: it was not
 * to be (responses are missing), or the queue pair is in error now. */
bool completer_answer_before(struct qp *qp, struct instant now, struct psn psn);
/* Something is missing, as what came shows: back to it. */
void completer_answer_gap(struct qp *qp, struct instant now);
/* The peer was out of receives, and said for how long to wait (rnr_timer): from now on. */
void completer_wait_for_receives(struct qp *qp, struct instant now);

#endif
