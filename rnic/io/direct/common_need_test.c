/* When it cannot be done, or not just now: then nothing has changed. */
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "rnic/io/direct/common_private.h"
#include "rnic/io/direct/common_test.h"
#include "rnic/io/direct/hold.h"
#include "rnic/io/system/stretch.h"

static void pages_that_may_be_pinned_are_left(void **state)
{
    uint8_t *pages = make_pages(2);
    fill(pages, 2 * PAGE, 1);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (file < 0) {
        skip(); /* a file system without */
    }
    assert_denied(pages, 2 * PAGE);
    close(file);
    struct common_range range = begin(pages, 2 * PAGE);
    file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC | O_DIRECT);
    assert_int_equal(common_end(common, &range), STATUS_BUSY);
    assert_true(is_filled(pages, 2 * PAGE, 1));
    assert_int_equal(common_end_anyway(common, &range), STATUS_OK);
    assert_true(is_filled(pages, 2 * PAGE, 1));
    close(file);

    range = begin(pages, 2 * PAGE);
    file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC | O_DIRECT);
    assert_int_equal(munmap(pages, PAGE), 0);
    assert_int_equal(common_end(common, &range), STATUS_BUSY);
    assert_true(file_pages() > 0);
    munmap(pages + PAGE, PAGE); /* nobody's now, whatever the kernel does to it */
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_int_equal(file_pages(), 0);
    close(file);
}

/* As a daemon does that closes all above its own. */
static void a_descriptor_that_is_another_file_is_not_taken_for_ours(void **state)
{
    uint8_t *pages = make_pages(2);
    fill(pages, 2 * PAGE, 1);
    FILE *other = tmpfile();
    assert_non_null(other);
    struct common_range range = begin(pages, 2 * PAGE);
    int ours = common_descriptor(common), copy = dup(ours);
    assert_int_equal(dup2(fileno(other), ours), ours);
    assert_int_equal(common_end(common, &range), STATUS_BUSY);
    assert_true(is_filled(pages, 2 * PAGE, 1));
    assert_denied(pages, 2 * PAGE);
    assert_int_equal(lseek(fileno(other), 0, SEEK_END), 0);
    assert_int_equal(dup2(copy, ours), ours);
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(pages, 2 * PAGE, 1));

    assert_int_equal(dup2(fileno(other), ours), ours);
    assert_denied(pages, 2 * PAGE);
    assert_true(is_filled(pages, 2 * PAGE, 1));
    assert_int_equal(dup2(copy, ours), ours);
    close(copy);
    fclose(other);
    munmap(pages, 2 * PAGE);
}

static void none_of_them_is_used_or_closed_when_it_is_the_programs(void **state)
{
    const int ours[] = {common->file, common->stretches, common->pages, common->hold};
    uint8_t *pages = make_pages(2);
    fill(pages, 2 * PAGE, 1);
    FILE *other = tmpfile();
    assert_non_null(other);
    struct common_range range = begin(pages, 2 * PAGE);
    for (uint32_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        int copy = dup(ours[i]), status;
        assert_int_equal(dup2(fileno(other), ours[i]), ours[i]);
        assert_int_equal(common_end(common, &range), STATUS_BUSY);
        pid_t child = fork();
        if (child == 0) {
            common_abandon(common);
            _exit(fcntl(ours[i], F_GETFD) >= 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(dup2(copy, ours[i]), ours[i]);
        close(copy);
    }
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(pages, 2 * PAGE, 1));
    fclose(other);
    munmap(pages, 2 * PAGE);
}

#define FIBER_PAGES 32u

static ucontext_t fiber, maker;
static struct common_range fibers_stack;
static enum status fibers_status;

static void end_own_stack(void)
{
    fibers_status = common_end(common, &fibers_stack);
}

static void a_fiber_does_not_turn_its_stack_back(void **state)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* they must be told of fibers */
#endif
    uint8_t *pages = make_pages(FIBER_PAGES);
    memset(pages, 0, (size_t)FIBER_PAGES * PAGE);
    fibers_stack = begin(pages, (uint64_t)FIBER_PAGES * PAGE);
    assert_int_equal(getcontext(&fiber), 0);
    fiber.uc_stack.ss_sp = pages;
    fiber.uc_stack.ss_size = (size_t)FIBER_PAGES * PAGE;
    fiber.uc_link = &maker;
    makecontext(&fiber, end_own_stack, 0);
    assert_int_equal(swapcontext(&maker, &fiber), 0);
    assert_int_equal(fibers_status, STATUS_BUSY);
    assert_int_equal(common_end(common, &fibers_stack), STATUS_OK);
    munmap(pages, (size_t)FIBER_PAGES * PAGE);
}

/* A thread that reads from `from`, whose pages the kernel pins while it waits for the page at `to`
 * to be given. */
