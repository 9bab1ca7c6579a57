/* Parent domains: a protection domain once more, with a thread domain and with the application's
 * own allocator for the memory of its queues.
 *
 * The application is called without any lock of ours held, for it may do what it likes there: what
 * is released under the engine's lock waits in `released` for the next pd_collect. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic/base/heap.h"
#include "rnic/verbs/objects.h"

#define ALIGNMENT     64u /* of the core's allocators */
#define RESOURCE_TYPE 0u  /* of no known driver, and of one kind only: a queue */

/* A piece of memory that the application gave. */
struct block {
    struct list_node node;
    void *memory;
};

struct pd_allocator {
    struct allocator core;
    struct ibv_pd *pd;
    void *(*allocate)(struct ibv_pd *, void *, size_t, size_t, uint64_t);
    void (*release)(struct ibv_pd *, void *, void *, uint64_t);
    void *context;
    pthread_mutex_t mutex;
    struct list used, released; /* struct block, under mutex */
};

static void *ask_application(struct allocator *core, size_t size)
{
    struct pd_allocator *allocator = CONTAINER_OF(core, struct pd_allocator, core);
    void *memory = allocator->allocate(allocator->pd, allocator->context, size, ALIGNMENT,
                                       (uint64_t)RESOURCE_TYPE);
    if (memory == IBV_ALLOCATOR_USE_DEFAULT) {
        return heap_allocator()->allocate(heap_allocator(), size);
    }
    if (memory == NULL) {
        return NULL;
    }
    struct block *block = calloc(1, sizeof *block);
    if (block == NULL || (uintptr_t)memory % ALIGNMENT != 0) {
        free(block);
        allocator->release(allocator->pd, allocator->context, memory, RESOURCE_TYPE);
        return NULL;
    }
    memset(memory, 0, size);
    block->memory = memory;
    pthread_mutex_lock(&allocator->mutex);
    list_append(&allocator->used, &block->node);
    pthread_mutex_unlock(&allocator->mutex);
    return memory;
}

static struct block *find_used(struct pd_allocator *allocator, const void *memory)
{
    LIST_FOR_EACH(node, &allocator->used)
    {
        struct block *block = CONTAINER_OF(node, struct block, node);
        if (block->memory == memory) {
            return block;
        }
    }
    return NULL;
}

static void release_later(struct allocator *core, void *memory)
{
    struct pd_allocator *allocator = CONTAINER_OF(core, struct pd_allocator, core);
    pthread_mutex_lock(&allocator->mutex);
    struct block *block = find_used(allocator, memory);
    if (block != NULL) {
        list_remove(&block->node);
        list_append(&allocator->released, &block->node);
    }
    pthread_mutex_unlock(&allocator->mutex);
    if (block == NULL) {
        heap_allocator()->release(heap_allocator(), memory);
    }
}

struct allocator *pd_allocator(struct ibv_pd *pd)
{
    return pd == NULL || soft_pd(pd)->allocator == NULL ? heap_allocator()
                                                        : &soft_pd(pd)->allocator->core;
}

void pd_collect(struct ibv_pd *pd)
{
    struct pd_allocator *allocator = pd == NULL ? NULL : soft_pd(pd)->allocator;
    while (allocator != NULL) {
        pthread_mutex_lock(&allocator->mutex);
        struct list_node *node = list_pop_first(&allocator->released);
        pthread_mutex_unlock(&allocator->mutex);
        if (node == NULL) {
            return;
        }
        struct block *block = CONTAINER_OF(node, struct block, node);
        allocator->release(allocator->pd, allocator->context, block->memory, RESOURCE_TYPE);
        free(block);
    }
}

void pd_hold(struct ibv_pd *pd)
{
    if (pd != NULL) {
        atomic_fetch_add(&soft_pd(pd)->users, 1);
    }
}

