/* What is rung is heard, by who has the bell and by nobody else. */
#include "rnic/io/system/bell.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool is_rung(int bell)
{
    struct pollfd watched = {.fd = bell, .events = POLLIN};
    return poll(&watched, 1, 0) == 1;
}

static void what_is_rung_is_heard_once(void **state)
{
    int bell = bell_create();
    assert_true(bell >= 0);
    assert_false(is_rung(bell));
    bell_hear(bell); /* nobody has rung, and nobody waits */
    assert_true(bell_ring(bell));
    assert_true(bell_ring(bell));
    assert_true(is_rung(bell));
    bell_hear(bell);
    assert_false(is_rung(bell));
    assert_false(bell_ring(-1));
    close(bell);
}

static int a_file(void)
{
    int file = memfd_create("bell-test", MFD_CLOEXEC);
    assert_true(file >= 0);
    return file;
}

static void anothers_is_rung_by_a_copy(void **state)
{
    int bell = bell_create(), file = a_file();
    int copy = bell_borrow(getpid(), bell, file, file);
    if (copy < 0) {
        skip(); /* this kernel does not let us */
    }
    close(copy);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(bell); /* which it has, too */
        copy = bell_borrow(parent, bell, file, file);
        _exit(copy >= 0 && bell_ring(copy) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) {
        skip(); /* a parent is not its child's to look into, here */
    }
    assert_true(is_rung(bell));
    assert_int_equal(bell_borrow(child, bell, file, file), -1); /* it is gone */
    assert_int_equal(bell_borrow(parent, 9999, file, file), -1);
    close(file);
    close(bell);
}

static struct {
    _Atomic pid_t number;
    atomic_bool ends;
} second;

static void *be_second(void *argument)
{
    atomic_store(&second.number, (pid_t)syscall(SYS_gettid));
    while (!atomic_load(&second.ends)) {
        usleep(1000);
    }
    return argument;
}

static void by_any_of_its_threads(void **state)
{
    int bell = bell_create(), file = a_file();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, be_second, NULL), 0);
    while (atomic_load(&second.number) == 0) {
        usleep(1000);
    }
    int copy = bell_borrow(getpid(), bell, file, file);
    if (copy >= 0) {
        close(copy);
        copy = bell_borrow(atomic_load(&second.number), bell, file, file);
        assert_true(copy >= 0 && bell_ring(copy) && is_rung(bell));
        close(copy);
    }
    atomic_store(&second.ends, true);
    pthread_join(thread, NULL);
    close(file);
    close(bell);
}

/* What stands for another process of that number: it has other files. */
static void who_has_another_file_is_somebody_else(void **state)
{
    int bell = bell_create(), file = a_file(), other = a_file();
    int copy = bell_borrow(getpid(), bell, file, file);
    if (copy < 0) {
        skip(); /* this kernel does not let us */
    }
    close(copy);
    int next = dup(bell);
    close(next);
    assert_int_equal(bell_borrow(getpid(), bell, other, file), -1);
    assert_int_equal(bell_borrow(getpid(), bell, 9999, file), -1);
    int again = dup(bell);
    assert_int_equal(again, next); /* nothing has been left open */
    close(again);
    close(other);
    close(file);
    close(bell);
}

static void what_is_no_bell_is_not_borrowed(void **state)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(bell_borrow(getpid(), ends[1], ends[0], ends[0]), -1);
    close(ends[0]);
    close(ends[1]);
}

/* A copy of it that is closed would give up what this process has locked. */
static void locks_on_what_is_no_bell_are_kept(void **state)
{
    int bell = bell_create(), file = a_file(), other = a_file();
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    assert_int_equal(fcntl(file, F_SETLK, &lock), 0);
    assert_int_equal(bell_borrow(getpid(), file, other, other), -1);
    assert_int_equal(bell_borrow(getpid(), bell, file, other), -1);
    assert_int_equal(fcntl(file, F_OFD_GETLK, &lock), 0);
    assert_int_equal(lock.l_type, F_WRLCK); /* somebody's, for whom this is another owner */
    assert_int_equal(lock.l_pid, getpid());
    close(other);
    close(file);
    close(bell);
}

static void who_has_many_descriptors_borrows_none(void **state)
{
    int bell = bell_create(), many[128], count = 0;
    do {
        many[count] = dup(bell);
        assert_true(many[count] >= 0);
    } while (many[count++] < 127);
    int next = dup(bell);
    close(next);
    assert_int_equal(bell_borrow(getpid(), bell, bell, bell), -1);
    int again = dup(bell);
    assert_int_equal(again, next); /* nothing has been left open */
    close(again);
    while (count > 0) {
        close(many[--count]);
    }
    close(bell);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_rung_is_heard_once),
        cmocka_unit_test(anothers_is_rung_by_a_copy),
        cmocka_unit_test(by_any_of_its_threads),
        cmocka_unit_test(who_has_another_file_is_somebody_else),
        cmocka_unit_test(what_is_no_bell_is_not_borrowed),
        cmocka_unit_test(locks_on_what_is_no_bell_are_kept),
        cmocka_unit_test(who_has_many_descriptors_borrows_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