struct pinning {
    uint8_t *from, *to;
    ssize_t moved;
};

static void *read_own_memory(void *argument)
{
    struct pinning *pinning = argument;
    struct iovec here = {pinning->to, 2 * PAGE}, there = {pinning->from, 2 * PAGE};
    pinning->moved = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    return NULL;
}

static void a_pinned_page_is_noticed(void **state)
{
    pthread_t thread;
    uint8_t *pages = make_pages(4), *target = make_pages(2);
    fill(pages, 4 * PAGE, 1);
    struct pinning pinning = {.from = pages + PAGE, .to = target};
    int hold = hold_open();
    assert_int_equal(hold_absent(hold, target, 2 * PAGE), STATUS_OK);
    assert_int_equal(pthread_create(&thread, NULL, read_own_memory, &pinning), 0);
    struct pollfd waits = {.fd = hold, .events = POLLIN};
    assert_int_equal(poll(&waits, 1, 10000), 1); /* somebody waits for a page */

    struct common_range range;
    assert_int_equal(common_begin(common, pages, 4 * PAGE, &range), STATUS_BUSY);
    assert_true(is_filled(pages, 4 * PAGE, 1));
    char listing[256];
    read_listing(pages, "", listing, sizeof listing);
    assert_non_null(strstr(listing, "rw-p"));

    hold_release(hold, target, 2 * PAGE);
    pthread_join(thread, NULL);
    assert_int_equal(pinning.moved, 2 * PAGE);
    assert_memory_equal(target, pages + PAGE, 2 * PAGE);
    range = begin(pages, 4 * PAGE);
    assert_true(is_filled(pages, 4 * PAGE, 1));
    assert_int_equal(common_end(common, &range), STATUS_OK);
    close(hold);
    munmap(target, 2 * PAGE);
    munmap(pages, 4 * PAGE);
}

/* A thread that sleeps as in a semaphore that is made for several processes. */
struct sleeper {
    _Atomic uint32_t *word;
    int operation;
    _Atomic pid_t thread;
    pthread_t handle;
};

static void *sleep_there(void *argument)
{
    struct sleeper *sleeper = argument;
    atomic_store(&sleeper->thread, (pid_t)syscall(SYS_gettid));
    while (atomic_load(sleeper->word) == 1) {
        (void)syscall(SYS_futex, sleeper->word, sleeper->operation, 1, NULL, NULL, 0);
    }
    return NULL;
}

static void put_to_sleep(struct sleeper *sleeper)
{
    assert_int_equal(pthread_create(&sleeper->handle, NULL, sleep_there, sleeper), 0);
    for (bool sleeps = false; !sleeps; sched_yield()) {
        char path[64], line[16] = "";
        snprintf(path, sizeof path, "/proc/self/task/%d/syscall", atomic_load(&sleeper->thread));
        FILE *file = fopen(path, "re");
        sleeps = file != NULL && fgets(line, sizeof line, file) != NULL && atoi(line) == SYS_futex;
        if (file != NULL) {
            fclose(file);
        }
    }
}

static void wake(struct sleeper *sleeper)
{
    *sleeper->word = 0;
    int operation = FUTEX_WAKE | (sleeper->operation & FUTEX_PRIVATE_FLAG);
    assert_int_equal(syscall(SYS_futex, sleeper->word, operation, 1, NULL, NULL, 0), 1);
    pthread_join(sleeper->handle, NULL);
    *sleeper->word = 1;
}

static void sleepers_are_woken(void **state)
{
    struct common_range range;
    uint8_t *pages = make_pages(3);
    memset(pages, 0, 3 * PAGE);
    struct sleeper sleeper = {.word = (_Atomic uint32_t *)(pages + 2 * PAGE + 40)};
    *sleeper.word = 1;
    /* Known by its address. */
    sleeper.operation = FUTEX_WAIT | FUTEX_PRIVATE_FLAG;
    put_to_sleep(&sleeper);
    range = begin(pages, 3 * PAGE);
    wake(&sleeper);
    put_to_sleep(&sleeper);
    assert_int_equal(common_end(common, &range), STATUS_OK);
    wake(&sleeper);
    /* Known by its page. */
    sleeper.operation = FUTEX_WAIT;
    put_to_sleep(&sleeper);
    assert_int_equal(common_begin(common, pages, 3 * PAGE, &range), STATUS_BUSY);
    struct common_range other = begin(pages, 2 * PAGE);
    assert_int_equal(common_end(common, &other), STATUS_OK);
    wake(&sleeper);
    range = begin(pages, 3 * PAGE);
    put_to_sleep(&sleeper);
    assert_int_equal(common_end(common, &range), STATUS_BUSY);
    assert_int_equal(*sleeper.word, 1);
    wake(&sleeper);
    assert_int_equal(common_end(common, &range), STATUS_OK);
    munmap(pages, 3 * PAGE);
}

