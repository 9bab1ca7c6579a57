#include "rnic/io/system/sealed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define NAME  "weir-sealed-file-test"
#define BYTES 8192u

static void nobody_cuts_it_short(void **state)
{
    struct stat facts;
    int file = sealed_file_create(NAME, BYTES);
    assert_true(file >= 0);
    assert_int_equal(fstat(file, &facts), 0);
    assert_int_equal(facts.st_size, BYTES);
    assert_int_equal(ftruncate(file, 0), -1);
    assert_int_equal(ftruncate(file, 2 * BYTES), -1);
    assert_int_equal(fcntl(file, F_GETFD), FD_CLOEXEC);
    close(file);
}

static void what_is_shown_is_written_by_its_owner_alone(void **state)
{
    void *mapped;
    int file = sealed_file_create_to_show(NAME, BYTES, &mapped);
    assert_true(file >= 0);
    ((volatile uint8_t *)mapped)[BYTES - 1] = 'a';
    const uint8_t *seen = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0);
    assert_true(seen != MAP_FAILED);
    assert_int_equal(seen[BYTES - 1], 'a');
    assert_int_equal(mprotect((void *)(uintptr_t)seen, BYTES, PROT_READ | PROT_WRITE), -1);
    assert_ptr_equal(mmap(NULL, BYTES, PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
    assert_int_equal(pwrite(file, "b", 1, 0), -1);
    assert_int_equal(ftruncate(file, 0), -1);
    munmap((void *)(uintptr_t)seen, BYTES);
    munmap(mapped, BYTES);
    close(file);
}

static void a_limit_is_no_signal(void **state)
{
    struct rlimit before, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = BYTES - 1;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    int file = sealed_file_create(NAME, BYTES);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(file, -1);
}

/* A program that has closed its standard streams goes on printing. */
static void none_stands_in_for_a_standard_stream(void **state)
{
    struct stat facts;
    enum status status;
    int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(STDIN_FILENO);
    int file = sealed_file_create(NAME, BYTES);
    int again = sealed_file_open(getpid(), file, SEALED_FILE_LINK(NAME), &facts, &status);
    int free_number = dup(file);
    close(STDIN_FILENO);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    assert_true(file > STDERR_FILENO);
    assert_true(again > STDERR_FILENO);
    assert_int_equal(free_number, STDIN_FILENO);
    close(again);
    close(file);
}

static void only_what_is_sealed_is_opened(void **state)
{
    struct stat facts;
    enum status status;
    int file = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(file >= 0);
    assert_int_equal(sealed_file_open(getpid(), file, SEALED_FILE_LINK(NAME), &facts, &status), -1);
    assert_int_equal(status, STATUS_NOT_FOUND);
    close(file);
    file = sealed_file_create("weir-other", BYTES);
    assert_int_equal(sealed_file_open(getpid(), file, SEALED_FILE_LINK(NAME), &facts, &status), -1);
    assert_int_equal(status, STATUS_NOT_FOUND);
    close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_cuts_it_short),
        cmocka_unit_test(what_is_shown_is_written_by_its_owner_alone),
        cmocka_unit_test(a_limit_is_no_signal),
        cmocka_unit_test(none_stands_in_for_a_standard_stream),
        cmocka_unit_test(only_what_is_sealed_is_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
