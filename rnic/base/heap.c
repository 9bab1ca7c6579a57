/* calloc gives large blocks as untouched pages, so that a table sized for the worst case costs
 * nothing until it is used; the alignment is made by hand, with the block's start kept before it.
 */
#include "rnic/base/heap.h"

#include <stdint.h>
#include <stdlib.h>

#define ALIGNMENT ((size_t)64)

static void *heap_allocate(struct allocator *allocator, size_t size)
{
    if (size > SIZE_MAX / 2) {
        return NULL;
    }
    void *block = calloc(1, size + ALIGNMENT + sizeof block);
    if (block == NULL) {
        return NULL;
    }
    uintptr_t start = (uintptr_t)block + sizeof block;
    uintptr_t aligned = (start + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1);
    ((void **)aligned)[-1] = block;
    return (void *)aligned;
}

static void heap_release(struct allocator *allocator, void *memory)
{
    if (memory != NULL) {
        free(((void **)memory)[-1]);
    }
}

struct allocator *heap_allocator(void)
{
    static struct allocator heap = {.allocate = heap_allocate, .release = heap_release};
    return &heap;
}
