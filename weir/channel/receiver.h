/* The receiving side of a connection's messages: checks, order, delivery.
 *
 * Invariants: arrivals are delivered in the order they came; one that is not whole yet holds back
 * those behind it, and with them their credit; memory for messages that are being read is bounded
 * by the longest message this side takes. Credit is granted for receives that are posted: some at
 * a time, so that neither a lock nor a doorbell is paid for each message. */
#ifndef WEIR_CHANNEL_RECEIVER_H
#define WEIR_CHANNEL_RECEIVER_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/channel.h>

#include "weir/channel/lane.h"

struct arrival;

struct receiver {
    struct arrival *first, **end;
    struct arrival *unseen; /* the first in line of which begin_pulls has to look whether it is to
                               be read: none before it is */
    struct arrival *spare;
    size_t pulling;                       /* bytes of memory held for messages being read */
    unsigned announced;                   /* by the peer, not answered yet */
    bool has_bye;                         /* the last message is in line or delivered */
    uint32_t unposted[LANE_RECEIVES_MAX]; /* buffers whose messages were delivered */
    unsigned unposted_count;
};

void receiver_init(struct weir_connection *connection);
void receiver_fini(struct weir_connection *connection);

/* A receive completed well in buffer `index`. */
void receiver_take(struct weir_connection *connection, uint32_t index,
                   const struct ibv_wc *completion);
/* Delivers what is whole, begins to read what can be read. */
void receiver_advance(struct weir_connection *connection);
bool receiver_is_idle(const struct weir_connection *connection);

#endif
