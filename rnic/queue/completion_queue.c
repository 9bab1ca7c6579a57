/* The completion queue's ring, and arming. Memory orders: queue_private.h, and what follows.
 *
 * Why no event is lost. The engine stores `tail` and then loads `armed`; the application stores
 * `armed` and then, in its poll, loads `tail`. All four are sequentially consistent, so they have
 * one order that everybody agrees on. If the engine's load comes after the application's store, the
 * engine sees the arming and notifies. If it comes before, the engine's store of `tail`, which is
 * earlier still, comes before the application's load, and the poll sees the record. With anything
 * weaker both could read the old value: that is the store-buffer case, real on x86 too.
 *
 * Only the application raises `armed`. The engine clears it, and the application where it arms and
 * finds what no event has told of: each by an exchange, and whoever finds it raised raises the
 * event, so there is one for an arming. Where the engine finds it cleared since it looked, the
 * application's event comes later than that look, and so than the record. Else it finds what it has
 * seen, or a later arming: one for any completion that has replaced one for solicited ones, which
 * this push satisfies, too, or one behind such an event, whose own is early then. */
#include "rnic/queue/completion_queue.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/queue/queue_private.h"

enum arming {
    ARMED_NOT,
    ARMED_SOLICITED,
    ARMED_ANY,
};

struct completion_queue {
    struct allocator *allocator;
    struct completion_queue_notifier *notifier;
    struct completion *records; /* mask + 1 of them */
    uint32_t mask;
    uint32_t capacity;
    uint32_t users;
    bool ignore_overrun;
    bool never_armed;            /* so the order of tail and `armed` does not matter */
    _Atomic uint32_t moderation; /* completions per event: the engine's, relaxed */
    uint32_t held;               /* matching ones since the last event: the engine's */

    alignas(CACHE_LINE) _Atomic uint64_t tail; /* written by the engine */
    uint64_t head_seen;                        /* the engine's: head is at least this */
    _Atomic bool overrun;                      /* written by the engine, never cleared */

    alignas(CACHE_LINE) _Atomic uint64_t head; /* written by the application */

    /* Of enum arming. On a line of its own: the engine reads it at each push, and the application
     * moves its head at each poll. */
    alignas(CACHE_LINE) _Atomic uint32_t armed;
    _Atomic bool was_armed;     /* at any time */
    _Atomic uint64_t announced; /* position before which events have told of all, or more */
};

size_t completion_queue_record_bytes(uint32_t capacity)
{
    return queue_storage(capacity) * sizeof(struct completion);
}

enum status completion_queue_create(struct allocator *allocator, uint32_t capacity,
                                    struct completion_queue_notifier *notifier,
                                    struct completion_queue **ret_queue)
{
    if (capacity == 0 || capacity > QUEUE_CAPACITY_MAX) {
        return STATUS_INVALID;
    }
    struct completion_queue *queue = allocator->allocate(allocator, sizeof *queue);
    struct completion *records =
        allocator->allocate(allocator, completion_queue_record_bytes(capacity));
    if (queue == NULL || records == NULL) {
        allocator->release(allocator, records);
        allocator->release(allocator, queue);
        return STATUS_NO_MEMORY;
    }
    queue->allocator = allocator;
    queue->notifier = notifier;
    queue->records = records;
    queue->mask = queue_storage(capacity) - 1;
    queue->capacity = capacity;
    *ret_queue = queue;
    return STATUS_OK;
}

void completion_queue_destroy(struct completion_queue *queue)
{
    if (queue != NULL) {
        CHECK(queue->users == 0);
        queue->allocator->release(queue->allocator, queue->records);
        queue->allocator->release(queue->allocator, queue);
    }
}

static bool refuse_overrun(struct completion_queue *queue)
{
    if (queue->ignore_overrun) {
        return true;
    }
    if (!atomic_load_explicit(&queue->overrun, memory_order_relaxed)) {
        atomic_store_explicit(&queue->overrun, true, memory_order_release);
        if (queue->notifier != NULL) {
            queue->notifier->overrun(queue->notifier, queue);
        }
    }
    return false;
}

static void note_announced(struct completion_queue *queue)
{
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    atomic_store_explicit(&queue->announced, tail, memory_order_relaxed);
}

