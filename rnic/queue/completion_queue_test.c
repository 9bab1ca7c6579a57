#include "rnic/queue/completion_queue.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "rnic/base/container.h"
#include "rnic/base/heap.h"

struct watcher {
    struct completion_queue_notifier notifier;
    int completed;
    int overruns;
    int held;
};

static void count_completed(struct completion_queue_notifier *notifier,
                            struct completion_queue *queue)
{
    CONTAINER_OF(notifier, struct watcher, notifier)->completed++;
}

static void count_overrun(struct completion_queue_notifier *notifier,
                          struct completion_queue *queue)
{
    CONTAINER_OF(notifier, struct watcher, notifier)->overruns++;
}

static void count_held(struct completion_queue_notifier *notifier, struct completion_queue *queue)
{
    CONTAINER_OF(notifier, struct watcher, notifier)->held++;
}

static struct completion_queue *create(struct watcher *watcher, uint32_t capacity)
{
    *watcher = (struct watcher){.notifier = {count_completed, count_overrun, count_held}};
    struct completion_queue *queue;
    assert_int_equal(
        completion_queue_create(heap_allocator(), capacity, &watcher->notifier, &queue), STATUS_OK);
    return queue;
}

static bool push(struct completion_queue *queue, uint64_t id, bool solicited)
{
    struct completion completion = {.id = id};
    return completion_queue_push(queue, &completion, solicited);
}

/* A record that is written in its place is one like any other; where there is none, pushing says
 * why. */
static void records_are_written_in_their_places(void **state)
{
    struct watcher watcher;
    struct completion_queue *queue = create(&watcher, 2);
    struct completion got[2];
    (void)completion_queue_arm(queue, true);
    for (uint64_t id = 1; id <= 2; id++) {
        struct completion *record = completion_queue_open(queue);
        assert_non_null(record);
        assert_true(completion_queue_open(queue) == record);
        *record = (struct completion){.id = id};
        assert_int_equal(completion_queue_depth(queue), id - 1);
        completion_queue_push_opened(queue, id == 2);
        assert_int_equal(watcher.completed, id == 2);
    }
    assert_null(completion_queue_open(queue));
    assert_int_equal(watcher.overruns, 0);
    assert_int_equal(completion_queue_poll(queue, 2, got), 2);
    assert_true(got[0].id == 1 && got[1].id == 2);
    assert_non_null(completion_queue_open(queue));
    assert_true(push(queue, 3, false) && push(queue, 4, false));
    assert_false(push(queue, 5, false));
    assert_int_equal(watcher.overruns, 1);
    assert_int_equal(completion_queue_poll(queue, 2, got), 2);
    assert_null(completion_queue_open(queue)); /* it stays so */
    completion_queue_destroy(queue);
}

static void order_capacity_and_overrun(void **state)
{
    struct watcher watcher;
    struct completion_queue *queue = create(&watcher, 3);
    struct completion got[8];
    uint64_t next_in = 0;
    uint64_t next_out = 0;
    for (uint32_t round = 0; round < 20; round++) {
        while (completion_queue_depth(queue) < 3) {
            assert_true(push(queue, next_in++, false));
        }
        uint32_t wanted = round % 4;
        assert_int_equal(completion_queue_poll(queue, wanted, got), wanted);
        for (uint32_t i = 0; i < wanted; i++) {
            assert_int_equal(got[i].id, next_out++);
        }
    }
    assert_int_equal(completion_queue_poll(queue, 8, got), 3 - 19 % 4);
    assert_false(completion_queue_is_overrun(queue));
    for (int i = 0; i < 3; i++) {
        assert_true(push(queue, i, false));
    }
    assert_false(push(queue, 3, false));
    assert_false(push(queue, 4, false));
    assert_true(completion_queue_is_overrun(queue));
    assert_int_equal(watcher.overruns, 1);
    assert_int_equal(completion_queue_poll(queue, 8, got), 3); /* what was in it can be read */
    assert_false(push(queue, 5, false));                       /* but nothing comes any more */
    assert_int_equal(watcher.overruns, 1);
    assert_int_equal(watcher.completed, 0);
    completion_queue_destroy(queue);
}

