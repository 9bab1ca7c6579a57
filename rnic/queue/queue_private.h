/* What the three rings share: the size of a cache line and the rule for storage. Only the queue
 * folder includes this.
 *
 * Every ring has one producer and one consumer, each with a position that counts up and never
 * wraps (2^64 requests are never posted). The one that writes a position reads it relaxed; the
 * other side reads it with acquire, which pairs with the writer's release, so that what a slot
 * holds is seen before the slot is. */
#ifndef WEIR_QUEUE_QUEUE_PRIVATE_H
#define WEIR_QUEUE_QUEUE_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

#define CACHE_LINE 64u

/* Slots of storage for `capacity`: a power of two, so that a position becomes an index by masking.
 * At least one, so that the mask always names a slot. */
static inline uint32_t queue_storage(uint32_t capacity)
{
    uint32_t storage = 1;
    while (storage < capacity) {
        storage *= 2;
    }
    return storage;
}

static inline size_t queue_round_to_line(size_t size)
{
    return (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

#endif
