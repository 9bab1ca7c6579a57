/* Whether a word that process_vm_writev or readv moves is seen whole by who looks at it meanwhile,
 * as one is that an adapter moves.
 *
 * The kernel copies up to 64 bytes by moves of eight and then of single bytes, or, since 6.4 where
 * the processor has fast short `rep movsb`, by that one instruction. Of that nothing is promised;
 * Intel's store a word within a cache line at once (whole_test looks), what others do is not known
 * here. */
#ifndef WEIR_IO_WHOLE_H
#define WEIR_IO_WHOLE_H

#include <stdbool.h>
#include <stdint.h>

/* `length`: 2, 4 or 8, at an address that it divides. */
bool whole_is_moved(uint32_t length);

/* ... on a machine like this; for tests. */
struct whole_machine {
    bool is_x86;
    bool has_fast_short_moves, is_intel;
    unsigned kernel_major, kernel_minor;
};
bool whole_would_be_moved(const struct whole_machine *machine, uint32_t length);

#endif
