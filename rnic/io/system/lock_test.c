/* One thread at a time, whoever is favoured; favour comes and goes; handlers of signals, ends of
 * threads and forks in between. */
#include "rnic/io/system/lock.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/io/system/heavy_fence.h"

#define ENOUGH 1100u /* takings, for the favour: a thread's first few are nobody's */

static bool is_favoured(const struct lock *lock)
{
    return (atomic_load(&lock->favour) & LOCK_FAVOURED) != 0;
}

static const struct lock *inner; /* taken within others; all others are not */

static enum lock_level level_of(const struct lock *lock)
{
    return lock == inner ? LOCK_INNER : LOCK_OUTER;
}

static void take(struct lock *lock)
{
    lock_take(lock, level_of(lock));
}

static bool try_to_take(struct lock *lock)
{
    return lock_try(lock, level_of(lock));
}

static void give(struct lock *lock)
{
    lock_give(lock, level_of(lock));
}

static void give_in_order(struct lock *lock)
{
    lock_give_in_order(lock, level_of(lock));
}

static void take_often(struct lock *lock, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        take(lock);
        give(lock);
    }
}

static void earn(struct lock *lock)
{
    take_often(lock, ENOUGH);
    assert_true(is_favoured(lock));
    assert_int_equal(atomic_load(&lock->favour) & LOCK_THREAD, lock_self->number);
}

static void in_another_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *take_once(void *argument)
{
    take_often(argument, 1);
    return NULL;
}

static void *earn_there(void *argument)
{
    earn(argument);
    return NULL;
}

/* To be first: who has taken a lock before that is not favoured for it. */
static void nobody_is_favoured_before_fences_work(void **state)
{
    struct lock lock = {0};
    take_often(&lock, 3 * ENOUGH);
    assert_false(is_favoured(&lock));
    (void)heavy_fence_prepare();
}

static void need_fences(void)
{
    if (!heavy_fence_prepare()) {
        skip();
    }
}

static void who_takes_it_in_a_row_is_favoured_until_another_comes(void **state)
{
    need_fences();
    struct lock lock = {0};
    earn(&lock);
    take(&lock);
    assert_int_equal(atomic_load(&lock.state), 0);
    assert_true(is_favoured(&lock));
    give_in_order(&lock);
    in_another_thread(take_once, &lock);
    assert_false(is_favoured(&lock));
    take(&lock);
    assert_int_equal(atomic_load(&lock.state), 1);
    give(&lock);
    assert_int_equal(atomic_load(&lock.state), 0);
    earn(&lock);
}

static void *fail_to_take(void *argument)
{
    struct lock *lock = argument;
    assert_false(try_to_take(lock));
    assert_true(is_favoured(lock));
    assert_int_equal(atomic_load(&lock->state), 0);
    return NULL;
}

static void *fail_to_take_it(void *lock)
{
    assert_false(try_to_take(lock));
    return NULL;
}

static void a_try_leaves_who_is_inside_its_favour(void **state)
{
    need_fences();
    struct lock first = {0}, second = {0};
    inner = &second;
    earn(&first);
    earn(&second);
    take(&first);
    take(&second);
    in_another_thread(fail_to_take, &second);
    in_another_thread(fail_to_take, &first);
    give(&first); /* in whatever order */
    in_another_thread(fail_to_take, &second);
    in_another_thread(take_once, &first);
    assert_false(is_favoured(&first));
    give(&second);
    inner = NULL;
}

/* What a handler of this thread's finds. */
static struct lock *tried;
static volatile bool got;

static void try_it(int signal)
{
    got = try_to_take(tried);
    if (got) {
        give(tried);
    }
}

static bool handler_gets(struct lock *lock)
{
    tried = lock;
    assert_int_equal(raise(SIGUSR1), 0);
    return got;
}

/* From the first taking to those by favour, that one among them which earns it. */
static void a_handler_does_not_get_what_its_thread_has(void **state)
{
    struct lock lock = {0};
    for (uint32_t i = 0; i < ENOUGH; i++) {
        take(&lock);
        assert_false(handler_gets(&lock));
        give(&lock);
        assert_int_equal(atomic_load(&lock.state), 0);
    }
    assert_true(handler_gets(&lock));
}

static void nor_what_it_has_beyond_its_places(void **state)
{
    struct lock locks[3] = {{0}};
    inner = &locks[1];
    for (uint32_t i = 0; i < 3; i++) {
        take_often(&locks[i], ENOUGH);
    }
    for (uint32_t i = 0; i < 3; i++) {
        take(&locks[i]);
    }
    give(&locks[0]); /* a place is free now */
    assert_false(handler_gets(&locks[2]));
    assert_true(handler_gets(&locks[0]));
    give(&locks[2]);
    give(&locks[1]);
    inner = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&locks[i].state), 0);
        in_another_thread(take_once, &locks[i]);
    }
}

