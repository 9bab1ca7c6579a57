/* WRITEs and READs that the initiator does by itself on the memory of a process of its host: no
 * packet, no PSN, and no help of the target's.
 *
 * What the target would grant stands in a table that it shows (direct_table.h). A request goes this
 * way when nothing of its queue pair is outstanding, so order and fences hold; it is done when it
 * is completed, part by part where it is long, several at once where they are short, those of other
 * queue pairs whose turns come next, too. Whatever does
 * not fit or does not work goes by packets, as if it had not been tried: errors come from there
 * alone.
 *
 * The target hides what it takes back, and then waits until nobody is at it any more (settle): once
 * ibv_dereg_mr, or the end of a queue pair that the application asked for, has returned nothing is
 * touched through it. Where a queue pair fails by itself nobody waits: what its peer had begun
 * still comes. How the memory is reached is the link's matter; the protocol is direct_turn.h. */
#ifndef WEIR_TRANSPORT_DIRECT_H
#define WEIR_TRANSPORT_DIRECT_H

#include <stdbool.h>

#include "rnic/transport/direct_table.h"
#include "rnic/transport/step.h"

struct environment;
struct qp;
struct send_slot;

/* Of a host. */
struct direct_link {
    const struct direct_table *table; /* what we show; NULL: nothing */
    uint32_t part_bytes;              /* of a message at most at once, not 0 */
    uint32_t qpns_each; /* queue pairs of one process have numbers that differ below this only */
    struct direct_common common; /* what is shown of a region at first */
    /* Moves the parts, at most DIRECT_BATCH, in order, as far as they are for one process, it
     * grants them and they can be moved. Returns how many were moved whole; of the next a part may
     * have been. */
    uint32_t (*access)(struct direct_link *link, const struct direct_access *accesses,
                       uint32_t count);
    /* Whether nobody is at what was hidden before the call; `peer` not 0: not that queue pair's
     * process. `waits`: any thread, without the engine's lock; false only after seconds. */
    bool (*settle)(struct direct_link *link, struct qpn peer, bool waits);
    /* A region is about to be shown. False: it is not to be; NULL: everything may be. */
    bool (*lets_show)(struct direct_link *link, struct memory_key key, const uint8_t *bytes,
                      uint64_t length);
    /* A queue pair has learned who its peer is, which may do so much (`rights`) to what is shown:
     * whatever the two of them need is made ready before anything waits for it, which may take a
     * millisecond once. Not without a table. NULL: nothing. */
    void (*connect)(struct direct_link *link, const struct path *path, struct qpn peer,
                    unsigned rights);
    /* The region of a key that is hidden, and settled: whatever the link has done so that others
     * reach its memory more easily is undone. NULL: nothing. */
    void (*withdraw)(struct direct_link *link, struct memory_key key);
    bool stores; /* the latest access cost no system call, so several at once gain nothing */
};

/* Once, where the environment has a link. */
void direct_init(struct environment *environment);
/* Nobody finds the key from now on; it ends otherwise than by memory_deregister's own doing only
 * where somebody must be waited for first. */
void direct_hide_key(struct environment *environment, struct memory_key key);
/* Nobody is at it any more; see struct direct_link. */
void direct_withdraw_key(struct environment *environment, struct memory_key key);
/* Shows or hides the queue pair, as its state and attributes are now. */
void direct_refresh(struct qp *qp);
/* The queue pair has come to RTR. */
void direct_connect(struct qp *qp);
/* Nobody finds it from now on, whatever happens to it, until it is let go of. */
void direct_hold(struct qp *qp);
/* `settled`: nobody has been at it since it was hidden. */
void direct_let_go(struct qp *qp, bool settled);
/* Does the request at the cursor and some that follow it, of this queue pair and of those that have
 * their turns next, or the next part of it. IDLE: it goes by packets, or must wait. */
enum step direct_transmit(struct qp *qp);
/* Does what has just been posted, where that is one request of one piece, nothing else of the queue
 * pair waits, nobody is in line, and the latest access cost no system call: the whole of the turn
 * that it would have, without what else may be done in one. False: it is to have one. */
bool direct_transmit_alone(struct qp *qp);
/* Whether both have their peers in one process, as far as numbers and addresses tell. */
bool direct_is_for_same(const struct qp *one, const struct qp *other);
/* How many requests of the queue pair may wait for more of their kind, because they will be done
 * directly by one call for many, as far as is known: where nothing is outstanding, the one before
 * them was done so, and the one posted last is short. 0: none. By who has just posted it. */
uint32_t direct_may_wait(const struct qp *qp);
/* Nothing is left of what was posted. */
bool direct_has_done_all(const struct qp *qp);
/* The request at the cursor, which stands behind what is outstanding, gains by waiting for that
 * instead of going by packets. */
bool direct_is_worth_waiting(struct qp *qp, const struct send_slot *slot);

#endif
