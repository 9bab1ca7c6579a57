/* How fast long READ responses leave.
 *
 * Nothing acknowledges a response, so no window bounds one; a requester may ask for a gigabyte at
 * once, and what floods its queues it has to ask for again, after a timeout as a rule. So they
 * leave at a rate: it starts moderate, doubles as long as nobody complains, falls when a part is
 * asked for again, and rises slowly from then on. Not here: which responses are paced (answer). */
#ifndef WEIR_TRANSPORT_PACE_H
#define WEIR_TRANSPORT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/transport/throttle.h"

struct pace {
    uint64_t rate;  /* bytes per millisecond */
    uint64_t clean; /* bytes that left since the rate last changed */
    struct throttle throttle;
    bool complained;
};

void pace_reset(struct pace *pace);
/* Whether a packet may leave now; if not, not before `throttle.resume`. */
bool pace_may_send(struct pace *pace, struct instant now);
void pace_sent(struct pace *pace, struct instant now, uint32_t bytes);
/* Something that had left is asked for again. */
void pace_complaint(struct pace *pace);

#endif
