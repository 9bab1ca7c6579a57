/* Payloads by reference, see wire/packet.h: when a sender uses them, and how a receiver that cannot
 * use one whole takes it apart.
 *
 * A sender's buffer stays as it is until its request is acknowledged, so the receiver may read it
 * once, when it knows where the bytes go. What could not be read is asked for again, as after a
 * loss, and comes as bytes: a reference is for what was never lost. Of requests that have failed or
 * were flushed nothing is read any more. */
#ifndef WEIR_TRANSPORT_REFERENCE_H
#define WEIR_TRANSPORT_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/path.h"

struct qp;

/* How many of the packets that are left of a message, `length` bytes, may leave as one now; 1:
 * none. */
uint32_t reference_span(const struct qp *qp, uint32_t length);
/* Whether the link to the peer takes references; then it loses nothing. */
bool reference_is_possible(const struct qp *qp);
/* Whether the link to the peer takes references as long as any. */
bool reference_takes_all(const struct qp *qp);
/* Packets that may be in flight where they are as long as that. */
uint32_t reference_window(const struct qp *qp);
/* What has been sent and not been read is not to be. Requests: the buffers are the application's
 * again. Responses: the application ends the queue pair, and may end the memory too. */
void reference_withdraw(struct qp *qp, bool responses);

/* The packet is by reference and cannot be executed as it is. */
bool reference_wants_unfolding(const struct qp *qp, const struct packet *packet);
/* Receives it as the ordinary packets that it stands for; qp_receive's answer. */
bool reference_unfold(struct qp *qp, struct instant now, const struct arrival *arrival,
                      const struct packet *packet);

#endif
