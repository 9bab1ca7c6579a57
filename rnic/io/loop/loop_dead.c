/* The engine of handles from before a fork, in the child: nothing is theirs there. */
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "rnic/io/loop/loop_private.h"
#include "rnic/io/system/clock.h"

static void do_nothing(struct engine *engine)
{
}

/* Work that nobody will ever do, while its poster waits for the completion: what has been said
 * once is left out. */
static void kick_nothing(struct engine *engine, struct qp *qp)
{
    static _Atomic pid_t said;
    pid_t self = getpid();
    if (atomic_exchange(&said, self) != self) {
        dprintf(STDERR_FILENO,
                "weir: process %ld posts work to a queue pair of the process that it was forked "
                "from, where nobody does it: open the device after fork() or daemon()\n",
                (long)self);
    }
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
