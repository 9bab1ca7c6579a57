/* The calls that carry data, in all the forms that sockets have. */
#include <errno.h>

#include "rnic/rdmacm/rsocket_datagram.h"

/* A stream that has been connected; what it does then is its own matter. */
static int ready(struct stream *stream, int flags)
{
    if (stream_finish_connecting(stream, rsocket_blocks(&stream->base, flags)) != 0) {
        return -1;
    }
    return stream->targets == NULL || stream->base.is_foreign ? cma_error(ENOTCONN) : 0;
}

static ssize_t receive(int descriptor, const struct iovec *pieces, int count, int flags,
                       struct sockaddr *ret_source, socklen_t *ret_length)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    if (socket->type == SOCK_DGRAM) {
        return datagram_receive(socket, pieces, count, flags, ret_source, ret_length);
    }
    struct stream *stream = stream_of(socket);
    if (ready(stream, flags) != 0) {
        return rsocket_result(socket, -1);
    }
    ssize_t length = rsocket_result(socket, stream_receive(stream, pieces, count, flags));
    if (length > 0 && ret_source != NULL && ret_length != NULL) {
        rsocket_copy_address(rdma_get_peer_addr(stream->id), ret_source, ret_length);
    }
    return length;
}

static ssize_t send_pieces(int descriptor, const struct iovec *pieces, int count, int flags,
                           const struct sockaddr *target, socklen_t length)
{
    RSOCKET_USED struct rsocket *socket = rsocket_lookup(descriptor);
    if (socket == NULL) {
        return -1;
    }
    if (socket->type == SOCK_DGRAM) {
        return datagram_send(socket, pieces, count, flags, target, length);
    }
    if (target != NULL || length != 0) {
        return cma_error(EISCONN);
    }
    struct stream *stream = stream_of(socket);
    ssize_t sent = ready(stream, flags) != 0 ? -1 : stream_send(stream, pieces, count, flags);
    return rsocket_result(socket, sent);
}

PUBLIC ssize_t rrecv(int descriptor, void *bytes, size_t length, int flags)
{
    const struct iovec piece = {bytes, length};
    return receive(descriptor, &piece, 1, flags, NULL, NULL);
}

PUBLIC ssize_t rrecvfrom(int descriptor, void *bytes, size_t length, int flags,
                         struct sockaddr *source, socklen_t *source_length)
{
    const struct iovec piece = {bytes, length};
    return receive(descriptor, &piece, 1, flags, source, source_length);
}

/* There is nothing to say beside the data. */
PUBLIC ssize_t rrecvmsg(int descriptor, struct msghdr *message, int flags)
{
    if (message->msg_control != NULL && message->msg_controllen != 0) {
        return cma_error(ENOTSUP);
    }
    message->msg_flags = 0;
    return receive(descriptor, message->msg_iov, (int)message->msg_iovlen, flags, message->msg_name,
                   &message->msg_namelen);
}

PUBLIC ssize_t rread(int descriptor, void *bytes, size_t length)
{
    return rrecv(descriptor, bytes, length, 0);
}

PUBLIC ssize_t rreadv(int descriptor, const struct iovec *pieces, int count)
{
    return count < 0 ? cma_error(EINVAL) : receive(descriptor, pieces, count, 0, NULL, NULL);
}

PUBLIC ssize_t rsend(int descriptor, const void *bytes, size_t length, int flags)
{
    const struct iovec piece = {(void *)bytes, length};
    return send_pieces(descriptor, &piece, 1, flags, NULL, 0);
}

PUBLIC ssize_t rsendto(int descriptor, const void *bytes, size_t length, int flags,
                       const struct sockaddr *target, socklen_t target_length)
{
    const struct iovec piece = {(void *)bytes, length};
    return send_pieces(descriptor, &piece, 1, flags, target, target_length);
}

PUBLIC ssize_t rsendmsg(int descriptor, const struct msghdr *message, int flags)
{
    if (message->msg_control != NULL && message->msg_controllen != 0) {
        return cma_error(ENOTSUP);
    }
    return send_pieces(descriptor, message->msg_iov, (int)message->msg_iovlen, flags,
                       message->msg_name, message->msg_name == NULL ? 0 : message->msg_namelen);
}

PUBLIC ssize_t rwrite(int descriptor, const void *bytes, size_t length)
{
    return rsend(descriptor, bytes, length, 0);
}

PUBLIC ssize_t rwritev(int descriptor, const struct iovec *pieces, int count)
{
    return count < 0 ? cma_error(EINVAL) : send_pieces(descriptor, pieces, count, 0, NULL, 0);
}
