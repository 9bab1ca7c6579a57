/* Shared receive queues of tag matching: the core's matcher in the words of libibverbs.
 *
 * Operations are done at once, so none is ever outstanding and max_ops is not looked at. */
#include <errno.h>

#include "rnic/base/heap.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"

struct ibv_srq *srq_create_matching(struct ibv_srq_init_attr_ex *attributes)
{
    const uint32_t needed =
        IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    if (!limits_offer(ABILITY_TAG_MATCHING)) {
        return NULL;
    }
    if (attributes->comp_mask != needed || attributes->pd == NULL || attributes->cq == NULL ||
        attributes->tm_cap.max_num_tags == 0 ||
        !limits_allow(attributes->tm_cap.max_num_tags, limits_now()->max_tags, "max_num_tags") ||
        attributes->tm_cap.max_ops > TAGS_OFFERED) {
        return errno_null(STATUS_INVALID);
    }
    struct soft_srq *srq = srq_make(attributes->pd, &attributes->attr, attributes->srq_context);
    if (srq == NULL) {
        return NULL;
    }
    const struct tag_config config = {
        .allocator = heap_allocator(),
        .max_tags = attributes->tm_cap.max_num_tags,
        .max_sge = limits_now()->max_tag_sge,
        .completions = soft_cq(attributes->cq)->queue,
    };
    engine_lock(srq->engine);
    enum status status = tag_matcher_create(&config, &srq->matcher);
    srq->cq = attributes->cq;
    engine_unlock(srq->engine);
    if (status != STATUS_OK) {
        ibv_destroy_srq(&srq->ibv);
        return errno_null(status);
    }
    return &srq->ibv;
}

static int add(struct soft_srq *srq, const struct tag_operation *operation, struct ibv_ops_wr *wr)
{
    struct sge sges[TAG_SGES_OFFERED];
    if (wr->tm.add.num_sge < 0 ||
        !limits_allow((uint32_t)wr->tm.add.num_sge, limits_now()->max_tag_sge, "tm_caps.max_sge")) {
        return EINVAL;
    }
    convert_sges(wr->tm.add.sg_list, (size_t)wr->tm.add.num_sge, sges);
    const struct tag_buffer buffer = {
        .id = wr->tm.add.recv_wr_id,
        .tag = wr->tm.add.tag,
        .mask = wr->tm.add.mask,
        .sges = sges,
        .sge_count = (uint32_t)wr->tm.add.num_sge,
    };
    return errno_of_post(tag_add(srq->matcher, operation, &buffer, &wr->tm.handle));
}

static int operate(struct soft_srq *srq, struct ibv_ops_wr *wr)
{
    const struct tag_operation operation = {
        .id = wr->wr_id,
        .signaled = (wr->flags & IBV_OPS_SIGNALED) != 0,
        .synchronizes = (wr->flags & IBV_OPS_TM_SYNC) != 0 || wr->opcode == IBV_WR_TAG_SYNC,
        .unexpected = wr->tm.unexpected_cnt,
        .now = engine_now(srq->engine),
    };
    switch (wr->opcode) {
    case IBV_WR_TAG_ADD:
        return add(srq, &operation, wr);
    case IBV_WR_TAG_DEL:
        tag_remove(srq->matcher, &operation, wr->tm.handle);
        return 0;
    case IBV_WR_TAG_SYNC:
        tag_synchronize(srq->matcher, &operation);
        return 0;
    }
    return EINVAL;
}

int srq_operate(struct ibv_srq *ibv, struct ibv_ops_wr *wr, struct ibv_ops_wr **ret_bad)
{
    struct soft_srq *srq = soft_srq(ibv);
    int error = 0;
    engine_lock(srq->engine);
    for (; wr != NULL && error == 0; wr = wr->next) {
        error = srq->matcher == NULL ? EINVAL : operate(srq, wr);
        if (error != 0) {
            *ret_bad = wr;
        }
    }
    engine_unlock(srq->engine);
    return error;
}
