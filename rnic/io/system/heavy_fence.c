#include "rnic/io/system/heavy_fence.h"

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define INTERRUPTED_NS                                                                             \
    20000000 /* the clock does it to each processor at work, 100 times a second */

/* A forked child has the registration, too. */
static _Atomic enum {
    UNTRIED,
    WORKS,
    REFUSED
} state;

/* No cancellation point. */
static bool have_barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool heavy_fence_prepare(void)
{
    if (atomic_load_explicit(&state, memory_order_relaxed) == UNTRIED) {
        bool works = have_barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
                     have_barrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
                     have_barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) &&
                     have_barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
        atomic_store_explicit(&state, works ? WORKS : REFUSED, memory_order_relaxed);
    }
    return heavy_fence_works();
}

bool heavy_fence_works(void)
{
    return atomic_load_explicit(&state, memory_order_relaxed) == WORKS;
}

static bool fence_by(int command)
{
    static const struct timespec interrupted = {.tv_nsec = INTERRUPTED_NS};
    bool done = have_barrier(command);
    if (!done) {
        atomic_store_explicit(&state, REFUSED, memory_order_relaxed);
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &interrupted, NULL);
    }
    return done;
}

bool heavy_fence(void)
{
    return fence_by(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

bool heavy_fence_everywhere(void)
{
    return fence_by(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}
