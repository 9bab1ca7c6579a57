/* A binary heap of timers. Invariant: heap[t->place] == t, no child earlier than its parent. */
#include "weir/channel/timer.h"

#include <stdlib.h>

static void put(struct timers *timers, size_t place, struct timer *timer)
{
    timers->heap[place] = timer;
    timer->place = place;
}

static void rise(struct timers *timers, struct timer *timer)
{
    size_t place = timer->place;
    while (place > 1 && timers->heap[place / 2]->deadline_ns > timer->deadline_ns) {
        put(timers, place, timers->heap[place / 2]);
        place /= 2;
    }
    put(timers, place, timer);
}

static void sink(struct timers *timers, struct timer *timer)
{
    size_t place = timer->place;
    for (;;) {
        size_t child = place * 2;
        if (child > timers->count) {
            break;
        }
        if (child < timers->count &&
            timers->heap[child + 1]->deadline_ns < timers->heap[child]->deadline_ns) {
            child++;
        }
        if (timers->heap[child]->deadline_ns >= timer->deadline_ns) {
            break;
        }
        put(timers, place, timers->heap[child]);
        place = child;
    }
    put(timers, place, timer);
}

void timers_fini(struct timers *timers)
{
    free(timers->heap);
    *timers = (struct timers){0};
}

bool timers_set(struct timers *timers, struct timer *timer, uint64_t deadline_ns)
{
    timers_cancel(timers, timer);
    if (timers->count + 2 > timers->capacity) {
        size_t capacity = timers->capacity == 0 ? 64 : timers->capacity * 2;
        struct timer **heap = realloc(timers->heap, capacity * sizeof(struct timer *));
        if (heap == NULL) {
            return false;
        }
        timers->heap = heap;
        timers->capacity = capacity;
    }
    timer->deadline_ns = deadline_ns;
    timers->count++;
    timer->place = timers->count;
    rise(timers, timer);
    return true;
}

void timers_cancel(struct timers *timers, struct timer *timer)
{
    if (timer->place == 0) {
        return;
    }
    struct timer *last = timers->heap[timers->count];
    timers->count--;
    if (last != timer) {
        put(timers, timer->place, last);
        rise(timers, last);
        sink(timers, last);
    }
    timer->place = 0;
}

uint64_t timers_next_ns(const struct timers *timers)
{
    return timers->count == 0 ? TIMER_NEVER : timers->heap[1]->deadline_ns;
}

struct timer *timers_take(struct timers *timers, uint64_t now_ns)
{
    if (timers_next_ns(timers) > now_ns) {
        return NULL;
    }
    struct timer *timer = timers->heap[1];
    timers_cancel(timers, timer);
    return timer;
}
