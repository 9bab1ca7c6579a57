#include "rnic/transport/throttle.h"

#define BURST_NS UINT64_C(100000)
#define REST_NS  UINT64_C(50000) /* a wait is worth a timer */

bool throttle_may_pass(struct throttle *throttle, struct instant now)
{
    if (!throttle->waiting && instant_before(now, throttle->due)) {
        throttle->waiting = true;
        throttle->resume = instant_after(throttle->due, REST_NS);
    }
    if (throttle->waiting && instant_before(now, throttle->resume)) {
        return false;
    }
    throttle->waiting = false;
    return true;
}

void throttle_hold(struct throttle *throttle, struct instant until)
{
    throttle->waiting = true;
    throttle->resume = until;
}

void throttle_passed(struct throttle *throttle, struct instant now, uint32_t bytes, uint64_t rate)
{
    struct instant earliest = {now.ns > BURST_NS ? now.ns - BURST_NS : 0};
    struct instant start = instant_before(throttle->due, earliest) ? earliest : throttle->due;
    throttle->due = instant_after(start, bytes * MILLISECOND_NS / rate);
}
