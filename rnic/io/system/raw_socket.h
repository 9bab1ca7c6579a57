/* Sockets of our own. A preloaded library that takes over socket() to give programs something else
 * (librspreload does) would otherwise give it to us, who are below it. What sends and receives on
 * them is no cancellation point: it runs in the application's threads, under the engine's lock. */
#ifndef WEIR_IO_RAW_SOCKET_H
#define WEIR_IO_RAW_SOCKET_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As socket(2). */
static inline int raw_socket(int domain, int type, int protocol)
{
    return (int)syscall(SYS_socket, domain, type, protocol);
}

/* As connect(2), where that does not wait. */
static inline int raw_connect(int descriptor, const struct sockaddr *address, socklen_t length)
{
    return (int)syscall(SYS_connect, descriptor, address, length);
}

/* As sendmsg(2). */
static inline ssize_t raw_send_one(int descriptor, const struct msghdr *message, int flags)
{
    return syscall(SYS_sendmsg, descriptor, message, flags);
}

/* As recvmsg(2). */
static inline ssize_t raw_receive_one(int descriptor, struct msghdr *message, int flags)
{
    return syscall(SYS_recvmsg, descriptor, message, flags);
}

/* As sendmmsg(2); one message costs less by itself. */
static inline int raw_send(int descriptor, struct mmsghdr *messages, unsigned count, int flags)
{
    if (count == 1) {
        return raw_send_one(descriptor, &messages->msg_hdr, flags) < 0 ? -1 : 1;
    }
    return (int)syscall(SYS_sendmmsg, descriptor, messages, count, flags);
}

/* As recvmmsg(2), without its timeout. */
static inline int raw_receive(int descriptor, struct mmsghdr *messages, unsigned count, int flags)
{
    if (count == 1) {
        ssize_t length = raw_receive_one(descriptor, &messages->msg_hdr, flags);
        messages->msg_len = length < 0 ? 0 : (unsigned)length;
        return length < 0 ? -1 : 1;
    }
    return (int)syscall(SYS_recvmmsg, descriptor, messages, count, flags, NULL);
}

#endif
