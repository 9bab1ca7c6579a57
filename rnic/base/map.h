/* From a 32-bit name (QPN, key index, communication id) to the object: looked up per packet.
 *
 * The capacity is given at init and memory is taken only there. Open addressing; the slots are at
 * least twice the capacity, so a search ends soon. The map owns no value. */
#ifndef WEIR_BASE_MAP_H
#define WEIR_BASE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"

struct map_slot {
    uint32_t key;
    void *value; /* NULL: the slot is free */
};

struct map {
    struct allocator *allocator;
    struct map_slot *slots;
    uint32_t mask; /* number of slots - 1 */
    uint32_t shift;
    uint32_t capacity;
    uint32_t count;
};

/* NO_MEMORY, or INVALID for a capacity of 0 or above 2^30. */
enum status map_init(struct map *map, struct allocator *allocator, uint32_t capacity) MUST_USE;
/* A zeroed map is allowed. */
void map_fini(struct map *map);

/* NULL if there is none. */
void *map_find(const struct map *map, uint32_t key);

/* `value` is not NULL. IN_USE if the key is taken, FULL at capacity. */
enum status map_insert(struct map *map, uint32_t key, void *value) MUST_USE;

/* The value that was there, or NULL. */
void *map_remove(struct map *map, uint32_t key);

/* Walks over all entries, in no order worth knowing but the same for the same history:
 * start with *cursor = 0; false at the end. The map must not change on the way. */
bool map_next(const struct map *map, uint32_t *cursor, uint32_t *ret_key, void **ret_value);

#endif
