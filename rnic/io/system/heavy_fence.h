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

/* Whether heavy_fence and heavy_fence_everywhere work in this process, as is tried here, and
 * whether its threads have part in those of others. To be asked before anything is built upon it,
 * at any time; threads that are there by then make the first call take some tens of milliseconds.
 */
bool heavy_fence_prepare(void);

/* For all threads of this process; for all threads of all processes that have prepared. False: the
 * kernel gives none any more, for a filter of system calls came after heavy_fence_prepare. Then it
 * was waited for, long enough for each processor to have been interrupted; nothing more is to be
 * built upon it. */
bool heavy_fence(void);
bool heavy_fence_everywhere(void);

#endif
