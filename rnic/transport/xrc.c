#include "rnic/transport/xrc.h"

#include <stddef.h>

#include "rnic/transport/environment.h"

const struct xrc_queue *xrc_find(const struct environment *environment, struct xrc_domain domain,
                                 uint32_t number)
{
    const struct xrc_queue *queue = map_find(&environment->xrc_queues, number);
    return queue != NULL && xrc_domain_equal(queue->domain, domain) ? queue : NULL;
}
