/* Descriptors on the data path, as raw_socket.h has sockets: no cancellation point, for a thread
 * that is cancelled under the engine's lock would keep it. */
#ifndef WEIR_IO_RAW_FILE_H
#define WEIR_IO_RAW_FILE_H

#include <fcntl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* As open(2) of what is there, close(2), read(2), write(2), pwrite(2). */
static inline int raw_open(const char *path, int flags)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

static inline void raw_close(int descriptor)
{
    long result = syscall(SYS_close, descriptor);
    (void)result;
}

static inline ssize_t raw_read(int descriptor, void *bytes, size_t length)
{
    return syscall(SYS_read, descriptor, bytes, length);
}

static inline ssize_t raw_write(int descriptor, const void *bytes, size_t length)
{
    return syscall(SYS_write, descriptor, bytes, length);
}

static inline ssize_t raw_write_at(int descriptor, const void *bytes, size_t length, off_t place)
{
    return syscall(SYS_pwrite64, descriptor, bytes, length, place);
}

/* As pipe2(2), for this process alone. */
static inline int raw_pipe(int *ret_descriptors)
{
    return (int)syscall(SYS_pipe2, ret_descriptors, O_CLOEXEC);
}

/* As vmsplice(2) and splice(2), without waiting. */
static inline ssize_t raw_lend(int pipe, const struct iovec *place)
{
    return syscall(SYS_vmsplice, pipe, place, 1UL, SPLICE_F_NONBLOCK);
}

static inline ssize_t raw_splice(int pipe, int descriptor, size_t length)
{
    return syscall(SYS_splice, pipe, NULL, descriptor, NULL, length, SPLICE_F_NONBLOCK);
}

#endif
