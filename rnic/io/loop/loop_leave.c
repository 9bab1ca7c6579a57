/* What a process owes its peers when it lets go of its loop, or ends with it. */
#include <time.h>

#include "rnic/cm/cm.h"
#include "rnic/io/loop/loop_private.h"
#include "rnic/io/registry/registry.h"
#include "rnic/io/system/clock.h"

#define LOOK_NS 1000000u

/* Mutex held, which is given. What is unanswered is counted after what we may be counted on for,
 * for that is executed before it is forgotten. */
static bool is_over(struct loop *loop)
{
    bool counted_on = registry_is_counted_on(loop->registry);
    uint32_t unanswered = cm_goodbyes_unanswered(loop->engine.cm);
    lock_give_in_order(&loop->lock, LOCK_INNER);
    return !counted_on && unanswered == 0;
}

/* A kernel repeats the disconnects of a process that has ended. Another process of ours does, where
 * there is one that stays (burial.h); else we end when they are answered, ours and those of who
 * counts on us. The thread sends and hears. */
void loop_take_leave(struct loop *loop)
{
    if (!registry_end(loop->registry) || !loop_lock_with_patience(loop)) {
        return;
    }
    struct instant now = clock_now();
    struct instant end = instant_after(now, LOOP_GOODBYE_NS);
    cm_say_goodbyes(loop->engine.cm, now);
    bool over = is_over(loop);
    loop_wake_thread(loop);
    while (!over && instant_before(clock_now(), end)) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
        if (!loop_lock_with_patience(loop)) {
            return;
        }
        over = is_over(loop);
    }
}