static void announce(struct completion_queue *queue)
{
    queue->held = 0;
    note_announced(queue);
    uint32_t armed = atomic_exchange_explicit(&queue->armed, ARMED_NOT, memory_order_seq_cst);
    if (armed != ARMED_NOT && queue->notifier != NULL) {
        queue->notifier->completed(queue->notifier, queue);
    }
}

/* A completion came for which the queue is armed. */
static void hold_or_announce(struct completion_queue *queue)
{
    if (++queue->held >= atomic_load_explicit(&queue->moderation, memory_order_relaxed)) {
        announce(queue);
    } else if (queue->held == 1 && queue->notifier != NULL && queue->notifier->held != NULL) {
        queue->notifier->held(queue->notifier, queue);
    }
}

void completion_queue_moderate(struct completion_queue *queue, uint32_t count)
{
    atomic_store_explicit(&queue->moderation, count, memory_order_relaxed);
    if (queue->held >= count) {
        completion_queue_announce(queue);
    }
}

void completion_queue_announce(struct completion_queue *queue)
{
    if (queue->held != 0) {
        announce(queue);
    }
}

void completion_queue_never_arm(struct completion_queue *queue)
{
    queue->never_armed = true;
}

void completion_queue_ignore_overrun(struct completion_queue *queue)
{
    queue->ignore_overrun = true;
}

static bool has_room(struct completion_queue *queue, uint64_t tail)
{
    if (tail - queue->head_seen >= queue->capacity) {
        queue->head_seen = atomic_load_explicit(&queue->head, memory_order_acquire);
    }
    return tail - queue->head_seen < queue->capacity;
}

struct completion *completion_queue_open(struct completion_queue *queue)
{
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    bool over = atomic_load_explicit(&queue->overrun, memory_order_relaxed);
    return !over && has_room(queue, tail) ? &queue->records[tail & queue->mask] : NULL;
}

void completion_queue_push_opened(struct completion_queue *queue, bool solicited)
{
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    if (queue->never_armed) {
        atomic_store_explicit(&queue->tail, tail + 1, memory_order_release);
        return;
    }
    atomic_store_explicit(&queue->tail, tail + 1, memory_order_seq_cst);

    uint32_t armed = atomic_load_explicit(&queue->armed, memory_order_seq_cst);
    if (armed == ARMED_ANY || (armed == ARMED_SOLICITED && solicited)) {
        hold_or_announce(queue);
    }
}

bool completion_queue_push(struct completion_queue *queue, const struct completion *completion,
                           bool solicited)
{
    struct completion *record = completion_queue_open(queue);
    if (record == NULL) {
        bool over = atomic_load_explicit(&queue->overrun, memory_order_relaxed);
        return !over && refuse_overrun(queue);
    }
    *record = *completion;
    completion_queue_push_opened(queue, solicited);
    return true;
}

uint32_t completion_queue_poll(struct completion_queue *queue, uint32_t count,
                               struct completion *ret_completions)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_seq_cst);
    uint64_t available = tail - head;
    uint32_t taken = available < count ? (uint32_t)available : count;
    for (uint32_t i = 0; i < taken; i++) {
        ret_completions[i] = queue->records[(head + i) & queue->mask];
    }
    if (taken > 0) {
        atomic_store_explicit(&queue->head, head + taken, memory_order_release);
    }
    return taken;
}

uint32_t completion_queue_ready(const struct completion_queue *queue)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    return (uint32_t)(atomic_load_explicit(&queue->tail, memory_order_seq_cst) - head);
}

const struct completion *completion_queue_at(const struct completion_queue *queue, uint32_t ahead)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    return &queue->records[(head + ahead) & queue->mask];
}

void completion_queue_drop(struct completion_queue *queue, uint32_t count)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    atomic_store_explicit(&queue->head, head + count, memory_order_release);
}

bool completion_queue_is_empty(const struct completion_queue *queue)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    return head == atomic_load_explicit(&queue->tail, memory_order_seq_cst);
}

static bool has_unannounced(const struct completion_queue *queue)
{
    uint64_t announced = atomic_load_explicit(&queue->announced, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_seq_cst);
    return tail > announced && tail != head &&
           atomic_load_explicit(&queue->moderation, memory_order_relaxed) <= 1;
}

