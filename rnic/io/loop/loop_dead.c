/* The engine of handles from before a fork, in the child: nothing is theirs there. */
#include "rnic/io/loop/loop_private.h"
#include "rnic/io/system/clock.h"

static void do_nothing(struct engine *engine)
{
}

static void kick_nothing(struct engine *engine, struct qp *qp)
{
}

static struct instant dead_now(struct engine *engine)
{
    return clock_now();
}

const struct engine_operations loop_dead_operations = {
    .lock = do_nothing,
    .unlock = do_nothing,
    .drive = do_nothing,
    .kick = kick_nothing,
    .about_to_sleep = do_nothing,
    .now = dead_now,
};