void pd_drop(struct ibv_pd *pd)
{
    if (pd != NULL) {
        bool is_imported = soft_pd(pd)->is_imported;
        pd_collect(pd);
        if (atomic_fetch_sub(&soft_pd(pd)->users, 1) == 1 && is_imported) {
            free(pd);
        }
    }
}

static bool has(const struct ibv_parent_domain_init_attr *attributes, uint32_t bit)
{
    return (attributes->comp_mask & bit) != 0;
}

static struct pd_allocator *make_allocator(struct ibv_pd *pd,
                                           const struct ibv_parent_domain_init_attr *attributes)
{
    struct pd_allocator *allocator = calloc(1, sizeof *allocator);
    if (allocator != NULL) {
        allocator->core = (struct allocator){.allocate = ask_application, .release = release_later};
        allocator->pd = pd;
        allocator->allocate = attributes->alloc;
        allocator->release = attributes->free;
        allocator->context =
            has(attributes, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) ? attributes->pd_context : NULL;
        pthread_mutex_init(&allocator->mutex, NULL);
        list_init(&allocator->used);
        list_init(&allocator->released);
    }
    return allocator;
}

static int check(const struct ibv_context *context,
                 const struct ibv_parent_domain_init_attr *attributes)
{
    const uint32_t known =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    bool has_allocator = has(attributes, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS);
    if (attributes->pd == NULL || attributes->pd->context != context ||
        (attributes->td != NULL && attributes->td->context != context) ||
        (has_allocator && (attributes->alloc == NULL || attributes->free == NULL))) {
        return EINVAL;
    }
    return (attributes->comp_mask & ~known) != 0 ? EINVAL : 0;
}

struct ibv_pd *pd_allocate_parent(struct ibv_context *context,
                                  struct ibv_parent_domain_init_attr *attributes)
{
    int error = check(context, attributes);
    if (error != 0) {
        errno = error;
        return NULL;
    }
    struct soft_pd *pd = calloc(1, sizeof *pd);
    if (pd == NULL) {
        return NULL;
    }
    if (has(attributes, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS)) {
        pd->allocator = make_allocator(&pd->ibv, attributes);
        if (pd->allocator == NULL) {
            free(pd);
            return NULL;
        }
    }
    if (!pd_use_domain(attributes->pd)) {
        free(pd->allocator);
        free(pd);
        return NULL;
    }
    pd->ibv = *attributes->pd;
    pd->base = soft_pd(attributes->pd);
    pd->domain = pd->base->domain;
    pd->td = (struct soft_td *)attributes->td;
    if (pd->td != NULL) {
        atomic_fetch_add(&pd->td->users, 1);
    }
    pd_hold(attributes->pd);
    context_hold(context);
    return &pd->ibv;
}

int pd_free_parent(struct soft_pd *pd)
{
    struct ibv_context *context = pd->ibv.context;
    if (atomic_load(&pd->users) != 0) {
        return EBUSY;
    }
    pd_leave_domain(&pd->base->ibv);
    pd_drop(&pd->base->ibv);
    if (pd->td != NULL) {
        atomic_fetch_sub(&pd->td->users, 1);
    }
    if (pd->allocator != NULL) {
        pthread_mutex_destroy(&pd->allocator->mutex);
        free(pd->allocator);
    }
    context_drop(context);
    free(pd);
    return 0;
}

/* A thread domain promises that one thread uses what is made in it; our locks cost nothing then. */
struct ibv_td *pd_allocate_thread_domain(struct ibv_context *context,
                                         struct ibv_td_init_attr *attributes)
{
    if (attributes->comp_mask != 0) {
        errno = EINVAL;
        return NULL;
    }
    struct soft_td *td = calloc(1, sizeof *td);
    if (td == NULL) {
        return NULL;
    }
    td->ibv.context = context;
    return &td->ibv;
}

int pd_free_thread_domain(struct ibv_td *ibv)
{
    struct soft_td *td = (struct soft_td *)ibv;
    if (atomic_load(&td->users) != 0) {
        return EBUSY;
    }
    free(td);
    return 0;
}
