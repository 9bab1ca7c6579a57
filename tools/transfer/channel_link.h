/* A transfer's link over a weir channel. */
#ifndef TOOLS_TRANSFER_CHANNEL_LINK_H
#define TOOLS_TRANSFER_CHANNEL_LINK_H

#include "tools/transfer/link.h"

/* The channel's options that both ends of a transfer use. */
extern const struct weir_channel_options channel_link_options;
/* The connection's handler; its user is the link. */
extern const struct weir_handler channel_link_handler;

struct link *channel_link_create(struct weir_fabric *fabric);
/* The connection it is for, before the connection's first event. */
void channel_link_attach(struct link *link, struct weir_connection *connection);
/* NULL once it has closed. */
struct weir_connection *channel_link_connection(struct link *link);
/* After it closed, or when the poller has been destroyed. */
void channel_link_destroy(struct link *link);

#endif
