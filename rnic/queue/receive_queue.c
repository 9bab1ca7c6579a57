/* The receive queue's ring. Memory orders: queue_private.h. One allocation: the queue, then slots
 * of a fixed stride, each a struct receive_slot followed by its SGEs. */
#include "rnic/queue/receive_queue.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/queue/queue_private.h"

struct receive_queue {
    struct allocator *allocator;
    uint32_t capacity;
    uint32_t max_sge;
    uint32_t mask;
    uint32_t stride; /* bytes */
    uint8_t *slots;

    alignas(CACHE_LINE) _Atomic uint64_t tail; /* written by the application */
    uint64_t head_seen;                        /* the application's: head is at least this */

    alignas(CACHE_LINE) _Atomic uint64_t head; /* written by the engine */
    uint32_t limit;                            /* the engine's */
    struct receive_queue_notifier *notifier;
};

BUILD_CHECK(sizeof(struct receive_slot) % alignof(struct sge) == 0);

static struct receive_slot *slot_at(const struct receive_queue *queue, uint64_t position)
{
    return (struct receive_slot *)(queue->slots + (position & queue->mask) * (size_t)queue->stride);
}

static struct sge *sges_of(struct receive_slot *slot)
{
    return (struct sge *)(slot + 1);
}

enum status receive_queue_create(struct allocator *allocator, uint32_t capacity, uint32_t max_sge,
                                 struct receive_queue **ret_queue)
{
    if (capacity > QUEUE_CAPACITY_MAX || max_sge > QUEUE_SGE_MAX) {
        return STATUS_INVALID;
    }
    size_t stride = queue_round_to_line(sizeof(struct receive_slot) + max_sge * sizeof(struct sge));
    uint32_t storage = queue_storage(capacity);
    size_t start = queue_round_to_line(sizeof(struct receive_queue));

    uint8_t *memory = allocator->allocate(allocator, start + storage * stride);
    if (memory == NULL) {
        return STATUS_NO_MEMORY;
    }
    struct receive_queue *queue = (struct receive_queue *)memory;
    queue->allocator = allocator;
    queue->capacity = capacity;
    queue->max_sge = max_sge;
    queue->mask = storage - 1;
    queue->stride = (uint32_t)stride;
    queue->slots = memory + start;
    *ret_queue = queue;
    return STATUS_OK;
}

void receive_queue_destroy(struct receive_queue *queue)
{
    if (queue != NULL) {
        queue->allocator->release(queue->allocator, queue);
    }
}

struct sge *receive_queue_open(struct receive_queue *queue, uint32_t sge_count)
{
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    if (tail - queue->head_seen >= queue->capacity) {
        queue->head_seen = atomic_load_explicit(&queue->head, memory_order_acquire);
        if (tail - queue->head_seen >= queue->capacity) {
            return NULL;
        }
    }
    return sge_count <= queue->max_sge ? sges_of(slot_at(queue, tail)) : NULL;
}

void receive_queue_post_opened(struct receive_queue *queue, uint64_t id, uint32_t sge_count)
{
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    struct receive_slot *slot = slot_at(queue, tail);
    const struct sge *sges = sges_of(slot);
    uint64_t length = 0;
    for (uint32_t i = 0; i < sge_count; i++) {
        length += sges[i].length;
    }
    slot->id = id;
    slot->length = length;
    slot->sge_count = sge_count;
    slot->sges = sges;
    atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
}

enum status receive_queue_post(struct receive_queue *queue, const struct receive_request *request)
{
    if (request->sge_count > queue->max_sge) {
        return STATUS_INVALID;
    }
    struct sge *sges = receive_queue_open(queue, request->sge_count);
    if (sges == NULL) {
        return STATUS_FULL;
    }
    if (request->sge_count > 0) {
        memcpy(sges, request->sges, request->sge_count * sizeof *sges);
    }
    receive_queue_post_opened(queue, request->id, request->sge_count);
    return STATUS_OK;
}

const struct receive_slot *receive_queue_peek(const struct receive_queue *queue)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    if (head == atomic_load_explicit(&queue->tail, memory_order_acquire)) {
        return NULL;
    }
    return slot_at(queue, head);
}

void receive_queue_drop(struct receive_queue *queue)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    atomic_store_explicit(&queue->head, head + 1, memory_order_release);
    if (queue->limit != 0 && receive_queue_depth(queue) < queue->limit) {
        queue->limit = 0;
        queue->notifier->low(queue->notifier, queue);
    }
}

bool receive_queue_take(struct receive_queue *queue, struct receive_slot *ret_slot,
                        struct sge *ret_sges)
{
    const struct receive_slot *slot = receive_queue_peek(queue);
    if (slot == NULL) {
        return false;
    }
    *ret_slot = *slot;
    ret_slot->sges = ret_sges;
    if (slot->sge_count > 0) {
        memcpy(ret_sges, slot->sges, slot->sge_count * sizeof(struct sge));
    }
    receive_queue_drop(queue);
    return true;
}

void receive_queue_set_limit(struct receive_queue *queue, uint32_t limit,
                             struct receive_queue_notifier *notifier)
{
    queue->limit = limit;
    queue->notifier = notifier;
}

uint32_t receive_queue_depth(const struct receive_queue *queue)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_acquire);
    return (uint32_t)(tail - head);
}

bool receive_queue_was_used(const struct receive_queue *queue)
{
    return atomic_load_explicit(&queue->tail, memory_order_acquire) != 0;
}

uint32_t receive_queue_capacity(const struct receive_queue *queue)
{
    return queue->capacity;
}

uint32_t receive_queue_max_sge(const struct receive_queue *queue)
{
    return queue->max_sge;
}
