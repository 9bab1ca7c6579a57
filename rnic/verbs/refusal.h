/* Strict mode's part of calls that were refused with EINVAL: which argument it was, in words. Only
 * to be called then; without the engine's lock. */
#ifndef WEIR_VERBS_REFUSAL_H
#define WEIR_VERBS_REFUSAL_H

#include <infiniband/verbs.h>

/* EINVAL. */
int refusal_of_modify(struct ibv_qp *ibv, const struct ibv_qp_attr *attributes, int mask);
void refusal_of_ah(struct ibv_context *context, const struct ibv_ah_attr *vector);
void refusal_of_send(struct ibv_qp *ibv, const struct ibv_send_wr *wr);
void refusal_of_receive(struct ibv_qp *ibv, const struct ibv_recv_wr *wr);

#endif
