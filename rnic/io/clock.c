#include "rnic/io/clock.h"

#include <time.h>

struct instant clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (struct instant){(uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec};
}
