/* The send queue's ring. Memory orders: queue_private.h.
 *
 * One allocation: what never changes and the application's position, which the engine reads
 * together; the engine's position; then slots of a fixed stride, each a struct send_slot followed
 * by its target and its SGEs or inline bytes, whichever need more. A large queue costs nothing
 * until it is used, and the engine's position has a cache line of its own; in a queue of one slot,
 * of which there may be thousands, all is close together. The transport's notes are cleared at
 * retire, on the side that has them in its cache. */
#include "rnic/queue/send_queue.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/queue/queue_private.h"

struct send_queue {
    struct allocator *allocator; /* NULL: its memory is the caller's */
    uint32_t capacity;
    uint32_t max_inline; /* bytes */
    uint16_t max_sge;
    bool takes_datagrams;
    uint8_t head_at; /* where they are, in bytes behind the beginning */
    uint8_t slots_at;
    uint32_t mask;
    uint32_t stride; /* bytes */

    _Atomic uint64_t tail; /* written by the application */
    uint64_t head_seen;    /* the application's: head is at least this */
};

#define SMALL_ALIGNMENT 8u

BUILD_CHECK(sizeof(struct send_slot) == CACHE_LINE);
BUILD_CHECK(sizeof(struct send_slot) % alignof(struct sge) == 0);
BUILD_CHECK(sizeof(struct datagram_target) % alignof(struct sge) == 0);
BUILD_CHECK(sizeof(struct send_queue) % SMALL_ALIGNMENT == 0);
BUILD_CHECK(QUEUE_SGE_MAX <= UINT16_MAX);

static uint8_t *at(const struct send_queue *queue, size_t offset)
{
    return (uint8_t *)(uintptr_t)queue + offset;
}

/* Written by the engine. */
static _Atomic uint64_t *head_of(const struct send_queue *queue)
{
    return (_Atomic uint64_t *)at(queue, queue->head_at);
}

