/* malloc as an allocator. */
#include "rnic/base/heap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT ((size_t)64)

static void *heap_allocate(struct allocator *allocator, size_t size)
{
    if (size > SIZE_MAX - ALIGNMENT) {
        return NULL;
    }
    /* aligned_alloc wants a multiple of the alignment. */
    size_t rounded = (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    void *memory = aligned_alloc(ALIGNMENT, rounded == 0 ? ALIGNMENT : rounded);
    if (memory != NULL) {
        memset(memory, 0, size);
    }
    return memory;
}

static void heap_release(struct allocator *allocator, void *memory)
{
    free(memory);
}

struct allocator *heap_allocator(void)
{
    static struct allocator allocator = {heap_allocate, heap_release};
    return &allocator;
}
