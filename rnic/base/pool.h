/* Items of one size, out of a table as long as there may ever be of them. Its memory is not touched
 * before it is used, and what was given back last is taken first: so a pool costs what was needed
 * at once at most, and nothing is allocated while packets flow. */
#ifndef WEIR_BASE_POOL_H
#define WEIR_BASE_POOL_H

#include <stdint.h>

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"

struct pool {
    struct allocator *allocator;
    uint8_t *items;
    void *first_free;
    uint32_t size; /* bytes of an item, rounded up */
    uint32_t capacity;
    uint32_t touched; /* those beyond were never used */
};

/* `size` bytes each, aligned to 8. NO_MEMORY, or INVALID for a capacity of 0. */
enum status pool_init(struct pool *pool, struct allocator *allocator, uint32_t size,
                      uint32_t capacity) MUST_USE;
/* A zeroed pool is allowed. */
void pool_fini(struct pool *pool);

/* Its bytes are anything. NULL: all are taken. */
void *pool_take(struct pool *pool);
void pool_give(struct pool *pool, void *item);

#endif
