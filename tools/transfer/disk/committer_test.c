/* Files that get their names from two threads. */
#include "tools/transfer/disk/committer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/disk/quiet_thread.h"
#include "tools/transfer/disk/scratch.h"

#define MANY 1000

int __real_linkat(int from, const char *path, int to, const char *name, int flags);
int __wrap_linkat(int from, const char *path, int to, const char *name, int flags);
bool __real_quiet_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);
bool __wrap_quiet_thread_start(pthread_t *thread, void *(*run)(void *), void *argument);

static pthread_t owner;
static atomic_uint by_owner, by_other;
static bool no_threads;
/* The other one does not come to an end with a name while this is locked. */
static pthread_mutex_t stalled = PTHREAD_MUTEX_INITIALIZER;

int __wrap_linkat(int from, const char *path, int to, const char *name, int flags)
{
    if (pthread_equal(pthread_self(), owner)) {
        by_owner++;
    } else {
        pthread_mutex_lock(&stalled);
        pthread_mutex_unlock(&stalled);
        by_other++;
    }
    return __real_linkat(from, path, to, name, flags);
}

bool __wrap_quiet_thread_start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    return !no_threads && __real_quiet_thread_start(thread, run, argument);
}

struct test {
    struct scratch *scratch;
    struct committer *committer;
    unsigned given, taken;
    int errors[MANY];
};

static int set_up(void **state)
{
    struct test *test = calloc(1, sizeof(*test));
    owner = pthread_self();
    by_owner = by_other = 0;
    no_threads = false;
    test->scratch = scratch_create();
    test->committer = committer_create();
    assert_non_null(test->committer);
    *state = test;
    return 0;
}

static int tear_down(void **state)
{
    struct test *test = *state;
    committer_destroy(test->committer);
    scratch_destroy(test->scratch);
    free(test);
    return 0;
}

static void name_of(unsigned number, char ret_name[16])
{
    snprintf(ret_name, 16, "f%u", number);
}

static void give(struct test *test)
{
    char name[16];
    struct commit commit = {.length = 4, .id = test->given};
    commit.attributes = (struct attributes){.mode = 0640, .mtime = {.tv_sec = 1000 + test->given}};
    name_of(test->given, name);
    assert_int_equal(
        place_begin_absent(&commit.place, test->scratch->fd, name, REPLACE_FILES, 0600), 0);
    assert_int_equal(place_write(&commit.place, &test->given, 4, 0), 0);
    committer_give(test->committer, &commit);
    test->given++;
}

/* They come back in the order they were given. */
static void take(struct test *test)
{
    struct commit commit;
    while (committer_take(test->committer, &commit)) {
        assert_int_equal(commit.id, test->taken);
        test->errors[test->taken++] = commit.error;
    }
}

static void settle(struct test *test)
{
    while (!committer_is_empty(test->committer)) {
        committer_help(test->committer);
        take(test);
    }
    assert_int_equal(test->taken, test->given);
}

static void give_many(struct test *test)
{
    while (test->given < MANY) {
        while (committer_is_full(test->committer)) {
            committer_help(test->committer);
            take(test);
        }
        give(test);
        take(test);
    }
}

static void expect_file(struct test *test, unsigned number)
{
    char name[16], bytes[4] = "";
    struct stat status;
    name_of(number, name);
    assert_int_equal(fstatat(test->scratch->fd, name, &status, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(status.st_mode, S_IFREG | 0640);
    assert_int_equal(status.st_mtim.tv_sec, 1000 + number);
    assert_int_equal(status.st_size, 4);
    int fd = openat(test->scratch->fd, name, O_RDONLY);
    assert_int_equal(read(fd, bytes, 4), 4);
    assert_memory_equal(bytes, &number, 4);
    close(fd);
}

static void many_get_their_names_from_two(void **state)
{
    struct test *test = *state;
    for (unsigned i = 0; i < COMMITTER_ROOM / 2; i++) {
        give(test);
    }
    while (by_other == 0) {
        usleep(100);
    }
    give_many(test);
    settle(test);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(test->errors[i], 0);
        expect_file(test, i);
    }
    assert_int_equal(by_owner + by_other, MANY);
}

static void without_a_thread_the_owner_does_them_all(void **state)
{
    struct test *test = *state;
    no_threads = true;
    give_many(test);
    settle(test);
    assert_int_equal(by_owner, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        expect_file(test, i);
    }
}

static void a_few_need_no_thread(void **state)
{
    struct test *test = *state;
    give(test);
    give(test);
    committer_urge(test->committer);
    take(test);
    assert_int_equal(test->taken, 2);
    give(test);
    settle(test);
    assert_int_equal(by_owner, 3);
}

static void an_error_is_that_file_s_alone(void **state)
{
    struct test *test = *state;
    assert_int_equal(mkdirat(test->scratch->fd, "f100", 0700), 0);
    scratch_write(test->scratch, "f100/full", "in the way");
    give_many(test);
    settle(test);
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(test->errors[i], i == 100 ? EISDIR : 0);
    }
}

/* What the other one does not get done is in nobody's way but at the end. */
static void who_would_wait_helps(void **state)
{
    struct test *test = *state;
    pthread_mutex_lock(&stalled);
    while (!committer_is_full(test->committer)) {
        give(test);
    }
    while (by_owner < COMMITTER_ROOM - 1) { /* all but the one that the other has begun */
        committer_help(test->committer);
        assert_false(by_other > 0);
    }
    take(test);
    assert_true(test->taken < test->given);
    pthread_mutex_unlock(&stalled);
    settle(test);
    assert_int_equal(by_owner + by_other, COMMITTER_ROOM);
}

static void what_was_urged_is_done_without_help(void **state)
{
    struct test *test = *state;
    give_many(test); /* there is a thread from here on */
    settle(test);
    test->given = 0; /* these have names that must go */
    test->taken = 0;
    unsigned before = by_owner;
    for (unsigned i = 0; i < 3; i++) {
        give(test);
    }
    committer_urge(test->committer);
    while (test->taken < 3) {
        take(test);
        usleep(100);
    }
    assert_int_equal(by_owner, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        T(many_get_their_names_from_two), T(without_a_thread_the_owner_does_them_all),
        T(a_few_need_no_thread),          T(an_error_is_that_file_s_alone),
        T(who_would_wait_helps),          T(what_was_urged_is_done_without_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
