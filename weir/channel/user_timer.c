/* weir_timer. Invariant: a timer is in its bucket exactly while it is in the poller's heap. */
#include "weir/channel/user_timer.h"

#include <stdint.h>
#include <stdlib.h>

#include "weir/channel/poller.h"

#define BUCKETS_LEAST 64

struct user_timer {
    struct timer timer;
    struct user_timer *next, **link; /* of the bucket; what points here */
    struct weir_poller *poller;
    weir_timer_callback *fire;
    void *argument;
};

static struct user_timer **bucket_of(const struct user_timers *timers, weir_timer_callback *fire,
                                     const void *argument)
{
    uint64_t mixed = ((uint64_t)(uintptr_t)argument + 31 * (uint64_t)(uintptr_t)fire) *
                     UINT64_C(0x9e3779b97f4a7c15);
    return &timers->buckets[(mixed >> 32) & (timers->bucket_count - 1)];
}

static void put_in(struct user_timers *timers, struct user_timer *timer)
{
    struct user_timer **bucket = bucket_of(timers, timer->fire, timer->argument);
    timer->next = *bucket;
    timer->link = bucket;
    if (timer->next != NULL) {
        timer->next->link = &timer->next;
    }
    *bucket = timer;
}

/* It is over. */
static void take_out(struct user_timer *timer)
{
    struct user_timers *timers = &timer->poller->user_timers;
    *timer->link = timer->next;
    if (timer->next != NULL) {
        timer->next->link = timer->link;
    }
    timers->count--;
    free(timers->spare);
    timers->spare = timer;
}

static struct user_timer *take_spare(struct user_timers *timers)
{
    struct user_timer *timer = timers->spare;
    timers->spare = NULL;
    return timer != NULL ? timer : malloc(sizeof(*timer));
}

/* Where there is no memory for more buckets they hold more each. False: there are none at all. */
static bool make_room(struct user_timers *timers)
{
    if (timers->count < timers->bucket_count) {
        return true;
    }
    struct user_timers larger = {
        .bucket_count = timers->bucket_count > 0 ? 2 * timers->bucket_count : BUCKETS_LEAST,
        .count = timers->count,
        .spare = timers->spare,
    };
    larger.buckets = calloc(larger.bucket_count, sizeof(struct user_timer *));
    if (larger.buckets == NULL) {
        return timers->buckets != NULL;
    }
    for (size_t i = 0; i < timers->bucket_count; i++) {
        while (timers->buckets[i] != NULL) {
            struct user_timer *timer = timers->buckets[i];
            timers->buckets[i] = timer->next;
            put_in(&larger, timer);
        }
    }
    free(timers->buckets);
    *timers = larger;
    return true;
}

void user_timers_fini(struct user_timers *timers)
{
    for (size_t i = 0; i < timers->bucket_count; i++) {
        while (timers->buckets[i] != NULL) {
            struct user_timer *timer = timers->buckets[i];
            timers->buckets[i] = timer->next;
            free(timer);
        }
    }
    free(timers->buckets);
    free(timers->spare);
    *timers = (struct user_timers){0};
}

static void fire_user_timer(struct timer *base)
{
    struct user_timer *timer = (struct user_timer *)base;
    weir_timer_callback *fire = timer->fire;
    void *argument = timer->argument;
    timer->poller->callbacks++;
    take_out(timer);
    fire(argument);
}

static void take_back(struct weir_poller *poller, weir_timer_callback *fire, const void *argument)
{
    if (poller->user_timers.count == 0) {
        return;
    }
    struct user_timer *timer = *bucket_of(&poller->user_timers, fire, argument);
    while (timer != NULL && (timer->fire != fire || timer->argument != argument)) {
        timer = timer->next;
    }
    if (timer != NULL) {
        timers_cancel(&poller->timers, &timer->timer);
        take_out(timer);
    }
}

enum weir_status weir_timer(struct weir_poller *poller, unsigned delay_ms,
                            weir_timer_callback *fire, void *argument)
{
    if (delay_ms == 0) {
        take_back(poller, fire, argument);
        return WEIR_OK;
    }
    if (fire == NULL) {
        return WEIR_INVALID;
    }
    if (!make_room(&poller->user_timers)) {
        return WEIR_NO_MEMORY;
    }
    struct user_timer *timer = take_spare(&poller->user_timers);
    if (timer == NULL) {
        return WEIR_NO_MEMORY;
    }
    *timer = (struct user_timer){
        .timer = {.fire = fire_user_timer}, .poller = poller, .fire = fire, .argument = argument};
    if (!poller_set_timer(poller, &timer->timer, delay_ms)) {
        free(timer);
        return WEIR_NO_MEMORY;
    }
    put_in(&poller->user_timers, timer);
    poller->user_timers.count++;
    return WEIR_OK;
}
