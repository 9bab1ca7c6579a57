/* The free items are a chain through their own first bytes. */
#include "rnic/base/pool.h"

#include <stddef.h>

#define ALIGNMENT 8u

enum status pool_init(struct pool *pool, struct allocator *allocator, uint32_t size,
                      uint32_t capacity)
{
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (capacity == 0 || size == 0) {
        return STATUS_INVALID;
    }
    uint8_t *items = allocator->allocate(allocator, (size_t)size * capacity);
    if (items == NULL) {
        return STATUS_NO_MEMORY;
    }
    *pool =
        (struct pool){.allocator = allocator, .items = items, .size = size, .capacity = capacity};
    return STATUS_OK;
}

void pool_fini(struct pool *pool)
{
    if (pool->items != NULL) {
        pool->allocator->release(pool->allocator, pool->items);
    }
    *pool = (struct pool){0};
}

void *pool_take(struct pool *pool)
{
    void *item = pool->first_free;
    if (item != NULL) {
        pool->first_free = *(void **)item;
        return item;
    }
    return pool->touched < pool->capacity ? pool->items + (size_t)pool->touched++ * pool->size
                                          : NULL;
}

void pool_give(struct pool *pool, void *item)
{
    *(void **)item = pool->first_free;
    pool->first_free = item;
}