/* As it is where lock_take_by_favour has written its place, and another has ended the favour. */
static void a_handler_that_comes_between_two_looks_gives_what_it_took(void **state)
{
    need_fences();
    struct lock lock = {0};
    earn(&lock);
    in_another_thread(take_once, &lock);
    atomic_store(&lock_self->inside[LOCK_OUTER], &lock);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(handler_gets(&lock));
        assert_int_equal(atomic_load(&lock.state), 0);
    }
    atomic_store(&lock_self->inside[LOCK_OUTER], NULL);
    in_another_thread(take_once, &lock);
}

/* A lock, and which thread has taken it. */
struct handed {
    struct lock lock;
    struct lock_holder *taker;
};

static void *give_for_another(void *argument)
{
    struct handed *handed = argument;
    lock_give_for(&handed->lock, LOCK_OUTER, handed->taker);
    return NULL;
}

static void take_and_hand_on(struct handed *handed)
{
    take(&handed->lock);
    handed->taker = lock_self;
    in_another_thread(fail_to_take_it, &handed->lock);
    in_another_thread(give_for_another, handed);
}

static void *take_there(void *argument)
{
    struct handed *handed = argument;
    earn(&handed->lock);
    take(&handed->lock);
    handed->taker = lock_self;
    return NULL;
}

/* Whether it is taken by its state, by favour, or as the one that earns that. */
static void another_thread_gives_what_one_has_taken(void **state)
{
    struct handed handed = {0};
    for (uint32_t i = 0; i < ENOUGH; i++) {
        take_and_hand_on(&handed);
        assert_true(try_to_take(&handed.lock));
        give(&handed.lock);
        take_often(&handed.lock, i % 3 == 0 ? ENOUGH : 0);
    }
}

static void and_what_one_has_taken_that_has_ended(void **state)
{
    need_fences();
    struct handed handed = {0};
    in_another_thread(take_there, &handed);
    in_another_thread(fail_to_take, &handed.lock);
    in_another_thread(give_for_another, &handed);
    in_another_thread(earn_there, &handed.lock); /* under the same number */
    assert_true(try_to_take(&handed.lock));
    give(&handed.lock);
}

static void *note_number(void *argument)
{
    struct lock lock = {0};
    take_often(&lock, ENOUGH);
    *(uint32_t *)argument = lock_self->number;
    return NULL;
}

static void who_has_ended_leaves_its_number(void **state)
{
    uint32_t first = 0, next = 0;
    for (uint32_t i = 0; i < 300; i++) {
        in_another_thread(note_number, &next);
        first = i == 0 ? next : first;
        assert_int_equal(next, first);
    }
    assert_int_not_equal(first, 0);
}

static void what_was_favoured_to_who_has_ended_is_taken(void **state)
{
    need_fences();
    struct lock lock = {0};
    in_another_thread(earn_there, &lock);
    assert_true(is_favoured(&lock));
    in_another_thread(take_once, &lock); /* under the same number */
    assert_true(try_to_take(&lock));
    assert_false(is_favoured(&lock));
    give(&lock);
}

/* Any number of seconds is too long: an alarm ends it. */
static int take_in_child(struct lock *lock)
{
    alarm(10);
    take_often(lock, 1);
    bool ended = !is_favoured(lock);
    take_often(lock, ENOUGH);
    return ended && is_favoured(lock) ? 0 : 1;
}

struct forked {
    struct lock lock;
    _Atomic bool earned, done;
};

static void *earn_and_stay(void *argument)
{
    struct forked *forked = argument;
    earn(&forked->lock);
    atomic_store(&forked->earned, true);
    while (!atomic_load(&forked->done)) {
        sched_yield();
    }
    return NULL;
}

