/* The socket calls over RDMA, which are not offered: every one answers ENOSYS, so that a program
 * hears of it at once instead of reaching another library with our ids. */
#include <errno.h>
#include <rdma/rsocket.h>

#include "rnic/rdmacm/cma.h"

#define STUB(type, name, ...)                                                                      \
    PUBLIC type name(__VA_ARGS__)                                                                  \
    {                                                                                              \
        errno = ENOSYS;                                                                            \
        return (type)-1;                                                                           \
    }

STUB(int, rsocket, int domain, int type, int protocol)
STUB(int, rbind, int socket, const struct sockaddr *address, socklen_t length)
STUB(int, rlisten, int socket, int backlog)
STUB(int, raccept, int socket, struct sockaddr *address, socklen_t *length)
STUB(int, rconnect, int socket, const struct sockaddr *address, socklen_t length)
STUB(int, rshutdown, int socket, int how)
STUB(int, rclose, int socket)
STUB(ssize_t, rrecv, int socket, void *bytes, size_t length, int flags)
STUB(ssize_t, rrecvfrom, int socket, void *bytes, size_t length, int flags, struct sockaddr *source,
     socklen_t *source_length)
STUB(ssize_t, rrecvmsg, int socket, struct msghdr *message, int flags)
STUB(ssize_t, rsend, int socket, const void *bytes, size_t length, int flags)
STUB(ssize_t, rsendto, int socket, const void *bytes, size_t length, int flags,
     const struct sockaddr *target, socklen_t target_length)
STUB(ssize_t, rsendmsg, int socket, const struct msghdr *message, int flags)
STUB(ssize_t, rread, int socket, void *bytes, size_t length)
STUB(ssize_t, rreadv, int socket, const struct iovec *pieces, int count)
STUB(ssize_t, rwrite, int socket, const void *bytes, size_t length)
STUB(ssize_t, rwritev, int socket, const struct iovec *pieces, int count)
STUB(int, rpoll, struct pollfd *descriptors, nfds_t count, int timeout_ms)
STUB(int, rselect, int count, fd_set *readable, fd_set *writable, fd_set *exceptional,
     struct timeval *timeout)
STUB(int, rgetpeername, int socket, struct sockaddr *address, socklen_t *length)
STUB(int, rgetsockname, int socket, struct sockaddr *address, socklen_t *length)
STUB(int, rsetsockopt, int socket, int level, int name, const void *value, socklen_t length)
STUB(int, rgetsockopt, int socket, int level, int name, void *value, socklen_t *length)
STUB(int, rfcntl, int socket, int command, ...)
STUB(off_t, riomap, int socket, void *bytes, size_t length, int protection, int flags, off_t offset)
STUB(int, riounmap, int socket, void *bytes, size_t length)
STUB(size_t, riowrite, int socket, const void *bytes, size_t count, off_t offset, int flags)
