/* Errors of system calls that pass: another time the same call may succeed. */
#ifndef WEIR_IO_SHORTAGE_H
#define WEIR_IO_SHORTAGE_H

#include <errno.h>
#include <stdbool.h>

/* Descriptors, or the kernel's memory, have run out. */
static inline bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

#endif
