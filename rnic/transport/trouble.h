/* What the link hears of a packet that did not get through, from the kernel or by ICMP, and what a
 * queue pair makes of it.
 *
 * Anybody can forge an ICMP message. So it is heard only where the packet that it quotes is one of
 * the queue pair's own, unanswered at the time, and even then it ends nothing by itself: a queue
 * pair whose packets are too long for the way fails when the next wait for an answer ends without
 * one, not only after all retries; an answer proves it wrong. What the host's own interface refuses
 * is certain, and fails at once. Either way the completion is RETRY_EXCEEDED with the bytes that
 * the way takes as its detail (verbs: vendor_err). Port unreachable changes nothing, a peer may be
 * about to start; it is told.
 *
 * UC and UD have no answers. What the host's own interface refuses fails as it is sent, see port.h.
 * Hearsay can be neither proven nor waited for, so it fails nothing: the event PATH_ERROR is
 * raised, at the first and whenever the way turns out to be still narrower.
 *
 * That the peer's process has died is certain too, where the link knows it: what is outstanding
 * fails at once, and what is posted later. But who has a connection of cm is to hear of its end
 * first, by the peer's goodbye, which the dead one's heir sends: a fifth of a second before. */
#ifndef WEIR_TRANSPORT_TROUBLE_H
#define WEIR_TRANSPORT_TROUBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/wire/ids.h"

enum trouble_kind {
    TROUBLE_TOO_LONG,
    TROUBLE_REFUSED, /* nobody at the peer's port */
};

struct trouble {
    enum trouble_kind kind;
    bool certain; /* our own host says so */
    uint32_t mtu; /* TOO_LONG: bytes of IP packets that the way takes */
    struct gid remote;
    struct qpn source;      /* of the packet, where it is a datagram (its DETH says it); else 0 */
    struct qpn destination; /* from its BTH */
    struct psn psn;
    bool answers; /* the packet does: its PSN is one of the peer's */
};

struct qp;

/* False: it is not about a packet of this queue pair, or not true. */
bool trouble_hear(struct qp *qp, const struct trouble *trouble);

/* The queue pair belongs to a connection whose end will be said: a death does nothing until then.
 */
void trouble_await_goodbye(struct qp *qp);
/* It has been said. */
void trouble_goodbye(struct qp *qp);
/* The peer's process is gone, with all that it had sent received. Of reliable queue pairs only. */
void trouble_peer_died(struct qp *qp);
/* Says of a queue pair with work to send that its peer died, by failing it. False: it lives. */
bool trouble_ends(struct qp *qp);

#endif
