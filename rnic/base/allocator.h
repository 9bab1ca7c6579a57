/* Where objects get their memory: only in calls that create or destroy something, never while
 * packets flow. Injected, so the simulator can count, poison and refuse. */
#ifndef WEIR_BASE_ALLOCATOR_H
#define WEIR_BASE_ALLOCATOR_H

#include <stddef.h>

struct allocator {
    /* Zeroed memory, or NULL; aligned to 64 bytes where its size is a multiple of that, as every
     * type's is that needs it, else to 16. */
    void *(*allocate)(struct allocator *allocator, size_t size);
    /* NULL is allowed. */
    void (*release)(struct allocator *allocator, void *memory);
};

#endif
