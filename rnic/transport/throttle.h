/* Lets bytes pass at a rate that whoever asks decides. Short bursts are allowed, and waits are made
 * long enough to be worth a timer, so that timers need not be exact. */
#ifndef WEIR_TRANSPORT_THROTTLE_H
#define WEIR_TRANSPORT_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"

struct throttle {
    struct instant due;    /* of the next packet; behind the clock by a burst at most */
    struct instant resume; /* while `waiting` */
    bool waiting;
};

/* Whether a packet may pass now; if not, not before `resume`. */
bool throttle_may_pass(struct throttle *throttle, struct instant now);
/* None may before then. */
void throttle_hold(struct throttle *throttle, struct instant until);
/* One did, at `rate` bytes per millisecond, which is not 0. */
void throttle_passed(struct throttle *throttle, struct instant now, uint32_t bytes, uint64_t rate);

#endif
