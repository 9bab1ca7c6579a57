/* Where the payload that moves just now comes from, or goes to.
 *
 * One packet of a device moves at a time, so its queue pairs share these: what a message under way
 * is, each knows itself (a request's slot, how many of its bytes are done), and makes a cursor of
 * it anew where another has had it since. An idle queue pair thus has none. */
#ifndef WEIR_TRANSPORT_CURSORS_H
#define WEIR_TRANSPORT_CURSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/memory/scatter.h"

struct qp;

struct cursor {
    const struct qp *owner; /* NULL: nobody */
    uint64_t position;      /* of the owner's message */
    struct scatter scatter;
};

struct cursors {
    struct cursor request;  /* what requests are gathered from; position in the send queue */
    struct cursor response; /* where responses go; likewise */
    struct cursor receive;  /* where what comes goes; the position is that of no queue, 0 */
};

static inline bool cursor_is_of(const struct cursor *cursor, const struct qp *qp, uint64_t position)
{
    return cursor->owner == qp && cursor->position == position;
}

/* Nothing of it is moved any more, or its next message may have the same position. */
static inline void cursors_forget(struct cursors *cursors, const struct qp *qp)
{
    struct cursor *all[] = {&cursors->request, &cursors->response, &cursors->receive};
    for (unsigned i = 0; i < 3; i++) {
        all[i]->owner = all[i]->owner == qp ? NULL : all[i]->owner;
    }
}

#endif
