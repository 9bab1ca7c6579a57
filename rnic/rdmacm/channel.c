/* Event channels. */
#include <errno.h>
#include <stdlib.h>

#include "rnic/rdmacm/cma.h"

PUBLIC struct rdma_event_channel *rdma_create_event_channel(void)
{
    /* Now, not when the first id needs it: programs tell their peers that they will listen before
     * they make an id, and to open the device takes longer than the peer's first packet. */
    if (cma_device_open() == NULL) {
        return NULL;
    }
    struct cma_channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL) {
        return NULL;
    }
    if (weir_seam()->notify_create(&channel->notify) != STATUS_OK) {
        free(channel);
        errno = EMFILE;
        return NULL;
    }
    list_init(&channel->events);
    channel->ibv.fd = weir_seam()->notify_descriptor(channel->notify);
    return &channel->ibv;
}

PUBLIC void rdma_destroy_event_channel(struct rdma_event_channel *ibv)
{
    struct cma_channel *channel = cma_channel(ibv);
    weir_seam()->notify_destroy(channel->notify);
    free(channel);
}
