/* What becomes of the registry's lock when something befalls who takes it. */
#include "rnic/io/registry/registry_private.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct fixture {
    char path[64];
    struct registry *registry;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    snprintf(fixture->path, sizeof fixture->path, "/tmp/weir-lock-test-%ld", (long)getpid());
    unlink(fixture->path);
    assert_int_equal(registry_open(fixture->path, &fixture->registry), STATUS_OK);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    registry_close(fixture->registry);
    unlink(fixture->path);
    free(fixture);
    return 0;
}

static bool can_be_locked(struct registry *registry)
{
    bool locked = registry_try_lock(registry);
    if (locked) {
        registry_unlock(registry);
    }
    return locked;
}

/* Is not cancelled while it has the lock, and could be afterwards: it makes no other call that is a
 * cancellation point, since what is cancelled is not for AddressSanitizer. */
static void *claim(void *argument)
{
    struct fixture *fixture = argument;
    struct registry_name name = {.service_id = 1, .scope = REGISTRY_ANY};
    uint32_t index;
    int before;
    pthread_cancel(pthread_self());
    bool claimed = registry_claim(fixture->registry, &name, false, &index) == STATUS_OK;
    bool could_be_locked = can_be_locked(fixture->registry);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return claimed && could_be_locked && before == PTHREAD_CANCEL_ENABLE ? fixture : NULL;
}

static void who_has_it_is_not_cancelled(void **state)
{
    struct fixture *fixture = *state;
    struct registry_name name = {.service_id = 1, .scope = REGISTRY_ANY};
    pthread_t thread;
    void *result;
    uint32_t index;
    assert_int_equal(pthread_create(&thread, NULL, claim, fixture), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, fixture);
    assert_true(can_be_locked(fixture->registry));
    assert_int_equal(registry_claim(fixture->registry, &name, false, &index), STATUS_IN_USE);
}

/* It is no file of the program's that is written to. */
static void limit_of_files_is_no_signal(void **state)
{
    struct fixture *fixture = *state;
    struct registry *other;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    bool locked = can_be_locked(fixture->registry);
    enum status opened = registry_open(fixture->path, &other);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(locked);
    assert_int_equal(opened, STATUS_NO_MEMORY);
}

/* A program that closes all descriptors, and then opens files of its own. */
static void who_has_lost_the_file_buries_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct registry *other;
    struct registry_name name = {.service_id = 1, .scope = REGISTRY_ANY};
    uint32_t index, slot = registry_slot(fixture->registry);
    assert_int_equal(registry_open(fixture->path, &other), STATUS_OK);
    assert_int_equal(registry_claim(fixture->registry, &name, false, &index), STATUS_OK);
    int own = memfd_create("own", MFD_CLOEXEC);
    assert_int_equal(dup2(own, other->descriptor), other->descriptor);
    assert_true(registry_slot_lives(other, slot));
    assert_int_equal(registry_process_count(other), 2);
    assert_false(registry_try_lock(other));
    assert_int_equal(registry_claim(other, &name, false, &index), STATUS_STATE);
    assert_true(registry_slot_is_used(fixture->registry, slot));
    registry_close(other);
    assert_int_equal(registry_process_count(fixture->registry), 1);
    assert_int_equal(registry_claim(fixture->registry, &name, false, &index), STATUS_IN_USE);
    close(own);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_has_it_is_not_cancelled),
        TEST(limit_of_files_is_no_signal),
        TEST(who_has_lost_the_file_buries_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
