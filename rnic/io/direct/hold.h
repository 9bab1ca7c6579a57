/* Making all wait who touch certain pages of this process, in the program or in the kernel, until
 * they are let go (userfaultfd). Who waits goes on with whatever is mapped there by then.
 *
 * What is held must not be touched by the thread that holds it. None of this allocates or locks. */
#ifndef WEIR_IO_HOLD_H
#define WEIR_IO_HOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/status.h"

/* A descriptor for the calls below; -1: the kernel has not what it takes (Linux 6.8), or does not
 * let us. For this process only, not for a forked child. */
int hold_open(void);

/* Private memory: who touches a page that is not there waits. DENIED: not possible for this memory.
 * NO_MEMORY. */
enum status hold_absent(int hold, uint8_t *bytes, uint64_t length) MUST_USE;
/* Moves the pages of private memory, of one mapping, to other addresses, of one mapping, which are
 * held and have none.
 * `ret_moved`: the bytes before the first page that could not be. BUSY: it is pinned for I/O, or
 * shared with another process. DENIED: such memory is not moved there.
 * NO_MEMORY. */
enum status hold_move(int hold, uint8_t *to, uint8_t *from, uint64_t length,
                      uint64_t *ret_moved) MUST_USE;
/* Copies to such addresses what cannot be moved there. False: not all of it. */
bool hold_copy(int hold, uint8_t *to, uint8_t *from, uint64_t length);
/* A file's memory: who writes waits. */
bool hold_writers(int hold, uint8_t *bytes, uint64_t length);
/* Ends all of that for a range, and lets go who waits. */
void hold_release(int hold, uint8_t *bytes, uint64_t length);
/* Lets go who waits, where something else is mapped now. */
void hold_wake(int hold, uint8_t *bytes, uint64_t length);

#endif
