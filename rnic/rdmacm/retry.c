/* A listener that is late: a refusal because nobody listens there is not told to the application
 * at once; the request is sent again after a moment, a few times.
 *
 * Programs agree by other means that one side will listen and the other connect, and then both do
 * so at the same time. Where a connect takes a millisecond to leave the host, the listener has long
 * been there. Here it leaves within microseconds. */
#include "rnic/rdmacm/cma.h"

#define FIRST_DELAY_NS UINT64_C(1000000)
#define REFUSALS_MAX   5u /* after 1, 2, 4, 8 and 16 ms */

static struct list waiting = {{&waiting.head, &waiting.head}}; /* under the engine's lock */

bool cma_retry_later(struct cma_device *device, struct cma_id *id, const struct cm_event *event)
{
    bool nobody_listens =
        (event->kind == CM_EVENT_REJECTED &&
         event->reject_reason == CM_REJECT_INVALID_SERVICE_ID) ||
        (event->kind == CM_EVENT_SERVICE_REPLY && event->sidr_status == CM_SIDR_UNSUPPORTED);
    if (!nobody_listens || id->request == NULL || id->refusals == REFUSALS_MAX) {
        return false;
    }
    struct instant now = engine_now(device->engine);
    device->core->cm_release(id->connection, now);
    id->connection = NULL;
    id->retry_at = instant_after(now, FIRST_DELAY_NS << id->refusals++);
    list_append(&waiting, &id->retry_node);
    return true;
}

void cma_retry_forget_all(void)
{
    list_init(&waiting);
}

void cma_retry_forget(struct cma_id *id)
{
    list_remove(&id->retry_node);
}

struct instant cma_retry_advance(struct cma_device *device, struct instant now)
{
    struct instant next = INSTANT_NEVER;
    LIST_FOR_EACH(node, &waiting)
    {
        struct cma_id *id = CONTAINER_OF(node, struct cma_id, retry_node);
        if (instant_before(now, id->retry_at)) {
            next = instant_earlier(next, id->retry_at);
            continue;
        }
        list_remove(node);
        struct cm *cm = device->engine->cm;
        enum status status = cma_is_datagram(id)
                                 ? device->core->cm_resolve(cm, now, id->request, &id->connection)
                                 : device->core->cm_connect(cm, now, id->request, &id->connection);
        if (status != STATUS_OK) {
            cma_event_local(id, RDMA_CM_EVENT_UNREACHABLE, -ENOMEM);
        }
    }
    return next;
}
