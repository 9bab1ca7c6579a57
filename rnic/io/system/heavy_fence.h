/* Fences that one side pays for both. Where one thread does something millions of times that
 * another has to be in order with a few times only, the first has but a fence for the compiler, and
 * the other makes all processors that run threads of the first have a real one (membarrier(2)). So
 *
 *     often: A = 1; atomic_signal_fence; read B        seldom: B = 1; heavy_fence; read A
 *
 * cannot both read 0. A heavy fence costs some microseconds, and interrupts those processors. */
#ifndef WEIR_IO_HEAVY_FENCE_H
#define WEIR_IO_HEAVY_FENCE_H

#include <stdbool.h>

/* Whether they work in this process, as the first call tries; its threads have part in those of
 * others from then on. Threads that are there by then make that call take some tens of
 * milliseconds. */
bool heavy_fence_prepare(void);
/* It was called, and they do. Not any more, once the kernel has refused one, for a filter of system
 * calls came later: nothing more is to be built upon them. */
bool heavy_fence_works(void);

/* For all threads of this process; for all threads of all processes that have prepared. False: the
 * kernel has refused it, and it was waited for instead, long enough for each processor to have been
 * interrupted. */
bool heavy_fence(void);
bool heavy_fence_everywhere(void);

#endif
