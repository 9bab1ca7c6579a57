/* What the packets on the wire prove, whatever the completions say: oracles over frames.
 *
 * psn    a reliable requester's PSNs have no gaps: one never sent before is the next one
 * rnr    after an RNR NAK nothing is sent from its PSN on before its timer has run, and giving up
 *        takes rnr_retry_count + 1 of them, not counting those before which the packet had not left
 *        again (on networks that neither lose nor reorder)
 * repeat a packet is sent again for a reason
 * retry  giving up in silence takes retry_count repetitions and (retry_count + 1) timeouts; giving
 *        up elsewhere takes as many harmed packets, unless marks slow the peer down
 * rides  requests bring acknowledgements only by links that carry them
 * tag    who has heard its peer's tag puts it on every request
 * msn    an answer says how many messages have been completed */
#ifndef WEIR_SIM_MONITOR_H
#define WEIR_SIM_MONITOR_H

#include "sim/model.h"

#define FLOW_TIMES 1024u

struct world;

/* The requests of one end, as seen on the wire. */
struct flow {
    bool seen;
    struct psn first;             /* the first PSN of all */
    struct psn next;              /* the first PSN never sent */
    struct psn last;              /* of the latest packet */
    uint32_t demands;             /* for READs, those repeated left out */
    uint32_t rounds;              /* how often sending went back since an answer last came */
    struct instant last_response; /* when that was */
    bool answered;
    uint64_t first_sent_ns[FLOW_TIMES]; /* by PSN, from `first` on */

    struct instant rnr_until;
    struct psn rnr_psn;
    uint32_t rnr_naks; /* in a row, for rnr_psn, each after it had left again */
    bool rnr_repeated; /* it has left since the last of all */
    bool is_unclear;   /* which of its requests have taken no PSN is not known */
    uint16_t tag;      /* of the latest packet; 0: it has heard none */
};

struct monitor {
    struct network_observer observer; /* first */
    struct world *world;
    struct flow *flows[END_MAX];
};

void monitor_init(struct monitor *monitor, struct world *world);
/* The end has done a WRITE or READ on its peer's memory, without a packet. */
void monitor_done_directly(struct monitor *monitor, struct end *end,
                           const struct direct_access *access);
/* Oracles for the two exhaustions; called when the completion is seen. */
void monitor_retry_exceeded(struct monitor *monitor, const struct end *end, const struct op *op);
void monitor_rnr_exceeded(struct monitor *monitor, const struct end *end, const struct op *op);

#endif
