/* Where blocks begin tells how they were made. Small ones come from malloc as they are, at
 * multiples of 128, so that nothing stands between them but malloc's own word. Large ones come from
 * calloc, which gives untouched pages, so that a table sized for the worst case costs nothing until
 * it is used; they begin 64 bytes behind such a multiple, and calloc's block is named before that.
 */
#include "rnic/base/heap.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_MAX ((size_t)16384)
#define GRID      ((size_t)128)
#define ALIGNMENT ((size_t)64)

static void *allocate_small(size_t size)
{
    /* As much as fills the grid with malloc's word: what is left between two blocks is nobody's. */
    void *block = NULL;
    size_t whole = (size + sizeof block + GRID - 1) / GRID * GRID - sizeof block;
    if (posix_memalign(&block, GRID, whole) != 0) {
        return NULL;
    }
    return memset(block, 0, size);
}

static void *allocate_large(size_t size)
{
    void *block = calloc(1, size + GRID + ALIGNMENT);
    if (block == NULL) {
        return NULL;
    }
    uintptr_t grid = ((uintptr_t)block + GRID - 1) & ~(uintptr_t)(GRID - 1);
    uintptr_t start = grid + ALIGNMENT;
    ((void **)start)[-1] = block;
    return (void *)start;
}

static void *heap_allocate(struct allocator *allocator, size_t size)
{
    if (size > SIZE_MAX / 2) {
        return NULL;
    }
    return size <= SMALL_MAX ? allocate_small(size) : allocate_large(size);
}

static void heap_release(struct allocator *allocator, void *memory)
{
    if (memory != NULL) {
        bool is_small = (uintptr_t)memory % GRID == 0;
        free(is_small ? memory : ((void **)memory)[-1]);
    }
}

struct allocator *heap_allocator(void)
{
    static struct allocator heap = {.allocate = heap_allocate, .release = heap_release};
    return &heap;
}
