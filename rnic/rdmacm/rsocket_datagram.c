#include "rnic/rdmacm/rsocket_datagram.h"

#include <errno.h>
struct rsocket *datagram_create(int domain)
{
    errno = ENOTSUP;
    return NULL;
}
void datagram_close(struct rsocket *socket)
{
}
int datagram_bind(struct rsocket *socket, const struct sockaddr *address, socklen_t length)
{
    return -1;
}
int datagram_connect(struct rsocket *socket, const struct sockaddr *target, socklen_t length)
{
    return -1;
}
ssize_t datagram_send(struct rsocket *socket, const struct iovec *pieces, int count, int flags,
                      const struct sockaddr *target, socklen_t length)
{
    return -1;
}
ssize_t datagram_receive(struct rsocket *socket, const struct iovec *pieces, int count, int flags,
                         struct sockaddr *ret_source, socklen_t *ret_length)
{
    return -1;
}
short datagram_events(struct rsocket *socket, short wanted)
{
    return 0;
}
void datagram_arm(struct rsocket *socket)
{
}
int datagram_descriptor(const struct rsocket *socket)
{
    return -1;
}
void datagram_take_event(struct rsocket *socket)
{
}
