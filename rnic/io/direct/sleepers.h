/* Threads of this process that sleep on a futex which others could share with them: the kernel
 * knows such a one by the page it is in, and would not find its sleepers once that is another. */
#ifndef WEIR_IO_SLEEPERS_H
#define WEIR_IO_SLEEPERS_H

#include <stdbool.h>
#include <stdint.h>

/* Whether one sleeps on a futex in the range (for several at once: anywhere). True also if that
 * cannot be found out. Not those of one process only (FUTEX_PRIVATE_FLAG), which the kernel knows
 * by their address. Takes some microseconds for each thread; allocates nothing and touches nothing
 * of the range. */
bool sleepers_are_in(const uint8_t *bytes, uint64_t length);

#endif
