/* The ibv_wr_* way of posting: calls between wr_start and wr_complete gather a batch, wr_complete
 * posts it, wr_abort forgets it.
 *
 * What in_place.h can do is built where it is to lie. Of the rest, and of all that comes behind it,
 * a batch owns copies of what its setters name; it grows as needed and keeps its memory for the
 * next one. The queue pair's send lock is held from start to complete or abort, whichever
 * threads these are. */
#ifndef WEIR_VERBS_WR_H
#define WEIR_VERBS_WR_H

#include <infiniband/verbs.h>
#include <stdint.h>

struct lock_holder;
struct sge;
struct send_slot;
struct wr_entry;

struct wr_batch {
    struct lock_holder *taker; /* of the send lock */
    struct send_slot *slot;    /* of the current request, if it is built in its place */
    uint32_t slot_count;       /* such requests; `entries` come behind them */
    struct wr_entry *entries;
    struct sge *sges; /* of all entries, in order */
    uint8_t *inline_bytes;
    uint32_t entry_count, entry_room;
    uint32_t sge_count, sge_room;
    uint32_t inline_length, inline_room;
    int error; /* the first one; reported by wr_complete */
};

/* Fills the pointers of a queue pair created with SEND_OPS_FLAGS. */
void wr_fill(struct ibv_qp_ex *qp);
void wr_batch_free(struct wr_batch *batch);

#endif
