/* Notices a peer that is gone though nothing fails: after half the silence timeout without a
 * completion, an empty WRITE (on iWARP a READ) asks the peer's device; no answer in what is left of
 * the timeout means that the peer is lost. The question waits behind what is being put and got:
 * stride.h keeps the pieces of that so short that they complete meanwhile. */
#ifndef WEIR_CHANNEL_KEEPALIVE_H
#define WEIR_CHANNEL_KEEPALIVE_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/channel.h>

#include "weir/channel/timer.h"

struct keepalive {
    struct timer timer;
    bool has_heard;    /* a completion came since the last tick */
    uint64_t heard_ns; /* the tick that found one last */
    bool is_asking;
    uint64_t asked_ns;
};

void keepalive_start(struct weir_connection *connection);
void keepalive_stop(struct weir_connection *connection);

#endif
