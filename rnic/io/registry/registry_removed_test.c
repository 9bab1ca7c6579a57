/* The file is removed under those who live in it: who comes next joins them. */
#include "rnic/io/registry/registry_private.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static char path[64];

static int setup(void **state)
{
    snprintf(path, sizeof path, "/tmp/weir-removed-test-%ld", (long)getpid());
    unlink(path);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return 0;
}

static struct registry *open_registry(void)
{
    struct registry *registry;
    assert_int_equal(registry_open(path, &registry), STATUS_OK);
    return registry;
}

/* A process that lives in it until it is killed. */
static pid_t start_holder(uint32_t *ret_slot)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct registry *registry;
        uint32_t slot =
            registry_open(path, &registry) == STATUS_OK ? registry_slot(registry) : SLOT_NONE;
        if (write(ready[1], &slot, sizeof slot) == (ssize_t)sizeof slot) {
            pause();
        }
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], ret_slot, sizeof *ret_slot), sizeof *ret_slot);
    close(ready[0]);
    assert_int_not_equal(*ret_slot, SLOT_NONE);
    return child;
}

static void end_holder(pid_t holder)
{
    kill(holder, SIGKILL);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
}

static void who_comes_next_joins_who_lives(void **state)
{
    uint32_t slot;
    pid_t holder = start_holder(&slot);
    assert_int_equal(unlink(path), 0);
    struct registry *registry = open_registry();
    assert_int_equal(access(path, F_OK), -1);
    assert_true(registry_slot_is_used(registry, slot));
    assert_int_equal(registry_process_count(registry), 2);
    int deaths = inotify_init1(IN_CLOEXEC);
    assert_true(inotify_add_watch(deaths, registry->path, IN_CLOSE_WRITE) >= 0);
    close(deaths);
    end_holder(holder);
    assert_int_equal(registry_process_count(registry), 1);
    holder = start_holder(&slot); /* through who has joined */
    assert_int_equal(registry_process_count(registry), 2);
    end_holder(holder);
    registry_close(registry);

    registry = open_registry(); /* nobody lived there */
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(registry_process_count(registry), 1);
    registry_close(registry);
    assert_int_equal(access(path, F_OK), -1);
}

static void in_what_nobody_lives_nobody_joins(void **state)
{
    for (mode_t mode = 0600; mode <= 0644; mode += 044) {
        int left = open(path, O_RDWR | O_CREAT | O_CLOEXEC, mode);
        assert_int_equal(fchmod(left, mode), 0);
        assert_int_equal(unlink(path), 0);
        struct registry *registry = open_registry();
        assert_int_equal(access(path, F_OK), 0);
        registry_close(registry);
        close(left);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_comes_next_joins_who_lives),
        TEST(in_what_nobody_lives_nobody_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
