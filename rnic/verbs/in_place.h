/* Requests that are built where they are to lie, in the send queue: what programs post most, SENDs,
 * WRITEs and READs of RC. All others, and all in strict mode, are a struct send_request first. */
#ifndef WEIR_VERBS_IN_PLACE_H
#define WEIR_VERBS_IN_PLACE_H

#include "rnic/queue/send_queue.h"
#include "rnic/verbs/objects.h"

/* The slot for a request, `ahead` places behind those posted, of no bytes yet. `flags` are those of
 * IBV_SEND_*, of which INLINE is not looked at. NULL: it is not built so. Under the send lock. */
struct send_slot *in_place_open(struct soft_qp *qp, uint32_t ahead, enum work_kind kind,
                                uint64_t id, unsigned flags);
/* What it sends or fills. 0, or EINVAL: more than the queue pair has room for. */
int in_place_sge(const struct soft_qp *qp, struct send_slot *slot, const struct sge *sge);
int in_place_sges(const struct soft_qp *qp, struct send_slot *slot, const struct ibv_sge *list,
                  size_t count);
/* Bytes behind those that it has, copied now; likewise. */
int in_place_append(const struct soft_qp *qp, struct send_slot *slot, const void *bytes,
                    size_t length);

#endif