/* Whoever takes the arming back announces: the engine, if something has come meanwhile, or we. */
static bool arm_for_any(struct completion_queue *queue)
{
    atomic_store_explicit(&queue->armed, ARMED_ANY, memory_order_seq_cst);
    if (!has_unannounced(queue) ||
        atomic_exchange_explicit(&queue->armed, ARMED_NOT, memory_order_seq_cst) == ARMED_NOT) {
        return false;
    }
    note_announced(queue);
    return true;
}

bool completion_queue_arm(struct completion_queue *queue, bool solicited_only)
{
    if (queue->never_armed) {
        return false;
    }
    atomic_store_explicit(&queue->was_armed, true, memory_order_relaxed);
    if (!solicited_only) {
        return arm_for_any(queue);
    }
    /* Where the queue is armed already, for whatever, it stays so. */
    uint32_t expected = ARMED_NOT;
    atomic_compare_exchange_strong_explicit(&queue->armed, &expected, ARMED_SOLICITED,
                                            memory_order_seq_cst, memory_order_seq_cst);
    return false;
}

bool completion_queue_is_between_arms(const struct completion_queue *queue)
{
    return atomic_load_explicit(&queue->was_armed, memory_order_relaxed) &&
           atomic_load_explicit(&queue->armed, memory_order_relaxed) == ARMED_NOT;
}

uint32_t completion_queue_depth(const struct completion_queue *queue)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_acquire);
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_acquire);
    return (uint32_t)(tail - head);
}

uint32_t completion_queue_capacity(const struct completion_queue *queue)
{
    return queue->capacity;
}

bool completion_queue_is_overrun(const struct completion_queue *queue)
{
    return atomic_load_explicit(&queue->overrun, memory_order_acquire);
}

enum status completion_queue_resize(struct completion_queue *queue, uint32_t capacity)
{
    if (capacity == 0 || capacity > QUEUE_CAPACITY_MAX) {
        return STATUS_INVALID;
    }
    struct allocator *allocator = queue->allocator;
    void *records = allocator->allocate(allocator, completion_queue_record_bytes(capacity));
    if (records == NULL) {
        return STATUS_NO_MEMORY;
    }
    enum status status = completion_queue_resize_into(queue, capacity, &records);
    allocator->release(allocator, records);
    return status;
}

enum status completion_queue_resize_into(struct completion_queue *queue, uint32_t capacity,
                                         void **records)
{
    if (capacity == 0 || capacity > QUEUE_CAPACITY_MAX ||
        capacity < completion_queue_depth(queue)) {
        return STATUS_INVALID;
    }
    struct completion *larger = *records;
    uint32_t mask = queue_storage(capacity) - 1;
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    for (uint64_t position = head; position != tail; position++) {
        larger[position & mask] = queue->records[position & queue->mask];
    }
    *records = queue->records;
    queue->records = larger;
    queue->mask = mask;
    queue->capacity = capacity;
    return STATUS_OK;
}

bool completion_queue_find_failure(const struct completion_queue *queue, struct qpn qpn,
                                   struct completion *ret_completion)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    for (uint64_t position = head; position != tail; position++) {
        const struct completion *record = &queue->records[position & queue->mask];
        if (qpn_equal(record->qpn, qpn) && record->status != COMPLETION_SUCCESS &&
            record->status != COMPLETION_FLUSHED) {
            *ret_completion = *record;
            return true;
        }
    }
    return false;
}

void completion_queue_forget(struct completion_queue *queue, struct qpn qpn)
{
    uint64_t head = atomic_load_explicit(&queue->head, memory_order_relaxed);
    uint64_t position = atomic_load_explicit(&queue->tail, memory_order_relaxed);
    uint64_t kept = position;
    while (position != head) {
        const struct completion *record = &queue->records[--position & queue->mask];
        if (!qpn_equal(record->qpn, qpn)) {
            queue->records[--kept & queue->mask] = *record;
        }
    }
    atomic_store_explicit(&queue->head, kept, memory_order_release);
}

void completion_queue_use(struct completion_queue *queue, int change)
{
    CHECK(change >= 0 || queue->users >= (uint32_t)-change);
    queue->users += (uint32_t)change;
}

uint32_t completion_queue_users(const struct completion_queue *queue)
{
    return queue->users;
}
