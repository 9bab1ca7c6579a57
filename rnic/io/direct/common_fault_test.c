/* Each of the kernel's calls fails once, in the way that costs most: mremap after it has unmapped
 * what it was to replace. Whatever fails, the memory is there, with its content, and it can be
 * tried again. */
#include "rnic/io/direct/common_test.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rnic/io/system/syscall_test.h"

#ifndef UFFDIO_MOVE /* Linux 6.8 */
struct uffdio_move {
    __u64 dst, src, len, mode;
    __s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif

#define PAGES 5u

static uint32_t calls_left; /* until one fails; 0: none does */

static uint32_t mappings;   /* asked for through these */
static uint8_t *to_protect; /* by the program, while it is turned */

/* The program's calls go through these, by the linker's --wrap. */
void *__real_mmap64(void *address, size_t length, int protection, int flags, int file,
                    off_t offset);
void *__wrap_mmap64(void *address, size_t length, int protection, int flags, int file,
                    off_t offset);

static bool fails_now(void)
{
    bool fails = calls_left == 1;
    calls_left -= calls_left > 0;
    errno = fails ? ENOMEM : errno;
    return fails;
}

/* Not those that give something back, which nothing is to be done about. */
static bool can_fail(long number, const long *arguments)
{
    switch (number) {
    case SYS_ioctl:
        return arguments[1] == (long)UFFDIO_REGISTER || arguments[1] == (long)UFFDIO_MOVE ||
               arguments[1] == (long)UFFDIO_WRITEPROTECT;
    case SYS_mremap:
    case SYS_mmap:
    case SYS_mprotect:
    case SYS_madvise:
        return true;
    default:
        return false;
    }
}

static void fail_thoroughly(long number, const long *arguments)
{
    if (number == SYS_mremap) {
        assert_int_equal(munmap((void *)arguments[4], (size_t)arguments[2]), 0);
    } else if (number == SYS_ioctl && arguments[1] == (long)UFFDIO_MOVE) {
        ((struct uffdio_move *)arguments[2])->move = -ENOMEM;
    }
    errno = ENOMEM;
}

long __wrap_syscall(long number, ...)
{
    long arguments[SYSCALL_ARGUMENTS];
    va_list list;
    va_start(list, number);
    take_arguments(list, arguments);
    va_end(list);
    if (to_protect != NULL && number == SYS_madvise) {
        (void)__real_syscall(SYS_mprotect, to_protect, (long)(PAGES * PAGE), PROT_READ);
        to_protect = NULL;
    }
    if (can_fail(number, arguments) && fails_now()) {
        fail_thoroughly(number, arguments);
        return -1;
    }
    return pass_on(number, arguments);
}

void *__wrap_mmap64(void *address, size_t length, int protection, int flags, int file, off_t offset)
{
    mappings++;
    return fails_now() ? MAP_FAILED
                       : __real_mmap64(address, length, protection, flags, file, offset);
}

static uint32_t file_mappings(void)
{
    char line[256];
    uint32_t count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        count += strstr(line, COMMON_NAME) != NULL;
    }
    fclose(file);
    return count;
}

static void assert_whole(uint8_t *pages)
{
    assert_true(is_filled(pages, PAGES * PAGE, 1));
    fill(pages, PAGES * PAGE, 1); /* it can be written, too */
}

/* True: there was such a call. */
static bool begin_and_fail(uint8_t *pages, uint32_t call, struct common_range *ret_range)
{
    calls_left = call;
    enum status status = common_begin(common, pages, PAGES * PAGE, ret_range);
    bool failed = calls_left == 0;
    calls_left = 0;
    assert_whole(pages);
    assert_int_equal(file_mappings(), status == STATUS_OK ? 1 : 0);
    if (status != STATUS_OK) {
        assert_true(failed);
        *ret_range = begin(pages, PAGES * PAGE);
        assert_whole(pages);
    }
    return failed;
}

static bool end_and_fail(uint8_t *pages, uint32_t call, struct common_range *range)
{
    calls_left = call;
    enum status status = common_end(common, range);
    bool failed = calls_left == 0;
    calls_left = 0;
    assert_whole(pages);
    if (status != STATUS_OK) {
        assert_true(failed);
        assert_int_equal(common_end(common, range), STATUS_OK);
        assert_whole(pages);
    }
    assert_int_equal(file_mappings(), 0);
    return failed;
}

/* Of two mappings. */
static void whatever_fails_nothing_is_lost(void **state)
{
    uint8_t *pages = make_pages(PAGES);
    fill(pages, PAGES * PAGE, 1);
    assert_int_equal(madvise(pages, 2 * PAGE, MADV_DONTDUMP), 0);
    bool more = true;
    uint32_t call = 1;
    for (; more; call++) {
        struct common_range range;
        more = begin_and_fail(pages, call, &range);
        more |= end_and_fail(pages, call, &range);
    }
    assert_true(call > 10 && mappings > 0); /* it has been at them */
    char listing[256];
    read_listing(pages + PAGE, "VmFlags", listing, sizeof listing);
    assert_non_null(strstr(listing, " dd "));
    munmap(pages, PAGES * PAGE);
}

static void what_is_protected_meanwhile_stays_protected(void **state)
{
    char listing[256];
    uint8_t *pages = make_pages(PAGES);
    fill(pages, PAGES * PAGE, 1);
    struct common_range range = begin(pages, PAGES * PAGE);
    to_protect = pages;
    if (common_end(common, &range) != STATUS_OK) {
        assert_int_equal(common_end(common, &range), STATUS_OK);
    }
    assert_null(to_protect);
    assert_true(is_filled(pages, PAGES * PAGE, 1));
    read_listing(pages, "", listing, sizeof listing);
    assert_non_null(strstr(listing, "r--p"));
    munmap(pages, PAGES * PAGE);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_fails_nothing_is_lost),
        cmocka_unit_test(what_is_protected_meanwhile_stays_protected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return run_with_common(run);
}
