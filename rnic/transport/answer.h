/* What a responder sends: responses to READs and atomics, in order, then the acknowledgement that
 * is owed. */
#ifndef WEIR_TRANSPORT_ANSWER_H
#define WEIR_TRANSPORT_ANSWER_H

#include "rnic/transport/step.h"

struct qp;

enum step answer_transmit(struct qp *qp);

#endif