static void arming(void **state)
{
    struct watcher watcher;
    struct completion_queue *queue = create(&watcher, 100);
    assert_false(completion_queue_arm(queue, false));
    push(queue, 1, false);
    assert_int_equal(watcher.completed, 1);
    push(queue, 2, true);
    assert_int_equal(watcher.completed, 1); /* one event per arming */

    (void)completion_queue_arm(queue, true);
    push(queue, 3, false);
    assert_int_equal(watcher.completed, 1);
    push(queue, 4, true);
    assert_int_equal(watcher.completed, 2);

    (void)completion_queue_arm(queue, true);
    (void)completion_queue_arm(queue, false); /* any overrides solicited */
    push(queue, 5, false);
    assert_int_equal(watcher.completed, 3);
    (void)completion_queue_arm(queue, false);
    (void)completion_queue_arm(queue, true); /* and is not weakened by it */
    push(queue, 6, false);
    assert_int_equal(watcher.completed, 4);
    completion_queue_destroy(queue);
}

/* What came since the last event, which the poll before has not seen. */
static void who_polls_and_then_arms_hears_of_what_came_between(void **state)
{
    struct watcher watcher;
    struct completion got[4];
    struct completion_queue *queue = create(&watcher, 16);
    assert_false(completion_queue_arm(queue, false));
    push(queue, 0, false);
    assert_int_equal(watcher.completed, 1);
    assert_false(completion_queue_arm(queue, false)); /* an event has told of it */
    push(queue, 1, false);
    assert_int_equal(watcher.completed, 2);

    push(queue, 2, false);
    assert_true(completion_queue_arm(queue, false));
    push(queue, 3, false); /* that event is its, too, unless it is raised before */
    assert_int_equal(watcher.completed, 2);
    assert_int_equal(completion_queue_poll(queue, 4, got), 4);
    assert_false(completion_queue_arm(queue, false));
    push(queue, 4, false);
    assert_int_equal(watcher.completed, 3);

    push(queue, 5, true);
    assert_false(completion_queue_arm(queue, true)); /* it is not known what was solicited */
    completion_queue_moderate(queue, 2);
    assert_false(completion_queue_arm(queue, false)); /* nor when a moderated event is due */
    assert_int_equal(watcher.completed, 3);
    completion_queue_destroy(queue);
}

static void moderation_announces_by_count_or_when_told(void **state)
{
    struct watcher watcher;
    struct completion_queue *queue = create(&watcher, 16);
    completion_queue_moderate(queue, 3);
    push(queue, 0, false); /* not armed: not counted */
    (void)completion_queue_arm(queue, false);
    push(queue, 1, false);
    push(queue, 2, false);
    assert_int_equal(watcher.held, 1);
    assert_int_equal(watcher.completed, 0);
    push(queue, 3, false);
    assert_int_equal(watcher.completed, 1);
    push(queue, 4, false); /* disarmed by the event */
    completion_queue_announce(queue);
    assert_int_equal(watcher.completed, 1);

    (void)completion_queue_arm(queue, true);
    push(queue, 5, false); /* does not match */
    push(queue, 6, true);
    assert_int_equal(watcher.held, 2);
    completion_queue_announce(queue);
    completion_queue_announce(queue);
    assert_int_equal(watcher.completed, 2);

    /* Lowering the count to what is held announces at once; at most one is no moderation. */
    (void)completion_queue_arm(queue, false);
    push(queue, 7, false);
    completion_queue_moderate(queue, 1);
    assert_int_equal(watcher.completed, 3);
    (void)completion_queue_arm(queue, false);
    push(queue, 8, false);
    assert_int_equal(watcher.completed, 4);
    assert_int_equal(watcher.held, 3);
    completion_queue_destroy(queue);
}

static void ignored_overrun_loses_the_newest(void **state)
{
    struct watcher watcher;
    struct completion_queue *queue = create(&watcher, 2);
    struct completion got[4];
    completion_queue_ignore_overrun(queue);
    for (uint64_t i = 0; i < 4; i++) {
        assert_true(push(queue, i, false));
    }
    assert_int_equal(watcher.overruns, 0);
    assert_false(completion_queue_is_overrun(queue));
    assert_int_equal(completion_queue_poll(queue, 4, got), 2);
    assert_int_equal(got[1].id, 1);
    assert_true(push(queue, 4, false));
    assert_int_equal(completion_queue_poll(queue, 4, got), 1);
    assert_int_equal(got[0].id, 4);
    completion_queue_destroy(queue);
}

