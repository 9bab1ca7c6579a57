/* The monotonic clock of the host as instants. */
#ifndef WEIR_IO_CLOCK_H
#define WEIR_IO_CLOCK_H

#include <stdint.h>

#include "rnic/base/time.h"

struct instant clock_now(void);
/* Spins for so long, and leaves the processor's other thread what it can. */
void clock_rest(uint64_t ns);

/* The same for who asks all the time: between two readings of the kernel's clock it goes on by the
 * processor's counter, where there is one, for half the price; it is some nanoseconds wrong then.
 * Never goes back. One thread at a time. Zeroed: good. */
struct quick_clock {
    struct instant read;  /* the kernel's, at `ticks` */
    struct instant given; /* the latest answer */
    uint64_t ticks;
    struct instant first; /* a reading from before, at `first_ticks`: what a tick is worth */
    uint64_t first_ticks;
    uint64_t rate; /* nanoseconds for 2^32 ticks; 0: not known */
};
struct instant quick_clock_now(struct quick_clock *clock);
/* Its part: the kernel's clock was read between two readings of the counter, and perhaps long after
 * the first: such a reading is the kernel's, and no answer goes on from it. */
void quick_clock_set(struct quick_clock *clock, uint64_t before, struct instant read,
                     uint64_t after);

#endif
