#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/transfer/disk/scratch.h"
#include "tools/transfer/disk/source.h"

/* More often than not the clock of files stands still meanwhile; Linux 6.13 makes it go on. */
#define TIMES 20

int __real_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __real_nanosleep(const struct timespec *time, struct timespec *ret_left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left);

static struct timespec standing; /* what the clock says; zero: it goes */
static unsigned naps;            /* after the third it goes on */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    *ret_now = standing;
    ret_now->tv_sec += naps >= 3;
    return standing.tv_sec != 0 ? 0 : __real_clock_gettime(clock, ret_now);
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left)
{
    naps++;
    return standing.tv_sec != 0 ? 0 : __real_nanosleep(time, ret_left);
}

static int set_up(void **state)
{
    standing = (struct timespec){0};
    *state = scratch_create();
    return 0;
}

static int tear_down(void **state)
{
    scratch_destroy(*state);
    return 0;
}

static int open_file(const struct scratch *scratch, int access, struct stat *ret_status)
{
    int fd = openat(scratch->fd, "f", access | O_CLOEXEC);
    assert_int_equal(fstat(fd, ret_status), 0);
    return fd;
}

/* A file of four bytes, as it has just been written. The source has the descriptor. */
static int begin(const struct scratch *scratch, int access, struct source *ret_source)
{
    struct stat status;
    scratch_write(scratch, "f", "1111");
    int fd = open_file(scratch, access, &status);
    source_open(ret_source, fd, &status);
    return fd;
}

static void what_has_just_been_written_is_seen_to_change(void **state)
{
    const struct scratch *scratch = *state;
    for (unsigned i = 0; i < TIMES; i++) {
        struct source source;
        const char *text = "";
        char bytes[4];
        int fd = begin(scratch, O_RDWR, &source);
        assert_int_equal(source_read(&source, bytes, 2, 2, &text), PROBLEM_NONE);
        assert_int_equal(pwrite(fd, "2222", 4, 0), 4);
        assert_int_equal(source_read(&source, bytes + 2, 2, 2, &text), PROBLEM_NONE);
        assert_memory_equal(bytes, "1122", 4); /* which it never held */
        assert_int_equal(source_check(&source, &text), PROBLEM_CHANGED);
        source_close(&source);
    }
}

static void what_stays_is_not_taken_for_changed(void **state)
{
    const struct scratch *scratch = *state;
    for (unsigned i = 0; i < TIMES; i++) {
        struct source source;
        const char *text = "";
        char bytes[4];
        (void)begin(scratch, O_RDONLY, &source);
        assert_int_equal(source_read(&source, bytes, 4, 4, &text), PROBLEM_NONE);
        assert_int_equal(source_check(&source, &text), PROBLEM_NONE);
        source_close(&source);
    }
}

/* How often the clock is waited for, if it says `seconds` and `ns` more than the time of the last
 * change. */
static unsigned naps_at(const struct scratch *scratch, time_t seconds, long ns)
{
    struct source source;
    struct stat status;
    int fd = open_file(scratch, O_RDONLY, &status);
    status.st_ctim.tv_nsec = 500000000;
    standing = status.st_ctim;
    standing.tv_sec += seconds;
    standing.tv_nsec += ns;
    naps = 0;
    source_open(&source, fd, &status);
    source_close(&source);
    return naps;
}

static void the_next_tick_is_waited_for_and_nothing_else(void **state)
{
    const struct scratch *scratch = *state;
    scratch_write(scratch, "f", "1111");
    assert_int_equal(naps_at(scratch, 0, 0), 3);
    assert_int_equal(naps_at(scratch, 0, -3000000), 3); /* it is a little ahead */
    assert_int_equal(naps_at(scratch, 0, 1), 0);
    assert_int_equal(naps_at(scratch, 1, 0), 0);
    assert_int_equal(naps_at(scratch, 0, -400000000), 0); /* the clock was set back */
    assert_int_equal(naps_at(scratch, -1, 0), 0);
    assert_int_equal(naps_at(scratch, -86400, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        T(what_has_just_been_written_is_seen_to_change),
        T(what_stays_is_not_taken_for_changed),
        T(the_next_tick_is_waited_for_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