static void resize_keeps_what_is_there(void **state)
{
    struct watcher watcher;
    struct completion_queue *queue = create(&watcher, 4);
    struct completion got[16];
    for (uint64_t i = 0; i < 6; i++) { /* the ring has wrapped: 2..5 are in it */
        push(queue, i, false);
        if (i < 2) {
            assert_int_equal(completion_queue_poll(queue, 1, got), 1);
        }
    }
    assert_int_equal(completion_queue_resize(queue, 3), STATUS_INVALID);
    assert_int_equal(completion_queue_resize(queue, QUEUE_CAPACITY_MAX + 1), STATUS_INVALID);
    assert_int_equal(completion_queue_resize(queue, 9), STATUS_OK);
    assert_int_equal(completion_queue_capacity(queue), 9);
    for (uint64_t i = 6; i < 11; i++) {
        assert_true(push(queue, i, false));
    }
    assert_int_equal(completion_queue_poll(queue, 5, got), 5);
    assert_int_equal(got[0].id, 2);
    assert_int_equal(completion_queue_resize(queue, 4), STATUS_OK);
    assert_int_equal(completion_queue_poll(queue, 16, got), 4);
    assert_int_equal(got[0].id, 7);
    assert_int_equal(got[3].id, 10);
    completion_queue_destroy(queue);
}

static void users_and_limits(void **state)
{
    struct completion_queue *queue = NULL;
    assert_int_equal(completion_queue_create(heap_allocator(), 0, NULL, &queue), STATUS_INVALID);
    assert_int_equal(
        completion_queue_create(heap_allocator(), QUEUE_CAPACITY_MAX + 1, NULL, &queue),
        STATUS_INVALID);
    assert_null(queue);
    assert_int_equal(completion_queue_create(heap_allocator(), 1, NULL, &queue), STATUS_OK);
    (void)completion_queue_arm(queue, false);
    assert_true(push(queue, 0, false)); /* no notifier */
    assert_false(push(queue, 0, false));
    completion_queue_use(queue, +1);
    completion_queue_use(queue, +1);
    completion_queue_use(queue, -1);
    assert_int_equal(completion_queue_users(queue), 1);
    completion_queue_use(queue, -1);
    completion_queue_destroy(queue);
    completion_queue_destroy(NULL);
}

/* The engine pushes; the application sleeps on a semaphore whenever a poll after arming finds
 * nothing. A lost event shows as a wait that ends by its deadline. */

#define CROSSINGS 50000

struct sleeper {
    struct completion_queue_notifier notifier;
    struct completion_queue *queue;
    sem_t due;
    pthread_t pusher;
};

static void post_due(struct completion_queue_notifier *notifier, struct completion_queue *queue)
{
    sem_post(&CONTAINER_OF(notifier, struct sleeper, notifier)->due);
}

static void *push_all(void *argument)
{
    struct sleeper *sleeper = argument;
    for (uint64_t i = 0; i < CROSSINGS; i++) {
        while (completion_queue_depth(sleeper->queue) == 3) {
            sched_yield();
        }
        struct completion completion = {.id = i, .byte_length = (uint32_t)i};
        completion_queue_push(sleeper->queue, &completion, i % 3 == 0);
        if (i % 2 == 0) {
            sched_yield();
        }
    }
    return NULL;
}

static bool wait_due(struct sleeper *sleeper)
{
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += 20;
    return sem_timedwait(&sleeper->due, &deadline) == 0;
}

static void begin_pushing(struct sleeper *sleeper)
{
    *sleeper = (struct sleeper){.notifier = {post_due, post_due}};
    assert_int_equal(sem_init(&sleeper->due, 0, 0), 0);
    assert_int_equal(
        completion_queue_create(heap_allocator(), 3, &sleeper->notifier, &sleeper->queue),
        STATUS_OK);
    assert_int_equal(pthread_create(&sleeper->pusher, NULL, push_all, sleeper), 0);
}

static void end_pushing(struct sleeper *sleeper)
{
    pthread_join(sleeper->pusher, NULL);
    assert_false(completion_queue_is_overrun(sleeper->queue));
    completion_queue_destroy(sleeper->queue);
    sem_destroy(&sleeper->due);
}

/* `polls_again`: after arming, before it sleeps. */
static void check_no_event_is_lost(bool polls_again)
{
    struct sleeper sleeper;
    begin_pushing(&sleeper);
    uint64_t next = 0;
    bool in_order = true;
    bool woken = true;
    while (next < CROSSINGS && woken) {
        struct completion got[2];
        uint32_t count = completion_queue_poll(sleeper.queue, 2, got);
        if (count == 0) {
            bool due = completion_queue_arm(sleeper.queue, false);
            count = polls_again ? completion_queue_poll(sleeper.queue, 2, got) : 0;
            if (count == 0 && !due) {
                woken = wait_due(&sleeper);
            }
        }
        for (uint32_t i = 0; i < count; i++) {
            in_order = in_order && got[i].id == next && got[i].byte_length == next;
            next++;
        }
    }
    assert_true(woken);
    assert_true(in_order);
    end_pushing(&sleeper);
}

