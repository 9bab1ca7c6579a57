/* A peer that keeps no rule: what reaches a host is altered on its last step, and more is added,
 * all with a right ICRC. PSNs, opcodes, syndromes and reports are wrong, old packets come again,
 * acknowledgements and NAKs tell of what was not sent, CNPs come by the dozen. */
#ifndef WEIR_SIM_LIAR_H
#define WEIR_SIM_LIAR_H

#include "sim/streams.h"

#define LIAR_KEPT 64u

struct liar {
    struct network_end end; /* first; stands before the host's own */
    struct host *host;
    const struct streams *streams;
    uint32_t flows;
    struct dice dice;
    uint32_t per_mille;                 /* packets; 0: it lies no more */
    uint64_t told;                      /* lies */
    struct host_packet kept[LIAR_KEPT]; /* to come again */
    uint32_t kept_count;
};

/* Lies from now on to host `index` of the streams. */
void liar_start(struct liar *liar, struct network *network, struct streams *streams, unsigned index,
                uint32_t flows);
void liar_stop(struct liar *liar);

#endif
