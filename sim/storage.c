#include "sim/storage.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/container.h"

#define GUARD_LENGTH 64u
#define GUARD_BYTE   0xa5
#define POISON_BYTE  0xdd
/* Longer blocks are poisoned in full and looked at in part: the run must be fast. */
#define POISON_CHECKED 4096u

struct storage_block {
    struct storage_block *next;
    struct storage_block *previous;
    size_t size;
    bool released;
    _Alignas(64) uint8_t front[GUARD_LENGTH];
    uint8_t bytes[];
};

BUILD_CHECK(offsetof(struct storage_block, bytes) % 64 == 0);

static bool all_bytes(const uint8_t *bytes, size_t length, uint8_t value)
{
    return length == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, length - 1) == 0);
}

static void push(struct storage_block **list, struct storage_block *block)
{
    block->previous = NULL;
    block->next = *list;
    if (*list != NULL) {
        (*list)->previous = block;
    }
    *list = block;
}

static void *storage_allocate(struct allocator *allocator, size_t size)
{
    struct storage *storage = (struct storage *)allocator;
    if (storage->packets_flow) {
        simulator_violate(storage->simulator, "storage", "%zu bytes were taken while packets flow",
                          size);
    }
    if (storage->refuse_after > 0 && --storage->refuse_after == 0) {
        return NULL;
    }
    size_t total = sizeof(struct storage_block) + size + GUARD_LENGTH;
    struct storage_block *block = aligned_alloc(64, (total + 63) / 64 * 64);
    CHECK(block != NULL);
    block->size = size;
    block->released = false;
    memset(block->front, GUARD_BYTE, GUARD_LENGTH);
    memset(block->bytes, 0, size);
    memset(block->bytes + size, GUARD_BYTE, GUARD_LENGTH);
    push(&storage->live, block);
    storage->live_count++;
    storage->live_bytes += size;
    return block->bytes;
}

static void check_guards(struct storage *storage, const struct storage_block *block)
{
    if (!all_bytes(block->front, GUARD_LENGTH, GUARD_BYTE) ||
        !all_bytes(block->bytes + block->size, GUARD_LENGTH, GUARD_BYTE)) {
        simulator_violate(storage->simulator, "storage",
                          "the core wrote beyond a block of %zu bytes", block->size);
    }
}

static void storage_release(struct allocator *allocator, void *memory)
{
    struct storage *storage = (struct storage *)allocator;
    if (memory == NULL) {
        return;
    }
    struct storage_block *block = CONTAINER_OF(memory, struct storage_block, bytes);
    if (block->released) {
        simulator_violate(storage->simulator, "storage", "a block of %zu bytes was released twice",
                          block->size);
        return;
    }
    check_guards(storage, block);
    if (block->previous != NULL) {
        block->previous->next = block->next;
    } else {
        storage->live = block->next;
    }
    if (block->next != NULL) {
        block->next->previous = block->previous;
    }
    storage->live_count--;
    storage->live_bytes -= block->size;
    block->released = true;
    memset(block->bytes, POISON_BYTE, block->size);
    push(&storage->released, block);
}

void storage_init(struct storage *storage, struct simulator *simulator)
{
    *storage = (struct storage){
        .allocator = {.allocate = storage_allocate, .release = storage_release},
        .simulator = simulator,
    };
}

void storage_check(struct storage *storage)
{
    for (const struct storage_block *block = storage->live; block != NULL; block = block->next) {
        check_guards(storage, block);
    }
    for (const struct storage_block *block = storage->released; block != NULL;
         block = block->next) {
        check_guards(storage, block);
        size_t length = block->size < POISON_CHECKED ? block->size : POISON_CHECKED;
        if (!all_bytes(block->bytes, length, POISON_BYTE)) {
            simulator_violate(storage->simulator, "storage",
                              "the core wrote to a released block of %zu bytes", block->size);
        }
    }
}

static void free_all(struct storage_block **list)
{
    while (*list != NULL) {
        struct storage_block *block = *list;
        *list = block->next;
        free(block);
    }
}

void storage_forget(struct storage *storage)
{
    free_all(&storage->live);
    free_all(&storage->released);
    storage->live_count = 0;
    storage->live_bytes = 0;
}
