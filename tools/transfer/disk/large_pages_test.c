/* Which parts of a file get large pages, and that it holds what was written, whatever comes of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>

#include "tools/transfer/disk/place.h"

#define MIB  ((size_t)1 << 20)
#define SIZE (73 * MIB) /* from 64 on twice what is asked for at once, and a rest */
#define LONG (64 * MIB + 30 * LARGE_PAGES_LENGTH)

int __real_madvise(void *bytes, size_t length, int advice);
int __wrap_madvise(void *bytes, size_t length, int advice);
int __real_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);

void *__real_mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset);

static unsigned asked;
static bool refuses;
static uint64_t work_ns, wait_ns;       /* what a call takes, */
static uint64_t clock_ns, processor_ns; /* and all have taken */

int __wrap_madvise(void *bytes, size_t length, int advice)
{
    assert_int_equal(length, LARGE_PAGES_LENGTH);
    assert_int_equal((uintptr_t)bytes % (2 * MIB), 0);
    asked++;
    clock_ns += work_ns + wait_ns;
    processor_ns += work_ns;
    if (refuses) {
        errno = EINVAL;
        return -1;
    }
    __real_madvise(bytes, length, advice); /* whether this kernel can does not matter */
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    uint64_t ns = clock == CLOCK_THREAD_CPUTIME_ID ? processor_ns : clock_ns;
    *ret_now = (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                                 .tv_nsec = (long)(ns % 1000000000u)};
    return 0;
}

static bool is_overtaken; /* by another thread, which has memory now where the file was to be */
static char *of_another;

