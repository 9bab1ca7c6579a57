/* Memory of ours that others of the host touch (hot_regions.h): when it becomes common, and that a
 * forked child has its own. */
#include <time.h>

#include "rnic/io/loop/loop_private.h"

#define LOOK_NS 100000
#define LOOKS   10000u

bool loop_lock_with_patience(struct loop *loop)
{
    bool locked = lock_try(&loop->lock, LOCK_INNER);
    for (uint32_t looks = 0; !locked && looks < LOOKS; looks++) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        locked = lock_try(&loop->lock, LOCK_INNER);
    }
    return locked;
}

void loop_grant_wishes(struct loop *loop)
{
    struct instant when = same_host_next_grant(loop->same_host);
    if (instant_is_never(when)) {
        return;
    }
    struct instant now = clock_now();
    if (!instant_before(now, when)) {
        engine_lock(&loop->engine);
        same_host_grant_wishes(loop->same_host, now);
        engine_unlock(&loop->engine);
    }
}

void loop_before_fork(struct loop *loop)
{
    if (loop == NULL) {
        return;
    }
    same_host_is_to_fork(loop->same_host);
    if (loop_lock_with_patience(loop)) {
        loop->cancel = cancel_hold();
        same_host_keep_memory(loop->same_host);
        engine_unlock(&loop->engine);
    }
}

void loop_after_fork(struct loop *loop)
{
    if (loop != NULL) {
        same_host_has_forked(loop->same_host);
    }
}
