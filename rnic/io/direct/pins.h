/* Whether the kernel may be bringing data to pages of this process past its page tables. */
#ifndef WEIR_IO_PINS_H
#define WEIR_IO_PINS_H

#include <stdbool.h>

/* By what the process has open: files with O_DIRECT, an io_uring, sockets of AF_XDP, devices other
 * than terminals, /dev/null and their like. True also if that cannot be found out. Takes about a
 * microsecond for each descriptor.
 *
 * Not seen: file systems that do direct I/O on their own account (9p, FUSE with direct_io) while a
 * read is under way, and I/O by a descriptor that was closed meanwhile. */
bool pins_are_possible(void);

#endif
