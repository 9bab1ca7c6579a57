#include "rnic/io/system/heavy_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define INTERRUPTED_NS                                                                             \
    20000000 /* the clock does it to each processor at work, 100 times a second */

/* No cancellation point. */
static bool have_barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool heavy_fence_prepare(void)
{
    return have_barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
           have_barrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
           have_barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) &&
           have_barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

static bool fence_by(int command)
{
    static const struct timespec interrupted = {.tv_nsec = INTERRUPTED_NS};
    if (have_barrier(command)) {
        return true;
    }
    syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &interrupted, NULL);
    return false;
}

bool heavy_fence(void)
{
    return fence_by(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

bool heavy_fence_everywhere(void)
{
    return fence_by(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}
