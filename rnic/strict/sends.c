/* Send queues as an adapter keeps them: a slot is free again when a completion that covers it was
 * polled, not when the work is done. */
#include <pthread.h>
#include <stdlib.h>

#include "rnic/strict/strict.h"

struct sends {
    struct sends *next;
    uint32_t qpn;
    uint32_t capacity;
    uint64_t posted, reclaimed; /* ever */
    uint64_t first, last;       /* of `signaled`: entries ever taken out, put in */
    bool failed;                /* a completion in error: what covers what is not known */
    uint64_t signaled[];        /* capacity: positions of signaled work, oldest first */
};

static struct {
    pthread_mutex_t lock;
    struct sends *first;
} queues = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct sends **find(uint32_t qpn)
{
    struct sends **link = &queues.first;
    while (*link != NULL && (*link)->qpn != qpn) {
        link = &(*link)->next;
    }
    return link;
}

void strict_sends_begin(struct qpn qpn, uint32_t capacity)
{
    struct sends *sends = calloc(1, sizeof *sends + capacity * sizeof sends->signaled[0]);
    if (sends == NULL) {
        return; /* this one is as lenient as ever */
    }
    sends->qpn = qpn.value;
    sends->capacity = capacity;
    pthread_mutex_lock(&queues.lock);
    sends->next = queues.first;
    queues.first = sends;
    pthread_mutex_unlock(&queues.lock);
}

void strict_sends_end(struct qpn qpn)
{
    pthread_mutex_lock(&queues.lock);
    struct sends **link = find(qpn.value);
    struct sends *sends = *link;
    if (sends != NULL) {
        *link = sends->next;
    }
    pthread_mutex_unlock(&queues.lock);
    free(sends);
}

void strict_sends_reset(struct qpn qpn)
{
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(qpn.value);
    if (sends != NULL) {
        sends->reclaimed = sends->posted;
        sends->first = sends->last;
        sends->failed = false;
    }
    pthread_mutex_unlock(&queues.lock);
}

uint32_t strict_sends_room(struct qpn qpn, uint32_t unpolled)
{
    pthread_mutex_lock(&queues.lock);
    const struct sends *sends = *find(qpn.value);
    bool known = sends != NULL && !sends->failed;
    uint32_t capacity = known ? sends->capacity : 0;
    uint64_t used = known ? sends->posted - sends->reclaimed : 0;
    bool has_signaled = known && sends->first != sends->last;
    pthread_mutex_unlock(&queues.lock);
    if (!known) {
        return UINT32_MAX;
    }
    if (used >= capacity && !has_signaled) {
        pitfall_warn(PITFALL_UNSIGNALED_FULL, NULL, "posted at",
                     "QP 0x%x: the send queue is full of %u requests, none of which asks for a "
                     "completion: it stays full",
                     qpn.value, capacity);
    } else if (used >= capacity && unpolled > 0) {
        pitfall_warn(PITFALL_UNPOLLED, NULL, "posted at",
                     "QP 0x%x: the send queue (%u requests) is full while %u completions wait in "
                     "its completion queue to be polled",
                     qpn.value, capacity, unpolled);
    }
    return (uint32_t)(capacity - used);
}

void strict_sends_posted(struct qpn qpn, bool signaled)
{
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(qpn.value);
    if (sends != NULL && !sends->failed) {
        if (signaled && sends->last - sends->first < sends->capacity) {
            sends->signaled[sends->last++ % sends->capacity] = sends->posted;
        }
        sends->posted++;
    }
    pthread_mutex_unlock(&queues.lock);
}

void strict_polled(const struct completion *completion)
{
    if (completion->kind == COMPLETED_RECEIVE ||
        completion->kind == COMPLETED_RECEIVE_WRITE_IMMEDIATE) {
        return;
    }
    pthread_mutex_lock(&queues.lock);
    struct sends *sends = *find(completion->qpn.value);
    if (sends != NULL && completion->status != COMPLETION_SUCCESS) {
        sends->failed = true;
    } else if (sends != NULL && sends->first != sends->last) {
        sends->reclaimed = sends->signaled[sends->first++ % sends->capacity] + 1;
    }
    pthread_mutex_unlock(&queues.lock);
}