static void no_event_is_lost(void **state)
{
    check_no_event_is_lost(true);
}

static void nor_where_the_poll_comes_before_the_arming(void **state)
{
    check_no_event_is_lost(false);
}

/* Where an arming and a push meet, whoever takes the arming back raises the event, and not both. */
static void an_arming_brings_one_event(void **state)
{
    (void)state;
    struct sleeper sleeper;
    begin_pushing(&sleeper);
    uint32_t taken = 0, extra = 0;
    bool woken = true;
    while (taken < CROSSINGS && woken) {
        struct completion got[3];
        extra += sem_trywait(&sleeper.due) == 0; /* it is not armed, and its event was taken */
        woken = completion_queue_arm(sleeper.queue, false) || wait_due(&sleeper);
        taken += completion_queue_poll(sleeper.queue, 3, got);
    }
    assert_true(woken);
    assert_int_equal(extra, 0);
    end_pushing(&sleeper);
}

static void never_armed(void **state)
{
    struct watcher watcher;
    struct completion_queue *queue = create(&watcher, 4);
    struct completion got;
    completion_queue_never_arm(queue);
    (void)completion_queue_arm(queue, false);
    assert_true(completion_queue_is_empty(queue));
    assert_true(push(queue, 7, true));
    assert_int_equal(watcher.completed, 0);
    assert_false(completion_queue_is_empty(queue));
    assert_int_equal(completion_queue_poll(queue, 1, &got), 1);
    assert_int_equal(got.id, 7);
    assert_true(completion_queue_is_empty(queue));
    completion_queue_destroy(queue);
}

static void it_is_known_who_has_armed_and_will_again(void **state)
{
    struct watcher watcher;
    struct completion_queue *queue = create(&watcher, 4);
    assert_false(completion_queue_is_between_arms(queue)); /* who only polls */
    assert_true(push(queue, 1, false));
    assert_false(completion_queue_is_between_arms(queue));
    (void)completion_queue_arm(queue, true);
    assert_false(completion_queue_is_between_arms(queue));
    assert_true(push(queue, 2, false));
    assert_false(completion_queue_is_between_arms(queue)); /* not what it waits for */
    assert_true(push(queue, 3, true));
    assert_true(completion_queue_is_between_arms(queue));
    (void)completion_queue_arm(queue, false);
    assert_false(completion_queue_is_between_arms(queue));
    completion_queue_destroy(queue);
}

/* Looked at where they lie, they stay until they are dropped, across the ring's end, too. */
static void records_are_looked_at_in_their_places(void **state)
{
    struct watcher watcher;
    struct completion_queue *queue = create(&watcher, 4);
    struct completion got;
    assert_int_equal(completion_queue_ready(queue), 0);
    for (uint64_t id = 1; id <= 6; id++) {
        assert_true(push(queue, id, false));
        if (id <= 2) {
            assert_int_equal(completion_queue_poll(queue, 1, &got), 1);
        }
    }
    assert_int_equal(completion_queue_ready(queue), 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(completion_queue_at(queue, i)->id, 3 + i);
    }
    completion_queue_drop(queue, 3);
    assert_int_equal(completion_queue_ready(queue), 1);
    assert_int_equal(completion_queue_at(queue, 0)->id, 6);
    completion_queue_drop(queue, 1);
    assert_true(completion_queue_is_empty(queue));
    completion_queue_destroy(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_capacity_and_overrun),
        cmocka_unit_test(records_are_written_in_their_places),
        cmocka_unit_test(never_armed),
        cmocka_unit_test(arming),
        cmocka_unit_test(it_is_known_who_has_armed_and_will_again),
        cmocka_unit_test(who_polls_and_then_arms_hears_of_what_came_between),
        cmocka_unit_test(moderation_announces_by_count_or_when_told),
        cmocka_unit_test(ignored_overrun_loses_the_newest),
        cmocka_unit_test(records_are_looked_at_in_their_places),
        cmocka_unit_test(resize_keeps_what_is_there),
        cmocka_unit_test(users_and_limits),
        cmocka_unit_test(no_event_is_lost),
        cmocka_unit_test(nor_where_the_poll_comes_before_the_arming),
        cmocka_unit_test(an_arming_brings_one_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
