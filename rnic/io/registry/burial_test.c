/* Who notices a death, and when: processes are forked children with a registry in a temporary file.
 * What is done then is wills_test.c's, cm_will_test.c's and test/many's matter. */
#include "rnic/io/registry/burial.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/clock.h"

struct fixture {
    char path[64];
    struct registry *registry;
    struct burial burial;
};

static void wake(void *context)
{
    (void)context;
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    snprintf(fixture->path, sizeof fixture->path, "/tmp/weir-burial-test-%ld", (long)getpid());
    unlink(fixture->path);
    assert_int_equal(registry_open(fixture->path, &fixture->registry), STATUS_OK);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    burial_close(&fixture->burial);
    registry_close(fixture->registry);
    free(fixture);
    return 0;
}

/* A process that had a slot has died. */
static void let_one_die(struct fixture *fixture)
{
    int ready[2];
    char done = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct registry *registry;
        done = registry_open(fixture->path, &registry) == STATUS_OK;
        if (write(ready[1], &done, 1) == 1) {
            alarm(60);
            pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], &done, 1), 1);
    assert_int_equal(done, 1);
    close(ready[0]);
    close(ready[1]);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void the_kernel_tells_of_a_death(void **state)
{
    struct fixture *fixture = *state;
    struct burial *burial = &fixture->burial;
    burial_open(burial, fixture->registry, NULL, wake, NULL);
    (void)burial_advance(burial);
    assert_true(instant_is_never(burial_next_deadline(burial))); /* an idle process sleeps */
    let_one_die(fixture);
    struct pollfd told = {.fd = burial->descriptor, .events = POLLIN};
    assert_int_equal(poll(&told, 1, 60000), 1);
    burial_hear(burial);
    burial->next_look = clock_now();
    assert_true(burial_advance(burial));
    assert_int_equal(burial->deaths, 1);
}

/* The user's inotify instances are used up, for which files do here. */
static void who_is_not_told_looks(void **state)
{
    struct fixture *fixture = *state;
    struct burial *burial = &fixture->burial;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    burial_open(burial, fixture->registry, NULL, wake, NULL);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(burial->descriptor, -1);
    for (uint32_t death = 1; death <= 3; death++) {
        (void)burial_advance(burial);
        assert_false(instant_is_never(burial_next_deadline(burial)));
        let_one_die(fixture);
        burial->search = clock_now(); /* a second later, */
        burial->told = (struct instant){0};
        atomic_store(&fixture->registry->file->searched_ns, 0); /* nobody having looked */
        (void)burial_advance(burial);
        assert_int_equal(burial->deaths, death);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_kernel_tells_of_a_death),
        TEST(who_is_not_told_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
