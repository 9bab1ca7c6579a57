/* Wake-ups are neither lost nor invented: one record, one token. */
#include "rnic/io/system/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool is_readable(const struct notify *notify)
{
    struct pollfd ready = {.fd = notify_descriptor(notify), .events = POLLIN};
    return poll(&ready, 1, 0) == 1;
}

static struct notify *create(void)
{
    struct notify *notify;
    assert_int_equal(notify_create(&notify), STATUS_OK);
    fcntl(notify_descriptor(notify), F_SETFL, O_NONBLOCK);
    return notify;
}

static void records_come_in_order_and_once(void **state)
{
    struct notify *notify = create();
    struct notify_record record;
    assert_false(is_readable(notify));
    assert_int_equal(notify_wait(notify, &record), EAGAIN);
    for (uint64_t i = 0; i < 100; i++) { /* grows on the way */
        notify_post(notify, &(struct notify_record){.value = i});
    }
    for (uint64_t i = 0; i < 100; i++) {
        assert_true(is_readable(notify));
        assert_int_equal(notify_wait(notify, &record), 0);
        assert_int_equal(record.value, i);
    }
    assert_false(is_readable(notify));
    notify_destroy(notify);
}

static void forgotten_records_take_their_token_along(void **state)
{
    struct notify *notify = create();
    struct notify_record record;
    int dying, living;
    notify_post(notify, &(struct notify_record){&dying, 1});
    notify_post(notify, &(struct notify_record){&living, 2});
    notify_post(notify, &(struct notify_record){&dying, 3});
    assert_int_equal(notify_forget(notify, &dying), 2);
    assert_int_equal(notify_wait(notify, &record), 0);
    assert_ptr_equal(record.object, &living);
    assert_false(is_readable(notify));
    assert_int_equal(notify_wait(notify, &record), EAGAIN);
    assert_int_equal(notify_forget(notify, &dying), 0);
    notify_destroy(notify);
}

static atomic_bool enough;

static void *post_until_enough(void *argument)
{
    struct notify *notify = argument;
    while (!atomic_load(&enough)) {
        notify_post(notify, &(struct notify_record){.value = 1});
        struct notify_record record;
        assert_int_equal(notify_wait(notify, &record), 0);
    }
    return NULL;
}

/* Another thread may be in the middle of a post when its process forks. */
static void a_child_forgets_without_waiting(void **state)
{
    struct notify *notify = create();
    pthread_t thread;
    int object;
    assert_int_equal(pthread_create(&thread, NULL, post_until_enough, notify), 0);
    for (uint32_t i = 0; i < 300; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit((int)notify_forget(notify, &object));
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    notify_destroy(notify);
}

#define POSTED 20000

static void *post_many(void *argument)
{
    for (uint64_t i = 1; i <= POSTED; i++) {
        notify_post(argument, &(struct notify_record){.value = i});
    }
    return NULL;
}

static void blocked_reader_gets_every_record(void **state)
{
    struct notify *notify;
    assert_int_equal(notify_create(&notify), STATUS_OK);
    pthread_t poster;
    assert_int_equal(pthread_create(&poster, NULL, post_many, notify), 0);
    for (uint64_t i = 1; i <= POSTED; i++) {
        struct notify_record record;
        assert_int_equal(notify_wait(notify, &record), 0);
        assert_int_equal(record.value, i);
    }
    pthread_join(poster, NULL);
    assert_false(is_readable(notify));
    notify_destroy(notify);
}

static void *post_once(void *argument)
{
    notify_post(argument, &(struct notify_record){.value = 1});
    return NULL;
}

/* The poster may not have returned yet: sanitizers see it touch what is gone. */
static void who_has_the_record_may_destroy(void **state)
{
    for (uint32_t i = 0; i < 2000; i++) {
        struct notify *notify;
        assert_int_equal(notify_create(&notify), STATUS_OK);
        pthread_t poster;
        assert_int_equal(pthread_create(&poster, NULL, post_once, notify), 0);
        struct notify_record record;
        assert_int_equal(notify_wait(notify, &record), 0);
        notify_destroy(notify);
        pthread_join(poster, NULL);
    }
}

/* One life of an object whose events are counted: destroyed while another thread takes one. */
#define LIVES 20000

struct counted {
    _Atomic uint32_t delivered;
};

static void count(const struct notify_record *record)
{
    struct counted *counted = record->object;
    counted->delivered++;
}

static void *take_until_told(void *argument)
{
    struct notify_record record;
    do {
        if (notify_wait_with(argument, count, &record) != 0) {
            return argument;
        }
    } while (record.value != 0);
    return NULL;
}

static void a_record_is_forgotten_or_counted(void **state)
{
    struct notify *notify;
    struct counted last = {0};
    pthread_t taker;
    void *failure;
    assert_int_equal(notify_create(&notify), STATUS_OK);
    assert_int_equal(pthread_create(&taker, NULL, take_until_told, notify), 0);
    for (uint32_t i = 0; i < LIVES; i++) {
        struct counted *counted = calloc(1, sizeof *counted);
        assert_non_null(counted);
        notify_post(notify, &(struct notify_record){counted, 1});
        uint32_t forgotten = notify_forget(notify, counted);
        assert_int_equal(forgotten + counted->delivered, 1);
        free(counted);
    }
    notify_post(notify, &(struct notify_record){&last, 0});
    pthread_join(taker, &failure);
    assert_null(failure);
    notify_destroy(notify);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_in_order_and_once),
        cmocka_unit_test(forgotten_records_take_their_token_along),
        cmocka_unit_test(a_child_forgets_without_waiting),
        cmocka_unit_test(blocked_reader_gets_every_record),
        cmocka_unit_test(who_has_the_record_may_destroy),
        cmocka_unit_test(a_record_is_forgotten_or_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
