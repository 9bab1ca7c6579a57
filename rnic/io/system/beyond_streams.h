/* Not in the place of a standard stream that the program was started without, or has closed: what
 * it prints would go into a file that it shares with others. */
#ifndef WEIR_IO_BEYOND_STREAMS_H
#define WEIR_IO_BEYOND_STREAMS_H

#include <errno.h>

#include "rnic/io/system/raw_file.h"

/* The same file under another number, where it must be; -1 stays that, with errno. */
static inline int beyond_streams(int descriptor)
{
    int moved = descriptor;
    if (descriptor >= 0 && descriptor <= STDERR_FILENO) {
        moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        int error = errno;
        raw_close(descriptor);
        errno = error;
    }
    return moved;
}

#endif