/* The kernel may unmap what was there before it fails. */
void *__wrap_mmap64(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (is_overtaken && (flags & MAP_SHARED) != 0) {
        of_another = __real_mmap64(at, length, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        assert_ptr_equal(of_another, at);
        if ((flags & MAP_FIXED_NOREPLACE) == 0) {
            errno = ENOMEM;
            return MAP_FAILED;
        }
    }
    return __real_mmap64(at, length, protection, flags, fd, offset);
}

static int directory = -1;
static struct large_pages large;

static char file_name[64]; /* nobody else's */

/* In tmpfs, which /tmp need not be, and where there is room: containers have 64 MiB. */
static void begin(struct place *place)
{
    struct statfs system;
    asked = 0;
    refuses = false;
    work_ns = wait_ns = clock_ns = processor_ns = 0;
    if (directory < 0) {
        directory = open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (directory < 0 || fstatfs(directory, &system) != 0 || system.f_type != TMPFS_MAGIC ||
        (uint64_t)system.f_bavail * (uint64_t)system.f_bsize < 2 * LONG) {
        skip();
    }
    (void)snprintf(file_name, sizeof file_name, "weir-large-pages-test-%d", (int)getpid());
    assert_int_equal(place_begin(place, directory, file_name, REPLACE_FILES), 0);
    large = (struct large_pages){0};
    place->size = SIZE;
    place->large = &large;
}

static void fill(uint8_t *bytes, size_t offset)
{
    for (size_t i = 0; i < MIB; i++) {
        bytes[i] = (uint8_t)((offset + i) * 2654435761u >> 13 | 1);
    }
}

static void write_from_to(struct place *place, size_t from, size_t to)
{
    uint8_t *bytes = malloc(MIB);
    for (size_t at = from; at < to; at += MIB) {
        fill(bytes, at);
        assert_int_equal(place_write(place, bytes, MIB, at), 0);
    }
    free(bytes);
}

static void holds(const struct place *place, size_t from, size_t to)
{
    uint8_t *bytes = malloc(2 * MIB);
    for (size_t at = from; at < to; at += MIB) {
        fill(bytes, at);
        assert_int_equal(pread(place->fd, bytes + MIB, MIB, (off_t)at), MIB);
        assert_memory_equal(bytes, bytes + MIB, MIB);
    }
    free(bytes);
}

static void what_comes_in_order_gets_large_pages(void **state)
{
    struct place place;
    struct stat status;
    begin(&place);
    write_from_to(&place, 0, SIZE);
    assert_int_equal(asked, 2); /* not before that, nor for the rest */
    holds(&place, 0, SIZE);
    assert_int_equal(fstat(place.fd, &status), 0);
    assert_int_equal(status.st_size, SIZE);
    assert_int_equal(status.st_blocks * 512, SIZE);
    place_abandon(&place);
}

static void who_is_refused_does_not_ask_again(void **state)
{
    struct place place;
    begin(&place);
    refuses = true;
    write_from_to(&place, 0, SIZE);
    assert_int_equal(asked, 1);
    holds(&place, 0, SIZE);
    place_abandon(&place);
}

static unsigned asked_with(uint64_t each_works_ns, uint64_t each_waits_ns)
{
    struct place place;
    begin(&place);
    place.size = LONG;
    work_ns = each_works_ns;
    wait_ns = each_waits_ns;
    write_from_to(&place, 0, LONG);
    place_abandon(&place);
    return asked;
}

static void what_takes_long_is_asked_for_again_after_pauses(void **state)
{
    assert_int_equal(asked_with(500 * 1000, 0), 30);
    assert_int_equal(asked_with(20 * 1000 * 1000, 0), 1 + 1 + 1); /* and 8, 16, 3 are passed over */
    assert_int_equal(asked_with(1500 * 1000, 0), 3 + 3);          /* each loses 0.8 ms */
}

static void a_wait_for_a_processor_is_worth_more_than_work(void **state)
{
    assert_int_equal(asked_with(500 * 1000, 1000 * 1000), 30);
    assert_int_equal(asked_with(500 * 1000, 25 * 1000 * 1000), 1 + 1 + 1);
}

static void a_hole_stays_one(void **state)
{
    struct place place;
    begin(&place);
    write_from_to(&place, 0, 65 * MIB);
    assert_int_equal(asked, 1);
    assert_int_equal(place_hole(&place, 65 * MIB, 5 * MIB), 0);
    write_from_to(&place, 70 * MIB, SIZE);
    assert_int_equal(asked, 1);
    holds(&place, 0, 65 * MIB);
    holds(&place, 70 * MIB, SIZE);
    assert_int_equal(lseek(place.fd, 66 * MIB, SEEK_DATA), 70 * MIB);
    for (size_t at = 65 * MIB; at < 70 * MIB; at += MIB) {
        uint8_t byte = 1;
        assert_int_equal(pread(place.fd, &byte, 1, (off_t)at), 1);
        assert_int_equal(byte, 0);
    }
    place_abandon(&place);
}

/* A source that has become shorter meanwhile. */
static void what_ends_earlier_than_was_said_is_as_long_as_it_is(void **state)
{
    struct place place;
    struct stat status;
    begin(&place);
    write_from_to(&place, 0, 65 * MIB);
    assert_int_equal(asked, 1);
    assert_int_equal(fstat(place.fd, &status), 0);
    assert_true(status.st_size > (off_t)(65 * MIB)); /* ahead of what was written */
    const struct wishes no_wishes = {0};
    const struct attributes attributes = {.wishes = &no_wishes, .mode = 0600};
    assert_int_equal(place_commit(&place, 65 * MIB, &attributes), 0);
    int fd = openat(directory, file_name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(unlinkat(directory, file_name, 0), 0);
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_size, 65 * MIB);
    close(fd);
}

/* What an interrupted copy had left, for one. */
static void what_is_there_already_is_not_touched(void **state)
{
    struct place place;
    begin(&place);
    write_from_to(&place, 66 * MIB, 67 * MIB);
    write_from_to(&place, 0, 65 * MIB);
    assert_int_equal(asked, 0);
    holds(&place, 66 * MIB, 67 * MIB);
    place_abandon(&place);
}

static void what_another_thread_has_is_left_to_it(void **state)
{
    struct place place;
    unsigned char pages[LARGE_PAGES_LENGTH / 4096];
    begin(&place);
    is_overtaken = true;
    write_from_to(&place, 0, SIZE);
    is_overtaken = false;
    assert_non_null(of_another);
    assert_int_equal(mincore(of_another, LARGE_PAGES_LENGTH, pages), 0);
    munmap(of_another, LARGE_PAGES_LENGTH);
    assert_int_equal(asked, 0);
    holds(&place, 0, SIZE);
    place_abandon(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_in_order_gets_large_pages),
        cmocka_unit_test(who_is_refused_does_not_ask_again),
        cmocka_unit_test(what_takes_long_is_asked_for_again_after_pauses),
        cmocka_unit_test(a_wait_for_a_processor_is_worth_more_than_work),
        cmocka_unit_test(what_another_thread_has_is_left_to_it),
        cmocka_unit_test(a_hole_stays_one),
        cmocka_unit_test(what_ends_earlier_than_was_said_is_as_long_as_it_is),
        cmocka_unit_test(what_is_there_already_is_not_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