/* There and back, where any step may fail; then it is as before, and can be tried again. `relief`
 * makes it possible. */
static void turn_in_need(uint8_t *pages, uint32_t count, void (*relief)(void))
{
    struct common_range range;
    enum status status = common_begin(common, pages, (uint64_t)count * PAGE, &range);
    assert_true(status == STATUS_OK || status == STATUS_NO_MEMORY);
    assert_true(is_filled(pages, count * PAGE, 1));
    if (status != STATUS_OK) {
        relief();
        range = begin(pages, (uint64_t)count * PAGE);
        assert_true(is_filled(pages, count * PAGE, 1));
    } else {
        status = common_end(common, &range);
        assert_true(status == STATUS_OK || status == STATUS_NO_MEMORY);
        assert_true(is_filled(pages, count * PAGE, 1));
        relief();
    }
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(pages, count * PAGE, 1));
}

#define STRIPES 70000u

static uint8_t *stripes;
static uint32_t striped;

static bool stripe(uint32_t number, int protection)
{
    return mprotect(stripes + (2 * (uint64_t)number + 1) * PAGE, PAGE, protection) == 0;
}

static void leave_mappings(uint32_t spare)
{
    for (; striped < STRIPES && stripe(striped, PROT_READ); striped++) {
    }
    for (; spare > 0; spare--) {
        assert_true(stripe(--striped, PROT_NONE));
    }
}

static void free_mappings(void)
{
    for (uint32_t i = 0; i < 20; i++) {
        assert_true(stripe(--striped, PROT_NONE));
    }
}

static void too_many_mappings_change_nothing(void **state)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* they need mappings themselves */
#endif
    uint8_t *pages = make_pages(5);
    fill(pages, 5 * PAGE, 1);
    assert_int_equal(madvise(pages, 2 * PAGE, MADV_DONTDUMP), 0);
    stripes = mmap(NULL, 2 * (uint64_t)STRIPES * PAGE, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(stripes, MAP_FAILED);
    for (uint32_t spare = 0; spare < 8 && striped < STRIPES; spare++) { /* two mappings each */
        leave_mappings(spare);
        turn_in_need(pages, 5, free_mappings);
    }
    munmap(stripes, 2 * (uint64_t)STRIPES * PAGE);
    munmap(pages, 5 * PAGE);
}

static void leave_addresses(uint64_t bytes)
{
    uint64_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%" SCNu64, &pages), 1);
    fclose(file);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = pages * PAGE + bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

static void free_addresses(void)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

static void too_few_addresses_change_nothing(void **state)
{
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* they need addresses themselves */
#endif
    uint8_t *pages = make_pages(5);
    fill(pages, 5 * PAGE, 1);
    for (uint64_t spare = 0; spare < 6 << 20; spare += 200 * PAGE) {
        leave_addresses(spare);
        turn_in_need(pages, 5, free_addresses);
        struct common_range range = begin(pages, 5 * PAGE);
        leave_addresses(spare / 100);
        enum status status = common_end(common, &range);
        assert_true(status == STATUS_OK || status == STATUS_NO_MEMORY);
        assert_true(is_filled(pages, 5 * PAGE, 1));
        free_addresses();
        assert_int_equal(common_end(common, &range), STATUS_OK);
        assert_true(is_filled(pages, 5 * PAGE, 1));
    }
    munmap(pages, 5 * PAGE);
}

/* Whatever a begun and ended range leaves behind would add up. */
static void nothing_is_left_behind(void **state)
{
    uint8_t *pages = make_pages(3);
    fill(pages, 3 * PAGE, 1);
    uint32_t lines[2] = {0};
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 20; i++) {
            struct common_range range = begin(pages, 3 * PAGE);
            assert_int_equal(common_end(common, &range), STATUS_OK);
        }
        struct stretch stretch = {0};
        int stretches = stretch_open();
        for (; stretch_at(stretches, stretch.end, &stretch); lines[round]++) {
        }
        close(stretches);
    }
    assert_int_equal(lines[0], lines[1]);
    munmap(pages, 3 * PAGE);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_that_may_be_pinned_are_left),
        cmocka_unit_test(a_descriptor_that_is_another_file_is_not_taken_for_ours),
        cmocka_unit_test(none_of_them_is_used_or_closed_when_it_is_the_programs),
        cmocka_unit_test(a_fiber_does_not_turn_its_stack_back),
        cmocka_unit_test(a_pinned_page_is_noticed),
        cmocka_unit_test(sleepers_are_woken),
        cmocka_unit_test(too_many_mappings_change_nothing),
        cmocka_unit_test(too_few_addresses_change_nothing),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return run_with_common(run);
}
