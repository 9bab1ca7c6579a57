/* Linear probing with deletion by shifting back, so that no tombstones gather. */
#include "rnic/base/map.h"

#include <stddef.h>

#include "rnic/base/check.h"

#define CAPACITY_MAX (UINT32_C(1) << 30)

enum status map_init(struct map *map, struct allocator *allocator, uint32_t capacity)
{
    if (capacity == 0 || capacity > CAPACITY_MAX) {
        return STATUS_INVALID;
    }
    uint32_t bits = 1;
    while ((UINT64_C(1) << bits) < (uint64_t)capacity * 2) {
        bits++;
    }
    size_t slot_count = (size_t)1 << bits;
    struct map_slot *slots = allocator->allocate(allocator, slot_count * sizeof *slots);
    if (slots == NULL) {
        return STATUS_NO_MEMORY;
    }
    *map = (struct map){
        .allocator = allocator,
        .slots = slots,
        .mask = (uint32_t)(slot_count - 1),
        .shift = 32 - bits,
        .capacity = capacity,
    };
    return STATUS_OK;
}

void map_fini(struct map *map)
{
    if (map->slots != NULL) {
        map->allocator->release(map->allocator, map->slots);
    }
    *map = (struct map){0};
}

/* Where the search for a key begins: the upper bits of a product with the golden ratio. */
static uint32_t home_of(const struct map *map, uint32_t key)
{
    return (key * UINT32_C(0x9e3779b1)) >> map->shift;
}

/* The slot of the key, or the free one where it would go. Ends: at least half are free. */
static struct map_slot *probe(const struct map *map, uint32_t key)
{
    uint32_t index = home_of(map, key);
    while (map->slots[index].value != NULL && map->slots[index].key != key) {
        index = (index + 1) & map->mask;
    }
    return &map->slots[index];
}

void *map_find(const struct map *map, uint32_t key)
{
    return probe(map, key)->value;
}

enum status map_insert(struct map *map, uint32_t key, void *value)
{
    CHECK(value != NULL);
    struct map_slot *slot = probe(map, key);
    if (slot->value != NULL) {
        return STATUS_IN_USE;
    }
    if (map->count == map->capacity) {
        return STATUS_FULL;
    }
    *slot = (struct map_slot){key, value};
    map->count++;
    return STATUS_OK;
}

void *map_remove(struct map *map, uint32_t key)
{
    struct map_slot *slot = probe(map, key);
    void *value = slot->value;
    if (value == NULL) {
        return NULL;
    }
    map->count--;

    /* Entries behind the hole move into it unless that would put them before their home. */
    uint32_t hole = (uint32_t)(slot - map->slots);
    uint32_t index = hole;
    for (;;) {
        index = (index + 1) & map->mask;
        if (map->slots[index].value == NULL) {
            break;
        }
        uint32_t from_home = (index - home_of(map, map->slots[index].key)) & map->mask;
        uint32_t from_hole = (index - hole) & map->mask;
        if (from_home >= from_hole) {
            map->slots[hole] = map->slots[index];
            hole = index;
        }
    }
    map->slots[hole] = (struct map_slot){0, NULL};
    return value;
}

bool map_next(const struct map *map, uint32_t *cursor, uint32_t *ret_key, void **ret_value)
{
    if (map->slots == NULL) {
        return false;
    }
    while (*cursor <= map->mask) {
        const struct map_slot *slot = &map->slots[(*cursor)++];
        if (slot->value != NULL) {
            *ret_key = slot->key;
            *ret_value = slot->value;
            return true;
        }
    }
    return false;
}
