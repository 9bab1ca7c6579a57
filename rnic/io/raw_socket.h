/* Sockets of our own. A preloaded library that takes over socket() to give programs something else
 * (librspreload does) would otherwise give it to us, who are below it. */
#ifndef WEIR_IO_RAW_SOCKET_H
#define WEIR_IO_RAW_SOCKET_H

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As socket(2). */
static inline int raw_socket(int domain, int type, int protocol)
{
    return (int)syscall(SYS_socket, domain, type, protocol);
}

#endif
