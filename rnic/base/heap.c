/* Small blocks come from calloc, aligned by hand. Large ones come from mmap, untouched: a table
 * sized for the worst case costs nothing until it is used, whatever malloc is made to do in tests.
 */
#include "rnic/base/heap.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGNMENT       ((size_t)64)
#define MAPPED_AT_LEAST ((size_t)1 << 20)

/* Stands before what is handed out. */
struct heap_header {
    void *block;
    size_t mapped; /* length of the mapping; 0: from calloc */
};

static void *heap_allocate(struct allocator *allocator, size_t size)
{
    if (size > SIZE_MAX / 2) {
        return NULL;
    }
    size_t whole = size + ALIGNMENT + sizeof(struct heap_header);
    struct heap_header header = {.mapped = size >= MAPPED_AT_LEAST ? whole : 0};
    if (header.mapped != 0) {
        header.block =
            mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        header.block = header.block != MAP_FAILED ? header.block : NULL;
    } else {
        header.block = calloc(1, whole);
    }
    if (header.block == NULL) {
        return NULL;
    }
    uintptr_t start = (uintptr_t)header.block + sizeof header;
    uintptr_t aligned = (start + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1);
    ((struct heap_header *)aligned)[-1] = header;
    return (void *)aligned;
}

static void heap_release(struct allocator *allocator, void *memory)
{
    if (memory == NULL) {
        return;
    }
    struct heap_header header = ((struct heap_header *)memory)[-1];
    if (header.mapped != 0) {
        munmap(header.block, header.mapped);
    } else {
        free(header.block);
    }
}

struct allocator *heap_allocator(void)
{
    static struct allocator heap = {.allocate = heap_allocate, .release = heap_release};
    return &heap;
}
