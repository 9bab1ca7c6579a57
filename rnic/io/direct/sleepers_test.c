/* Who sleeps where, as /proc tells. */
#include "rnic/io/direct/sleepers.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static _Alignas(64) _Atomic uint32_t word, elsewhere;

static bool sleeps_at(_Atomic uint32_t *place)
{
    return sleepers_are_in((uint8_t *)(uintptr_t)place, sizeof *place);
}

static void *sleep_there(void *argument)
{
    while (atomic_load(&word) == 0) {
        syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
    }
    return argument;
}

static pthread_t start_sleeper(void)
{
    pthread_t thread;
    atomic_store(&word, 0);
    assert_int_equal(pthread_create(&thread, NULL, sleep_there, NULL), 0);
    while (!sleeps_at(&word)) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return thread;
}

static void end_sleeper(pthread_t thread)
{
    atomic_store(&word, 1);
    syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void sleeper_is_found(void **state)
{
    assert_false(sleeps_at(&word));
    pthread_t thread = start_sleeper();
    assert_true(sleeps_at(&word));
    assert_false(sleeps_at(&elsewhere));
    end_sleeper(thread);
    assert_false(sleeps_at(&word));
}

/* The folder can still be opened, and no thread's file in it. */
static void who_cannot_look_believes_in_a_sleeper(void **state)
{
    struct rlimit before, few;
    pthread_t thread = start_sleeper();
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)next + 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    bool found = sleeps_at(&word);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    end_sleeper(thread);
    assert_true(found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sleeper_is_found),
        cmocka_unit_test(who_cannot_look_believes_in_a_sleeper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
