/* Datagram rsockets: UD queue pairs for data, and a UDP socket of the same port by which two ends
 * learn of each other's queue pair. Until a peer has answered there, data goes through the UDP
 * socket too.
 *
 * The descriptor of the application is the UDP socket's. */
#ifndef WEIR_RDMACM_RSOCKET_DATAGRAM_H
#define WEIR_RDMACM_RSOCKET_DATAGRAM_H

#include "rnic/rdmacm/rsocket.h"

struct datagram;

/* NULL and errno. */
struct rsocket *datagram_create(int domain);
/* Waits until all is sent, and wakes whoever waits. */
void datagram_close(struct rsocket *socket);
void datagram_free(struct rsocket *socket);
void datagram_init_locks(struct rsocket *socket);
int datagram_bind(struct rsocket *socket, const struct sockaddr *address, socklen_t length);
int datagram_connect(struct rsocket *socket, const struct sockaddr *target, socklen_t length);
/* The sizes of buffers and queues are no longer to be changed. */
bool datagram_has_buffers(const struct rsocket *socket);
/* `target` may be NULL where there is a connection. */
ssize_t datagram_send(struct rsocket *socket, const struct iovec *pieces, int count, int flags,
                      const struct sockaddr *target, socklen_t length);
/* The source may be NULL. */
ssize_t datagram_receive(struct rsocket *socket, const struct iovec *pieces, int count, int flags,
                         struct sockaddr *ret_source, socklen_t *ret_length);

/* For rpoll: what holds now, of POLLIN and POLLOUT; before that, whether to wait is prepared. */
short datagram_events(struct rsocket *socket, short wanted);
void datagram_arm(struct rsocket *socket);
/* What becomes readable when the events may have changed. */
int datagram_descriptor(const struct rsocket *socket);
void datagram_take_event(struct rsocket *socket);

#endif
