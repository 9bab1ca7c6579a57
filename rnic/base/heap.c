/* Where blocks begin tells how they were made. Small ones come from malloc as they are, so that
 * nothing stands between them but malloc's own word. Large ones come from calloc, which gives
 * untouched pages, so that a table sized for the worst case costs nothing until it is used; they
 * begin 64 bytes behind a page, where a small one never does, and calloc's block is named before
 * that. */
#include "rnic/base/heap.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SMALL_MAX ((size_t)16384)
#define PAGE      ((size_t)4096)
#define GRID      ((size_t)128)
#define ALIGNMENT ((size_t)64)

struct held {
    struct held *next;
};

static bool begins_as_large(const void *memory)
{
    return (uintptr_t)memory % PAGE == ALIGNMENT;
}

static void *take_small(size_t size)
{
    void *block = NULL;
    if (size % ALIGNMENT != 0) {
        return malloc(size < sizeof(struct held) ? sizeof(struct held) : size);
    }
    /* As much as fills a grid with malloc's word: what is left between two blocks is nobody's. */
    size_t whole = (size + sizeof block + GRID - 1) / GRID * GRID - sizeof block;
    return posix_memalign(&block, GRID, whole) == 0 ? block : NULL;
}

static void *allocate_small(size_t size)
{
    struct held *held = NULL; /* what begins in the wrong place, until something else is found */
    void *block = take_small(size);
    while (block != NULL && begins_as_large(block)) {
        struct held *wrong = block;
        wrong->next = held;
        held = wrong;
        block = take_small(size);
    }
    while (held != NULL) {
        struct held *next = held->next;
        free(held);
        held = next;
    }
    return block == NULL ? NULL : memset(block, 0, size);
}

static void *allocate_large(size_t size)
{
    void *block = calloc(1, size + PAGE + ALIGNMENT);
    if (block == NULL) {
        return NULL;
    }
    uintptr_t least = (uintptr_t)block + sizeof block;
    uintptr_t start = (least - ALIGNMENT + PAGE - 1) / PAGE * PAGE + ALIGNMENT;
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
        free(begins_as_large(memory) ? ((void **)memory)[-1] : memory);
    }
}

struct allocator *heap_allocator(void)
{
    static struct allocator heap = {.allocate = heap_allocate, .release = heap_release};
    return &heap;
}