static struct send_slot *slot_at(const struct send_queue *queue, uint64_t position)
{
    size_t index = position & queue->mask;
    return (struct send_slot *)at(queue, queue->slots_at + index * queue->stride);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* What may have to stand behind a slot. */
static size_t data_size(const struct send_queue_limits *limits)
{
    size_t size = limits->max_sge * sizeof(struct sge) + sizeof(struct atomic_operands);
    size = larger(larger(size, limits->max_inline), sizeof(struct window_bind));
    return size + (limits->takes_datagrams ? sizeof(struct datagram_target) : 0);
}

/* Where everything is, in bytes from the beginning. */
struct layout {
    uint32_t storage; /* slots */
    size_t head, slots, stride, end;
};

static struct layout lay_out(const struct send_queue_limits *limits)
{
    uint32_t storage = queue_storage(limits->capacity);
    size_t unit = storage == 1 ? SMALL_ALIGNMENT : CACHE_LINE;
    struct layout layout = {.storage = storage};
    layout.head = round_up(sizeof(struct send_queue), unit);
    layout.slots = round_up(layout.head + sizeof(_Atomic uint64_t), unit);
    layout.stride = round_up(sizeof(struct send_slot) + data_size(limits), unit);
    layout.end = layout.slots + storage * layout.stride;
    return layout;
}

static bool are_valid(const struct send_queue_limits *limits)
{
    return limits->capacity <= QUEUE_CAPACITY_MAX && limits->max_sge <= QUEUE_SGE_MAX &&
           limits->max_inline <= QUEUE_INLINE_MAX;
}

size_t send_queue_bytes(const struct send_queue_limits *limits)
{
    return lay_out(limits).end;
}

enum status send_queue_create_in(void *memory, const struct send_queue_limits *limits,
                                 struct send_queue **ret_queue)
{
    if (!are_valid(limits)) {
        return STATUS_INVALID;
    }
    struct layout layout = lay_out(limits);
    struct send_queue *queue = memory;
    *queue = (struct send_queue){
        .capacity = limits->capacity,
        .max_inline = limits->max_inline,
        .max_sge = (uint16_t)limits->max_sge,
        .takes_datagrams = limits->takes_datagrams,
        .head_at = (uint8_t)layout.head,
        .slots_at = (uint8_t)layout.slots,
        .mask = layout.storage - 1,
        .stride = (uint32_t)layout.stride,
    };
    *ret_queue = queue;
    return STATUS_OK;
}

enum status send_queue_create(struct allocator *allocator, const struct send_queue_limits *limits,
                              struct send_queue **ret_queue)
{
    if (!are_valid(limits)) {
        return STATUS_INVALID;
    }
    void *memory = allocator->allocate(allocator, send_queue_bytes(limits));
    if (memory == NULL) {
        return STATUS_NO_MEMORY;
    }
    enum status status = send_queue_create_in(memory, limits, ret_queue);
    (*ret_queue)->allocator = allocator;
    return status;
}

void send_queue_destroy(struct send_queue *queue)
{
    if (queue != NULL && queue->allocator != NULL) {
        queue->allocator->release(queue->allocator, queue);
    }
}

static bool sends_data(enum work_kind kind)
{
    switch (kind) {
    case WORK_SEND:
    case WORK_SEND_IMMEDIATE:
    case WORK_SEND_INVALIDATE:
    case WORK_WRITE:
    case WORK_WRITE_IMMEDIATE:
    case WORK_ATOMIC_WRITE:
        return true;
    default:
        return false;
    }
}

static bool brings_operands(enum work_kind kind)
{
    return kind == WORK_COMPARE_SWAP || kind == WORK_FETCH_ADD || kind == WORK_ATOMIC_WRITE;
}

static enum status check_request(const struct send_queue *queue, const struct send_request *request,
                                 uint32_t *ret_length)
{
    if ((unsigned)request->kind >= WORK_KIND_COUNT || request->sge_count > queue->max_sge ||
        (request->inline_data && !sends_data(request->kind)) ||
        (request->kind == WORK_BIND_WINDOW) != (request->bind != NULL) ||
        (queue->takes_datagrams && request->target == NULL)) {
        return STATUS_INVALID;
    }
    uint64_t length = 0;
    for (uint32_t i = 0; i < request->sge_count; i++) {
        length += request->sges[i].length;
    }
    if (length > MESSAGE_LENGTH_MAX || (request->inline_data && length > queue->max_inline)) {
        return STATUS_TOO_LONG;
    }
    *ret_length = (uint32_t)length;
    return STATUS_OK;
}

enum status send_queue_check(const struct send_queue *queue, const struct send_request *request)
{
    uint32_t length;
    return check_request(queue, request, &length);
}

static void copy_inline(uint8_t *to, const struct send_request *request)
{
    for (uint32_t i = 0; i < request->sge_count; i++) {
        const struct sge *sge = &request->sges[i];
        if (sge->length > 0) {
            memcpy(to, (const void *)(uintptr_t)sge->address, sge->length);
            to += sge->length;
        }
    }
}

static void copy_sges(struct sge *to, const struct send_request *request)
{
    if (request->sge_count > 0) {
        memcpy(to, request->sges, request->sge_count * sizeof(struct sge));
    }
    if (brings_operands(request->kind)) {
        *(struct atomic_operands *)(to + request->sge_count) =
            (struct atomic_operands){request->compare, request->swap_or_add};
    }
}

static void fill_slot(struct send_slot *slot, const struct send_request *request, uint32_t length,
                      bool has_target)
{
    slot->id = request->id;
    slot->kind = request->kind;
    slot->signaled = request->signaled;
    slot->solicited = request->solicited;
    slot->fence = request->fence;
    slot->inline_data = request->inline_data;
    slot->has_target = has_target;
    slot->sge_count =
        request->inline_data || request->bind != NULL ? 0 : (uint16_t)request->sge_count;
    slot->length = length;
    slot->immediate = request->immediate;
    slot->invalidate = request->invalidate;
    slot->remote_address = request->remote_address;
    slot->remote_key = request->remote_key;
    slot->xrc_srq = request->xrc_srq;
    uint8_t *data = (uint8_t *)(slot + 1);
    if (has_target) {
        memcpy(data, request->target, sizeof *request->target);
        data += sizeof *request->target;
    }
    if (request->bind != NULL) {
        memcpy(data, request->bind, sizeof *request->bind);
    } else if (request->inline_data && request->sge_count > 0) {
        copy_inline(data, request);
    } else {
        copy_sges((struct sge *)data, request);
    }
}

struct send_slot *send_queue_open(struct send_queue *queue, uint32_t ahead)
{
    uint64_t position = atomic_load_explicit(&queue->tail, memory_order_relaxed) + ahead;
    if (position - queue->head_seen >= queue->capacity) {
        queue->head_seen = atomic_load_explicit(head_of(queue), memory_order_acquire);
        if (position - queue->head_seen >= queue->capacity) {
            return NULL;
        }
    }
    return slot_at(queue, position);
}

void send_queue_post_opened(struct send_queue *queue, uint32_t count)
{
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    atomic_store_explicit(&queue->tail, tail + count, memory_order_release);
}

enum status send_queue_post(struct send_queue *queue, const struct send_request *request)
{
    uint32_t length;
    enum status status = check_request(queue, request, &length);
    if (status != STATUS_OK) {
        return status;
    }
    struct send_slot *slot = send_queue_open(queue, 0);
    if (slot == NULL) {
        return STATUS_FULL;
    }
    fill_slot(slot, request, length, queue->takes_datagrams);
    send_queue_post_opened(queue, 1);
    return STATUS_OK;
}

uint64_t send_queue_head(const struct send_queue *queue)
{
    return atomic_load_explicit(head_of(queue), memory_order_relaxed);
}

uint64_t send_queue_tail(const struct send_queue *queue)
{
    return atomic_load_explicit(&queue->tail, memory_order_acquire);
}

struct send_slot *send_queue_slot(struct send_queue *queue, uint64_t position)
{
    CHECK(position - send_queue_head(queue) < queue->capacity);
    return slot_at(queue, position);
}

struct send_slot *send_queue_oldest(struct send_queue *queue)
{
    return slot_at(queue, send_queue_head(queue));
}

void send_queue_retire(struct send_queue *queue, struct send_slot *slot)
{
    uint64_t head = send_queue_head(queue);
    CHECK(head != send_queue_tail(queue));
    slot->first_psn = (struct psn){0};
    slot->packet_count = 0;
    slot->received = 0;
    slot->moved = 0;
    slot->status = COMPLETION_SUCCESS;
    slot->started = false;
    slot->by_packets = false;
    slot->finished = false;
    atomic_store_explicit(head_of(queue), head + 1, memory_order_release);
}

uint32_t send_queue_capacity(const struct send_queue *queue)
{
    return queue->capacity;
}
