/* How many bytes a queue pair may have in flight: a window that starts small, grows with what is
 * acknowledged, halves on loss and collapses on a timeout. Never above the device's limit, so that
 * a slow receiver's socket buffer is not flooded. Not here: what is in flight (requester). */
#ifndef WEIR_TRANSPORT_CONGESTION_H
#define WEIR_TRANSPORT_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/wire/psn.h"

struct congestion {
    uint32_t window;    /* bytes */
    uint32_t threshold; /* bytes; below it the window doubles per round trip */
    uint32_t credit;    /* bytes acknowledged towards the next step above the threshold */
    uint32_t limit;     /* bytes */
    uint16_t mtu;       /* bytes */
    bool recovering;    /* a loss has been answered; others before recover_psn are the same one */
    struct psn recover_psn;
    uint32_t collapsed_from; /* window before a timeout, until that proves right; else 0 */
};

void congestion_reset(struct congestion *congestion, uint32_t mtu, uint32_t limit);
/* `bytes` left the network; everything before `unacked` is acknowledged. */
void congestion_acknowledged(struct congestion *congestion, uint32_t bytes, struct psn unacked);
/* Something before `frontier` was lost. */
void congestion_lost(struct congestion *congestion, struct psn frontier);
void congestion_timed_out(struct congestion *congestion, struct psn frontier);
/* What was sent again had arrived before: the peer was slow, nothing was lost. */
void congestion_not_lost(struct congestion *congestion);

/* Something has been lost, ever. */
static inline bool congestion_has_shrunk(const struct congestion *congestion)
{
    return congestion->threshold < congestion->limit;
}

#endif
