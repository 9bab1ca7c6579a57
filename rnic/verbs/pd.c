/* Protection domains, and thread domains, which ask for nothing here. */
#include <errno.h>
#include <stdlib.h>

#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/objects.h"

PUBLIC struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct engine *engine = context_engine(context);
    struct soft_pd *pd = calloc(1, sizeof *pd);
    if (pd == NULL) {
        return NULL;
    }
    engine_lock(engine);
    enum status status = memory_allocate_domain(device_memory(engine->device), &pd->domain);
    engine_unlock(engine);
    if (status != STATUS_OK) {
        free(pd);
        return errno_null(status);
    }
    pd->ibv.context = context;
    pd->ibv.handle = pd->domain.value;
    context_hold(context);
    return &pd->ibv;
}

PUBLIC int ibv_dealloc_pd(struct ibv_pd *ibv)
{
    struct soft_pd *pd = soft_pd(ibv);
    struct engine *engine = context_engine(ibv->context);
    struct memory *memory;
    enum status status = STATUS_OK;
    engine_lock(engine);
    memory = device_memory(engine->device);
    if (pd->base != NULL) {
        memory_domain_use(memory, pd->domain, -1);
    } else {
        status = memory_free_domain(memory, pd->domain);
    }
    engine_unlock(engine);
    if (status == STATUS_OK) {
        context_drop(ibv->context);
        free(pd);
    }
    return errno_of(status);
}

/* Its allocators are not called: nothing that an application could place is shared with it. */
struct ibv_pd *pd_allocate_parent(struct ibv_context *context,
                                  struct ibv_parent_domain_init_attr *attributes)
{
    const uint32_t known =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if (attributes->pd == NULL || (attributes->comp_mask & ~known) != 0) {
        errno = EINVAL;
        return NULL;
    }
    struct engine *engine = context_engine(context);
    struct soft_pd *pd = calloc(1, sizeof *pd);
    if (pd == NULL) {
        return NULL;
    }
    pd->ibv = *attributes->pd;
    pd->base = soft_pd(attributes->pd);
    pd->domain = pd->base->domain;
    engine_lock(engine);
    memory_domain_use(device_memory(engine->device), pd->domain, 1);
    engine_unlock(engine);
    context_hold(context);
    return &pd->ibv;
}

struct ibv_td *pd_allocate_thread_domain(struct ibv_context *context,
                                         struct ibv_td_init_attr *attributes)
{
    if (attributes->comp_mask != 0) {
        errno = EINVAL;
        return NULL;
    }
    struct ibv_td *td = calloc(1, sizeof *td);
    if (td != NULL) {
        td->context = context;
    }
    return td;
}

int pd_free_thread_domain(struct ibv_td *td)
{
    free(td);
    return 0;
}
