/* Selective repeat between two Weir ends: who holds what, and how the two learn that they may.
 * docs/loss.md has the protocol; wire/report.h the packet.
 *
 * A queue pair is agreed once it has had a report that only its peer can have made. From then
 * on its receiving side keeps what comes early (early.h) and says so in reports, and its
 * sending side repeats only what is lost (repair.h). Before, and with anybody else, everything is
 * go-back-N. Who has a reason (a loss, a window that is too small for the way) asks, as often as
 * the logarithm of its reasons: a peer that does not answer gets few packets, all of which it
 * drops.
 *
 * A report may also lead: it takes an acknowledgement's place before a short request that is ready
 * to leave, and is made as long, so that a link that joins packets of one length, the last of which
 * may be shorter, sends both at once. The order stays: whoever gets both has first what completes
 * its own request. To have that is a reason, too, but a small one.
 *
 * Here: agreement, reports out, early requests. Not here: reports in as answers (repair). */
#ifndef WEIR_TRANSPORT_SELECTIVE_H
#define WEIR_TRANSPORT_SELECTIVE_H

#include "rnic/base/secret.h"
#include "rnic/transport/early.h"
#include "rnic/transport/scoreboard.h"
#include "rnic/transport/share.h"
#include "rnic/transport/step.h"
#include "rnic/transport/throttle.h"

struct qp;

/* What only an agreed queue pair has. From the device's stock. */
struct selective {
    struct early_tray requests, responses;
    struct psn behind_early; /* the request that came early last */
    struct scoreboard board;
    struct share share;
    struct throttle hold;     /* while enough of what was sent waits in this host */
    uint64_t hold_mark;       /* see packet_sink */
    uint32_t data_sent;       /* packets, or trains, of data; wraps */
    bool repairing;           /* `board` holds; before, and after nothing else, all is go-back-N */
    struct instant look;      /* when something may count as lost; NEVER: nothing is in doubt */
    bool left_out;            /* responses came early, and found no place, since the last gap */
    struct instant gap_due;   /* when a missing response counts as lost; NEVER: none is missing */
    struct psn gap_psn;       /* which */
    bool acknowledged_beyond; /* the gap, that is: */
    struct psn acknowledged;  /* everything before is, but for what responses must answer */
    struct psn begun;         /* what is before it left before repairing began; while that is so: */
    bool has_begun;
    uint32_t held_most;       /* by the peer, since something was answered */
    uint64_t repair_position; /* in the send queue, of what was repeated last */
    uint16_t duplicates;      /* requests that came in vain */
    bool duplicates_untold;
    uint16_t peer_duplicates; /* as last told */
    bool peer_tags;    /* it has learned ours: what comes early without it is not the peer's */
    uint16_t peer_tag; /* for what we send */
    struct selective *next_free;
};

/* Of every queue pair. */
struct agreement {
    bool owes;        /* a report is due, whatever the acknowledgements do */
    bool asks;        /* ... that wants an answer */
    uint16_t tag;     /* of the peer's packets, once it knows; 0: not drawn yet */
    uint32_t reasons; /* to ask that there were, in SELECTIVE_SMALL_REASONS of one */
};

/* Of a device. */
struct selective_stock {
    struct selective *all;
    struct selective *first_free;
    uint32_t capacity, touched;
    struct early_stock early;
    struct secret tags;
};

enum status selective_stock_init(struct selective_stock *stock, struct allocator *allocator,
                                 uint32_t queue_pairs, uint32_t packets,
                                 const struct siphash_key *key) MUST_USE;
void selective_stock_fini(struct selective_stock *stock, struct allocator *allocator);

#define SELECTIVE_SMALL_REASONS 64u

/* There is a reason to want selective repeat. */
void selective_want(struct qp *qp);
/* An acknowledgement is due and a request of `length` bytes, from its BTH to before its ICRC, is
 * ready; 0: none. True: a report is to lead it; else there is a small reason to want that. */
bool selective_leads(struct qp *qp, uint32_t length);
/* The connection is over, or has not begun. */
void selective_end(struct qp *qp);
/* A report, addressed to this queue pair, from its peer's address. Refused, or heeded. */
void selective_receive(struct qp *qp, struct instant now, const struct report *report);
/* A report that is owed beside the acknowledgements leaves. */
enum step selective_transmit(struct qp *qp);
/* A report of `length` bytes at least, counted like a request's, leaves in place of an
 * acknowledgement. False: the sink is full. */
bool selective_acknowledge(struct qp *qp, uint32_t length);
/* Whether an acknowledgement has more to say than an ACK can. */
bool selective_has_news(const struct qp *qp);

/* Whether the peer made the packet, as far as its tag tells. */
bool selective_is_tagged(struct qp *qp, const struct packet *packet);
/* A request `ahead` packets before its turn: it is kept, or the peer is told, or will be. */
void selective_receive_early(struct qp *qp, const struct packet *packet, int32_t ahead);
/* The expected request has been executed: what came early is, as far as it goes. */
void selective_take_requests(struct qp *qp, const struct packet *executed);
/* A request that had been executed, or kept, already. */
void selective_count_duplicate(struct qp *qp);

#endif
