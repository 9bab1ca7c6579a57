/* Which processor the calling thread runs on, and how it leaves one to another thread. */
#ifndef WEIR_IO_PROCESSOR_H
#define WEIR_IO_PROCESSOR_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define PROCESSOR_UNKNOWN UINT32_MAX

/* By now it may be another one. */
uint32_t processor_here(void);

/* A thread's, which is away from a processor while it may run on its others only. Zeroed: it is
 * not. */
struct processor_absence {
    cpu_set_t all, rest;
    bool is_on;
};

/* Away from the one that it runs on, and from that alone. False: it may run on no other, or the
 * kernel does not let it. */
bool processor_leave(struct processor_absence *absence);
/* It may run on all of them again, unless somebody else has chosen for it meanwhile. */
void processor_return(struct processor_absence *absence);

#endif
