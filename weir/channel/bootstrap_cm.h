/* Connections by rdma_cm. The message lane is connected first; its hello and the answer agree on
 * the rest. Each further lane is a connect of its own that carries the connection's token. */
#ifndef WEIR_CHANNEL_BOOTSTRAP_CM_H
#define WEIR_CHANNEL_BOOTSTRAP_CM_H

#include <sys/socket.h>

#include <weir/channel.h>

enum weir_status bootstrap_cm_connect(struct weir_connection *connection, struct sockaddr *target,
                                      struct weir_error *ret_error);
enum weir_status bootstrap_cm_listen(struct weir_listener *listener, struct sockaddr *local,
                                     struct weir_error *ret_error);
void bootstrap_cm_unlisten(struct weir_listener *listener);
/* Handles events that wait in the poller's channel, some at a time. */
void bootstrap_cm_events(struct weir_poller *poller);
/* Tells the peer that the connection ends, or was never wanted. */
void bootstrap_cm_leave(struct weir_connection *connection);

#endif
