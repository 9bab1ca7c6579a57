/* A system call that is made, or a copy, only if a word in memory says what it said before: whoever
 * is kept from running between the look and the call, or before the copy's end (for another's turn,
 * by a stop, for a debugger), looks again. So who has changed the word and finds us stopped knows
 * that the call is over, or will not be made, and that nothing more is copied. */
#ifndef WEIR_IO_GUARDED_H
#define WEIR_IO_GUARDED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

/* process_vm_writev, or readv. -1 and errno; ESTALE: the word has changed;
 * ENOTSUP: it cannot be done so by this thread. */
ssize_t guarded_move(const _Atomic uint64_t *word, uint64_t expected, bool write, pid_t process,
                     const struct iovec *here, uint32_t here_count, const struct iovec *there,
                     uint32_t there_count);
/* Copies to memory that others look at, from its first byte to its last: who sees the last one new
 * sees all. 2, 4 or 8 bytes at an address that their number divides are stored at once. False: the
 * word has changed, or it cannot be done so; some may be copied. */
bool guarded_copy(const _Atomic uint64_t *word, uint64_t expected, uint8_t *to, const uint8_t *from,
                  uint64_t length);
/* By the calling thread: false on other machines than x86-64, and where the C library has not
 * registered restartable sequences (glibc before 2.35, others, or told not to). */
bool guarded_is_possible(void);

#endif
