/* WRITEs and READs on the memory of another host's device, see rnic/transport/direct.h: as between
 * processes of one host, where the link between the two says so. Between the steps of a turn the
 * owner may do what it likes, and one that it grants may still fail, in the middle of what it
 * moves.
 */
#ifndef WEIR_SIM_DIRECT_H
#define WEIR_SIM_DIRECT_H

#include "rnic/transport/direct.h"
#include "rnic/transport/direct_turn.h"
#include "sim/network.h"

#define DIRECT_ENTRIES 64u /* of each kind; a host may have more keys */

struct host;

/* What one who touches has come to. */
enum direct_step {
    DIRECT_STEP_ANNOUNCED,
    DIRECT_STEP_LOOKED, /* outside of the call that moves, as before */
    DIRECT_STEP_MOVING, /* a part of it has moved; not for another's memory only */
    DIRECT_STEP_STORED, /* likewise, without a call: who stops here looks again */
};

/* What has been seen of a host, in one of its lives. */
struct direct_memory {
    uint32_t life;
    struct direct_seen seen;
};

struct direct_end {
    struct direct_link link; /* first */
    struct host *host;
    struct direct_table table; /* what we show, and who is at it */
    struct direct_entry qps[DIRECT_ENTRIES], keys[DIRECT_ENTRIES];
    struct direct_guard guard;
    struct direct_announcement announcements[HOST_MAX]; /* by host */
    _Atomic uint32_t end;
    struct direct_mover mover; /* of what we touch: */
    struct direct_memory memories[HOST_MAX];
    struct host *peer;
    const struct direct_access *access;
    bool stores;                   /* it needs no call, for that memory is common */
    uint64_t moved, broken, stale; /* parts of messages; those that stopped in the middle, or had to
                                    * look again */
    uint64_t batches;              /* of more than one */
};

/* A host begins a life: it shows nothing. */
void direct_end_start(struct direct_end *end, struct host *host);
/* It is over. */
void direct_end_stop(struct direct_end *end);

#endif
