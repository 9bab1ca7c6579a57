/* Protection domains. Parent domains are parent_domain.c. */
#include <errno.h>
#include <stdlib.h>

#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/host.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"

PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    HOST_FORWARD(context, ibv_alloc_pd, context);
    struct engine *engine = context_engine(context);
    if (!limits_take(COUNT_PD)) {
        return NULL;
    }
    struct soft_pd *pd = calloc(1, sizeof *pd);
    if (pd == NULL) {
        limits_give(COUNT_PD);
        return NULL;
    }
    engine_lock(engine);
    enum status status = memory_allocate_domain(device_memory(engine->device), &pd->domain);
    engine_unlock(engine);
    if (status != STATUS_OK) {
        limits_give(COUNT_PD);
        free(pd);
        return errno_null(status);
    }
    pd->ibv.context = context;
    pd->ibv.handle = pd->domain.value;
    file_add_pd(soft_context(context)->file, pd);
    context_hold(context);
    return &pd->ibv;
}

bool pd_use_domain(struct ibv_pd *pd)
{
    struct engine *engine = context_engine(pd->context);
    struct memory *memory = device_memory(engine->device);
    engine_lock(engine);
    bool is_alive = memory_domain_is_alive(memory, soft_pd(pd)->domain);
    if (is_alive) {
        memory_domain_use(memory, soft_pd(pd)->domain, 1);
    }
    engine_unlock(engine);
    if (!is_alive) {
        errno = EINVAL;
    }
    return is_alive;
}

void pd_leave_domain(struct ibv_pd *pd)
{
    struct engine *engine = context_engine(pd->context);
    engine_lock(engine);
    memory_domain_use(device_memory(engine->device), soft_pd(pd)->domain, -1);
    engine_unlock(engine);
}

PUBLIC int ibv_dealloc_pd(struct ibv_pd *ibv)
{
    HOST_FORWARD(ibv->context, ibv_dealloc_pd, ibv);
    struct soft_pd *pd = soft_pd(ibv);
    struct engine *engine = context_engine(ibv->context);
    if (pd->base != NULL) {
        return pd_free_parent(pd);
    }
    engine_lock(engine);
    enum status status = memory_free_domain(device_memory(engine->device), pd->domain);
    engine_unlock(engine);
    if (status == STATUS_OK) {
        file_forget_pd(soft_context(ibv->context)->file, pd);
        context_drop(ibv->context);
        limits_give(COUNT_PD);
        free(pd);
    }
    return errno_of(status);
}
