/* Extended reliable connections: which shared receive queue a request is for. [IBA annex A14]
 *
 * An initiator sends requests that name a shared receive queue of the target's device in their
 * XRCETH; the target has neither receives, completion queue nor protection domain of its own, and
 * takes all three from that queue, packet by packet. Both must be of one XRC domain.
 *
 * Here: the queue as targets see it, and finding it. Not here: receives and their order
 * (queue/receive_queue), who gives numbers (device), the order of checks (responder), queues of
 * other processes (relay). */
#ifndef WEIR_TRANSPORT_XRC_H
#define WEIR_TRANSPORT_XRC_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/memory/memory.h"
#include "rnic/queue/completion_queue.h"
#include "rnic/queue/receive_queue.h"

#define XRC_SGE_MAX 34u /* of a receive: a target has room for the SGEs of any queue */

struct environment;

/* An XRC domain by name: in `space` 0 a number that this device gave, else a name that all
 * processes of the host know. All zero: none. */
struct xrc_domain {
    uint64_t space, name;
};

static inline bool xrc_domain_is_none(struct xrc_domain domain)
{
    return domain.space == 0 && domain.name == 0;
}

static inline bool xrc_domain_is_shared(struct xrc_domain domain)
{
    return domain.space != 0;
}

static inline bool xrc_domain_equal(struct xrc_domain a, struct xrc_domain b)
{
    return a.space == b.space && a.name == b.name;
}

struct xrc_queue {
    uint32_t number; /* 24 bits, given by the device */
    struct xrc_domain domain;
    struct domain memory_domain; /* of receives, and of what requests read and write */
    struct receive_queue *receives;
    struct completion_queue *completions;
};

/* The queue of that number in that XRC domain; NULL if there is none. */
const struct xrc_queue *xrc_find(const struct environment *environment, struct xrc_domain domain,
                                 uint32_t number);

#endif
