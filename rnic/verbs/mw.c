/* Memory windows. Type 1 is bound by a call that posts the work itself, type 2 by posting
 * (post.c, wr.c). */
#include <errno.h>
#include <stdlib.h>

#include "rnic/memory/window.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"
#include "rnic/verbs/post.h"

struct ibv_mw *mw_allocate(struct ibv_pd *pd, enum ibv_mw_type type)
{
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
        return errno_null(STATUS_INVALID);
    }
    if (!limits_offer(ABILITY_WINDOWS) || !limits_take(COUNT_MW)) {
        return NULL;
    }
    struct soft_mw *mw = calloc(1, sizeof *mw);
    if (mw == NULL) {
        limits_give(COUNT_MW);
        return NULL;
    }
    struct engine *engine = context_engine(pd->context);
    struct memory_key key;
    engine_lock(engine);
    enum status status =
        window_allocate(device_memory(engine->device), soft_pd(pd)->domain,
                        type == IBV_MW_TYPE_1 ? WINDOW_TYPE_1 : WINDOW_TYPE_2, &key);
    engine_unlock(engine);
    if (status != STATUS_OK) {
        limits_give(COUNT_MW);
        free(mw);
        return errno_null(status);
    }
    mw->ibv = (struct ibv_mw){.context = pd->context,
                              .pd = pd,
                              .rkey = key.value,
                              .handle = key.value >> 8,
                              .type = type};
    return &mw->ibv;
}

/* What every provider refuses at once; the rest ends in a completion. 0, or an errno value. */
static int check_bind(struct ibv_mw *mw, const struct ibv_mw_bind_info *info)
{
    const struct soft_mr *mr = (const struct soft_mr *)info->mr;
    if ((info->mw_access_flags & IBV_ACCESS_ZERO_BASED) != 0) {
        return EINVAL;
    }
    return mr != NULL && mr->attributes.domain.value != soft_pd(mw->pd)->domain.value ? EPERM : 0;
}

/* The caller sees the new key at once, before the work is done; it has to look whether the work
 * succeeded, as with every provider. */
int mw_bind(struct ibv_qp *ibv, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
    struct soft_qp *qp = soft_qp(ibv);
    uint32_t key = ibv_inc_rkey(mw->rkey);
    struct window_bind core;
    struct send_request request = {.id = bind->wr_id, .kind = WORK_BIND_WINDOW, .bind = &core};
    int error = check_bind(mw, &bind->bind_info);
    if (error == 0) {
        error = convert_bind(mw, key, &bind->bind_info, &core);
    }
    if (error != 0) {
        return error;
    }
    convert_send_flags(bind->send_flags & ~(unsigned)IBV_SEND_INLINE, &request);
    lock_take(&qp->send_lock, LOCK_OUTER);
    error = post_request(qp, &request);
    if (error == 0) {
        mw->rkey = key;
        post_ring(qp);
    }
    lock_give(&qp->send_lock, LOCK_OUTER);
    return error;
}

int mw_free(struct ibv_mw *mw)
{
    struct engine *engine = context_engine(mw->context);
    engine_lock(engine);
    enum status status = window_free(device_memory(engine->device), (struct memory_key){mw->rkey});
    engine_unlock(engine);
    if (status == STATUS_OK) {
        if (strict_is_on()) {
            strict_window_freed(mw->rkey);
        }
        limits_give(COUNT_MW);
        free(mw);
    }
    return errno_of(status);
}
