/* For fuzz targets that drive a live object: the input read as a script of steps, and an allocator
 * that counts, so that what leaks is seen. */
#ifndef WEIR_FUZZ_SCRIPT_H
#define WEIR_FUZZ_SCRIPT_H

#include <stdlib.h>
#include <string.h>

#include "rnic/base/allocator.h"
#include "rnic/base/container.h"

struct script {
    const uint8_t *at;
    size_t left;
};

/* All that is read behind the end is 0. */
static inline uint8_t script_u8(struct script *script)
{
    if (script->left == 0) {
        return 0;
    }
    script->left--;
    return *script->at++;
}

static inline uint32_t script_u32(struct script *script)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        value = value << 8 | script_u8(script);
    }
    return value;
}

/* A number below `bound`, which is at most 256. */
static inline uint32_t script_below(struct script *script, uint32_t bound)
{
    return script_u8(script) % bound;
}

struct counting_allocator {
    struct allocator allocator;
    int blocks;
};

static inline void *counting_allocate(struct allocator *allocator, size_t size)
{
    CONTAINER_OF(allocator, struct counting_allocator, allocator)->blocks++;
    size_t rounded = (size + 63) / 64 * 64;
    void *memory = aligned_alloc(64, rounded == 0 ? 64 : rounded);
    return memory == NULL ? NULL : memset(memory, 0, rounded);
}

static inline void counting_release(struct allocator *allocator, void *memory)
{
    if (memory != NULL) {
        CONTAINER_OF(allocator, struct counting_allocator, allocator)->blocks--;
        free(memory);
    }
}

static inline struct counting_allocator counting_allocator(void)
{
    return (struct counting_allocator){{counting_allocate, counting_release}, 0};
}

#endif
