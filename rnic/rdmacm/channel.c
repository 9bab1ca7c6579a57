/* Event channels.
 *
 * Programs (rping) destroy a channel while a thread of theirs waits for its events, or is about to.
 * With a kernel such a thread waits on, until the process ends; so a channel that is waited for
 * keeps what is waited with. One that comes a moment too late, having been held up by our locks,
 * waits as if it had been in time, long enough for rping to end, which an error would end as
 * failed. EBADF at once is for who destroyed the channel himself, or does not want to wait. The
 * memory of a destroyed channel serves channels only: who comes too late may find a younger one,
 * never rubble.
 *
 * Programs also destroy a channel before its ids. A kernel lets that pass; so one that has ids left
 * keeps what their events wait in, until the last of them has gone. Nobody is told of the events.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include "rnic/rdmacm/cma.h"

#define LATE_MS 5000 /* not for ever: whoever joins the thread shall see it end */

static struct cma_channel *spare; /* under cma_lock */

static struct cma_channel *take_memory(void)
{
    pthread_mutex_lock(&cma_lock);
    struct cma_channel *channel = spare;
    if (channel != NULL) {
        spare = channel->next_spare;
    }
    pthread_mutex_unlock(&cma_lock);
    return channel != NULL ? channel : calloc(1, sizeof *channel);
}

/* A destroyed one that nobody waits for and no id is left of; with cma_lock held. */
static void bury_if_done(struct cma_channel *channel)
{
    if (channel->is_destroyed && channel->waiters == 0 && channel->ids == 0) {
        weir_seam()->notify_destroy(channel->notify);
        channel->next_spare = spare;
        spare = channel;
    }
}

void cma_channel_count(struct rdma_event_channel *ibv, int change)
{
    if (ibv != NULL) {
        struct cma_channel *channel = cma_channel(ibv);
        channel->ids += (unsigned)change;
        bury_if_done(channel);
    }
}

PUBLIC struct rdma_event_channel *rdma_create_event_channel(void)
{
    /* Now, not when the first id needs it: programs tell their peers that they will listen before
     * they make an id, and to open the device takes longer than the peer's first packet. */
    if (cma_device_open() == NULL) {
        return NULL;
    }
    struct notify *notify;
    if (weir_seam()->notify_create(&notify) != STATUS_OK) {
        errno = EMFILE;
        return NULL;
    }
    struct cma_channel *channel = take_memory();
    if (channel == NULL) {
        weir_seam()->notify_destroy(notify);
        return NULL;
    }
    pthread_mutex_lock(&cma_lock);
    channel->notify = notify;
    channel->is_destroyed = false;
    list_init(&channel->events);
    channel->ibv.fd = weir_seam()->notify_descriptor(notify);
    pthread_mutex_unlock(&cma_lock);
    return &channel->ibv;
}

int cma_channel_enter(struct cma_channel *channel)
{
    pthread_mutex_lock(&cma_lock);
    bool stands = !channel->is_destroyed;
    bool is_late =
        !stands && channel->blocked && !pthread_equal(channel->destroyer, pthread_self());
    channel->waiters += stands;
    pthread_mutex_unlock(&cma_lock);
    if (is_late) {
        return poll(NULL, 0, LATE_MS) < 0 ? EINTR : EBADF;
    }
    return stands ? 0 : EBADF;
}

bool cma_channel_leave(struct cma_channel *channel)
{
    channel->waiters--;
    if (!channel->is_destroyed) {
        return true;
    }
    bury_if_done(channel);
    return false;
}

PUBLIC void rdma_destroy_event_channel(struct rdma_event_channel *ibv)
{
    struct cma_channel *channel = cma_channel(ibv);
    int flags = fcntl(ibv->fd, F_GETFL);
    pthread_mutex_lock(&cma_lock);
    channel->is_destroyed = true;
    channel->destroyer = pthread_self();
    channel->blocked = flags >= 0 && (flags & O_NONBLOCK) == 0;
    bury_if_done(channel);
    pthread_mutex_unlock(&cma_lock);
}
