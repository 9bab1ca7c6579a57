/* Chains 0 .. used - 1. A hash belongs to the one that its bits under `mask` name, or, while that
 * is not used yet, to the one that they name without their top bit. */
#include "rnic/base/hash.h"

#include <stddef.h>

#include "rnic/base/check.h"

#define CAPACITY_MAX (UINT32_C(1) << 30)

enum status hash_init(struct hash *hash, struct allocator *allocator, uint32_t capacity)
{
    if (capacity == 0 || capacity > CAPACITY_MAX) {
        return STATUS_INVALID;
    }
    struct hash_node **chains = allocator->allocate(allocator, capacity * sizeof *chains);
    if (chains == NULL) {
        return STATUS_NO_MEMORY;
    }
    *hash = (struct hash){
        .allocator = allocator, .chains = chains, .capacity = capacity, .used = 1, .mask = 0};
    return STATUS_OK;
}

void hash_fini(struct hash *hash)
{
    if (hash->chains != NULL) {
        hash->allocator->release(hash->allocator, hash->chains);
    }
    *hash = (struct hash){0};
}

static struct hash_node **chain_of(const struct hash *hash, uint32_t value)
{
    uint32_t index = value & hash->mask;
    return &hash->chains[index < hash->used ? index : value & hash->mask >> 1];
}

/* One more chain: it takes its nodes out of the one that they have been in. */
static void grow(struct hash *hash)
{
    uint32_t added = hash->used;
    if (added > hash->mask) {
        hash->mask = 2 * hash->mask + 1;
    }
    struct hash_node **from = &hash->chains[added & hash->mask >> 1];
    struct hash_node **to = &hash->chains[added];
    hash->used++;
    while (*from != NULL) {
        struct hash_node *node = *from;
        if ((node->hash & hash->mask) == added) {
            *from = node->next;
            node->next = *to;
            *to = node;
        } else {
            from = &node->next;
        }
    }
}

void hash_insert(struct hash *hash, struct hash_node *node)
{
    hash->count++;
    if (hash->count > hash->used && hash->used < hash->capacity) {
        grow(hash);
    }
    struct hash_node **chain = chain_of(hash, node->hash);
    node->next = *chain;
    *chain = node;
}

void hash_remove(struct hash *hash, struct hash_node *node)
{
    struct hash_node **link = chain_of(hash, node->hash);
    while (*link != node) {
        CHECK(*link != NULL);
        link = &(*link)->next;
    }
    *link = node->next;
    node->next = NULL;
    hash->count--;
}

static struct hash_node *first_from(struct hash_node *node, uint32_t value)
{
    while (node != NULL && node->hash != value) {
        node = node->next;
    }
    return node;
}

struct hash_node *hash_find(const struct hash *hash, uint32_t value)
{
    return first_from(*chain_of(hash, value), value);
}

struct hash_node *hash_find_next(const struct hash_node *node)
{
    return first_from(node->next, node->hash);
}
