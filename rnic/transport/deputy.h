/* A deputy: a queue pair that executes requests for a target of another process (relay.h), since
 * they name a shared receive queue of this one. It has the target's number and attributes, and a
 * responder like any target; its responses leave for the wire, its acknowledgements go back to the
 * target. It raises no events: those of the queue pair belong to the target's owner. */
#ifndef WEIR_TRANSPORT_DEPUTY_H
#define WEIR_TRANSPORT_DEPUTY_H

#include "rnic/transport/relay.h"

/* The message's domain is shared, its numbers are in range; `packet` is a request of XRC. */
void deputy_receive(struct qp *qp, uint32_t from, const struct relay_message *message,
                    const struct packet *packet);
/* Instead of the wire: an acknowledgement. */
void deputy_acknowledge(struct qp *qp, const struct packet *packet);
/* Nothing of it is under way, and for so long that its target has confirmation of all that was
 * executed, or has failed: what it knows of duplicates is of no use any more. */
bool deputy_is_forgettable(struct qp *qp);
/* The process of the target, which is `life`'s. */
bool deputy_is_of(const struct qp *qp, uint32_t process, uint64_t life);
/* The timer: false: the target's process is dead while something is under way. */
bool deputy_expire(struct qp *qp);

#endif
