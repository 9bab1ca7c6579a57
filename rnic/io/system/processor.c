#include "rnic/io/system/processor.h"

uint32_t processor_here(void)
{
    return (uint32_t)sched_getcpu(); /* -1: unknown */
}

static bool is_as_left(const struct processor_absence *absence)
{
    cpu_set_t now;
    return absence->is_on && sched_getaffinity(0, sizeof now, &now) == 0 &&
           CPU_EQUAL(&now, &absence->rest);
}

bool processor_leave(struct processor_absence *absence)
{
    uint32_t here = processor_here();
    if (here >= CPU_SETSIZE ||
        (!is_as_left(absence) && sched_getaffinity(0, sizeof absence->all, &absence->all) != 0)) {
        return false;
    }
    absence->rest = absence->all;
    CPU_CLR(here, &absence->rest);
    absence->is_on = CPU_COUNT(&absence->rest) > 0 &&
                     sched_setaffinity(0, sizeof absence->rest, &absence->rest) == 0;
    return absence->is_on;
}

void processor_return(struct processor_absence *absence)
{
    if (is_as_left(absence)) {
        (void)sched_setaffinity(0, sizeof absence->all, &absence->all);
    }
    absence->is_on = false;
}
