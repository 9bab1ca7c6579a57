/* Connections by a TCP control plane: the two ends exchange their queue pairs' numbers, addresses
 * and first PSNs over a TCP connection, bring the queue pairs up themselves, and say when they are
 * ready. The TCP connection stays and watches the peer's life.
 *
 *     client -> server  CONNECT hello, endpoint     server: INIT, receives, RTR, RTS
 *     server -> client  ACCEPT hello, endpoint      client: INIT, receives, RTR, RTS
 *     client -> server  READY                       server: open
 *     server -> client  READY                       client: open */
#ifndef WEIR_CHANNEL_BOOTSTRAP_TCP_H
#define WEIR_CHANNEL_BOOTSTRAP_TCP_H

#include <sys/socket.h>

#include <weir/channel.h>

enum weir_status bootstrap_tcp_connect(struct weir_connection *connection, struct sockaddr *target,
                                       struct weir_error *ret_error);
enum weir_status bootstrap_tcp_listen(struct weir_listener *listener, struct sockaddr *local,
                                      struct weir_error *ret_error);
void bootstrap_tcp_unlisten(struct weir_listener *listener);
/* Closes the TCP connection, which tells the peer. */
void bootstrap_tcp_leave(struct weir_connection *connection);

#endif
