/* Packets of ours that did not get through wait here to be looked into: the host refused to send
 * them, or somebody on the way did (ICMP).
 *
 * What our own host says is certain and comes first; what ICMP says is hearsay, for anybody can
 * forge it. Each has room of its own, so hearsay, however much there is, never takes the place of
 * what is certain. One that finds no room is counted and gone: who sent that packet sends it again,
 * as a rule, and it is said again. */
#ifndef WEIR_IO_COMPLAINTS_H
#define WEIR_IO_COMPLAINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/transport/trouble.h"

#define COMPLAINTS_WAITING 16u /* of each sort */

struct complaint {
    struct trouble trouble;
    struct gid reporter; /* not of one that is certain */
    uint32_t length;     /* of UDP payload; 0: not known */
    bool handed_on;      /* by another process: whoever gets it keeps it */
};

struct complaints {
    struct complaints_ring {
        struct complaint waiting[COMPLAINTS_WAITING];
        uint32_t first, count;
    } certain, hearsay;
    uint64_t lost; /* no room */
};

/* One that is certain waits and says the same of the same queue pair: a run of packets is refused
 * one by one. */
bool complaints_has(const struct complaints *complaints, const struct trouble *trouble);
/* Zeroed to begin with. */
void complaints_add(struct complaints *complaints, const struct complaint *complaint);
bool complaints_wait(const struct complaints *complaints);
/* The next one. False: none waits. */
bool complaints_take(struct complaints *complaints, struct complaint *ret_complaint);

#endif