static void a_child_takes_what_was_favoured_to_who_did_not_come_along(void **state)
{
    need_fences();
    struct forked forked = {0};
    pthread_t thread;
    int status;
    assert_int_equal(pthread_create(&thread, NULL, earn_and_stay, &forked), 0);
    while (!atomic_load(&forked.earned)) {
        sched_yield();
    }
    pid_t child = fork();
    if (child == 0) {
        _exit(take_in_child(&forked.lock));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    atomic_store(&forked.done, true);
    pthread_join(thread, NULL);
}

#define THREADS 3u
#define STRESS  500000000u /* ns */
#define BURST   700u
#define LOCKS   2u

/* Plain counters, each under its lock; the second is taken within the first. */
static struct crowded {
    struct lock locks[LOCKS];
    uint64_t counts[LOCKS];
    _Atomic uint64_t takings[LOCKS];
    _Atomic uint32_t favours; /* seen */
    _Atomic bool stops;
} crowded;

static void count_in(uint32_t which)
{
    crowded.counts[which]++;
    atomic_fetch_add_explicit(&crowded.takings[which], 1, memory_order_relaxed);
}

static bool enter(struct lock *lock, bool tries)
{
    if (tries) {
        return try_to_take(lock);
    }
    take(lock);
    return true;
}

static void come_and_go(bool tries, bool nests, bool in_order)
{
    if (!enter(&crowded.locks[0], tries)) {
        return;
    }
    count_in(0);
    if (nests && enter(&crowded.locks[1], tries)) {
        count_in(1);
        give(&crowded.locks[1]);
    }
    in_order ? give_in_order(&crowded.locks[0]) : give(&crowded.locks[0]);
}

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

static void *crowd_in(void *argument)
{
    uint32_t seed = *(const uint32_t *)argument;
    while (!atomic_load_explicit(&crowded.stops, memory_order_relaxed)) {
        uint32_t kind = draw(&seed), times = draw(&seed) % 4 == 0 ? 3 * BURST : draw(&seed) % 20;
        for (uint32_t i = 0; i < times; i++) {
            come_and_go(kind & 1, kind & 2, kind & 4);
        }
        if (is_favoured(&crowded.locks[0]) || is_favoured(&crowded.locks[1])) {
            atomic_fetch_add_explicit(&crowded.favours, 1, memory_order_relaxed);
        }
        if ((kind & 24) == 0) {
            nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        }
    }
    return NULL;
}

static void one_thread_at_a_time(void **state)
{
    pthread_t threads[THREADS];
    uint32_t seeds[THREADS];
    inner = &crowded.locks[1];
    for (uint32_t i = 0; i < THREADS; i++) {
        seeds[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_in, &seeds[i]), 0);
    }
    nanosleep(&(struct timespec){.tv_nsec = STRESS}, NULL);
    atomic_store(&crowded.stops, true);
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (uint32_t i = 0; i < LOCKS; i++) {
        assert_int_equal(crowded.counts[i], atomic_load(&crowded.takings[i]));
        assert_int_equal(atomic_load(&crowded.locks[i].state), 0);
    }
    print_message("takings: %llu, favours seen: %u\n", (unsigned long long)crowded.counts[0],
                  atomic_load(&crowded.favours));
}

#define RINGS 20000u

/* Who rings and then fails to take it counts on a look of who has it. */
static struct served {
    struct lock lock;
    _Atomic uint32_t bell;
    _Atomic uint32_t rung, served;
} served;

static void serve(void)
{
    while (atomic_load(&served.bell) != 0 && try_to_take(&served.lock)) {
        atomic_fetch_add(&served.served, atomic_exchange(&served.bell, 0));
        give_in_order(&served.lock);
    }
}

static void *ring_often(void *argument)
{
    for (uint32_t i = 0; i < RINGS; i++) {
        atomic_fetch_add(&served.rung, 1);
        atomic_fetch_add(&served.bell, 1);
        serve();
        for (uint32_t j = 0; i % 32 == 0 && j < BURST; j++) {
            if (try_to_take(&served.lock)) {
                give_in_order(&served.lock);
                serve();
            }
        }
    }
    return NULL;
}

static void who_fails_to_take_it_is_served(void **state)
{
    pthread_t threads[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ring_often, NULL), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&served.served), atomic_load(&served.rung));
    assert_int_equal(atomic_load(&served.served), THREADS * RINGS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_favoured_before_fences_work),
        cmocka_unit_test(who_takes_it_in_a_row_is_favoured_until_another_comes),
        cmocka_unit_test(a_try_leaves_who_is_inside_its_favour),
        cmocka_unit_test(a_handler_does_not_get_what_its_thread_has),
        cmocka_unit_test(nor_what_it_has_beyond_its_places),
        cmocka_unit_test(a_handler_that_comes_between_two_looks_gives_what_it_took),
        cmocka_unit_test(another_thread_gives_what_one_has_taken),
        cmocka_unit_test(and_what_one_has_taken_that_has_ended),
        cmocka_unit_test(who_has_ended_leaves_its_number),
        cmocka_unit_test(what_was_favoured_to_who_has_ended_is_taken),
        cmocka_unit_test(a_child_takes_what_was_favoured_to_who_did_not_come_along),
        cmocka_unit_test(one_thread_at_a_time),
        cmocka_unit_test(who_fails_to_take_it_is_served),
    };
    signal(SIGUSR1, try_it);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
