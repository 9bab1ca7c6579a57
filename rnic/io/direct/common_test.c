#include "rnic/io/direct/common_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rnic/io/direct/present.h"
#include "rnic/io/system/mapping.h"

/* What a peer sees. */
static uint8_t *map_as_peer(const struct common_range *range)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), common_descriptor(common));
    FILE *file = fopen(path, "r+e");
    assert_non_null(file);
    uint8_t *bytes = mmap(NULL, range->length, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file),
                          (off_t)range->offset);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    fclose(file);
    return bytes;
}

static void what_is_stored_stays_there_and_back(void **state)
{
    uint8_t *pages = make_pages(100);
    fill(pages, 100 * PAGE, 3);
    struct common_range range = begin(pages, 100 * PAGE);
    assert_true(is_filled(pages, 100 * PAGE, 3));
    fill(pages, 100 * PAGE, 8);
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(pages, 100 * PAGE, 8));
    fill(pages, 100 * PAGE, 11);
    assert_true(is_filled(pages, 100 * PAGE, 11));
    munmap(pages, 100 * PAGE);
}

static void a_peer_stores_and_sees(void **state)
{
    uint8_t *pages = make_pages(10);
    fill(pages, 10 * PAGE, 5);
    struct common_range range = begin(pages, 10 * PAGE);
    uint8_t *seen = map_as_peer(&range);
    assert_true(is_filled(seen, 10 * PAGE, 5));
    fill(seen, 10 * PAGE, 6);
    assert_true(is_filled(pages, 10 * PAGE, 6));
    assert_int_equal(common_end(common, &range), STATUS_OK);
    fill(seen, 10 * PAGE, 7);
    assert_true(is_filled(pages, 10 * PAGE, 6));
    munmap(seen, 10 * PAGE);
    munmap(pages, 10 * PAGE);
}

static void the_whole_pages_within_are_turned(void **state)
{
    uint8_t *pages = make_pages(4);
    fill(pages, 4 * PAGE, 1);
    struct common_range range = begin(pages + 100, 3 * PAGE);
    assert_ptr_equal(range.bytes, pages + PAGE);
    assert_int_equal(range.length, 2 * PAGE);
    assert_true(is_filled(pages, 4 * PAGE, 1));
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(pages, 4 * PAGE, 1));
    assert_int_equal(common_begin(common, pages + 1, 2 * PAGE - 2, &range), STATUS_DENIED);
    assert_int_equal(common_begin(common, pages, PAGE - 1, &range), STATUS_DENIED);
    assert_int_equal(common_begin(common, pages, 0, &range), STATUS_DENIED);
    assert_int_equal(common_begin(common, pages, UINT64_MAX, &range), STATUS_DENIED);
    assert_int_equal(common_begin(common, pages, COMMON_RANGE_MAX + 2 * PAGE, &range),
                     STATUS_TOO_LONG);
    munmap(pages, 4 * PAGE);
}

static void other_memory_is_refused(void **state)
{
    uint8_t *pages = make_pages(3);
    fill(pages, 3 * PAGE, 9);
    assert_int_equal(mprotect(pages + PAGE, PAGE, PROT_READ), 0);
    assert_denied(pages, 3 * PAGE);
    assert_int_equal(mprotect(pages + PAGE, PAGE, PROT_NONE), 0);
    assert_denied(pages, 3 * PAGE);
    assert_int_equal(mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
    assert_int_equal(syscall(SYS_mlock, pages + PAGE, PAGE), 0); /* not the sanitizers' */
    assert_denied(pages, 3 * PAGE);
    assert_int_equal(syscall(SYS_munlock, pages + PAGE, PAGE), 0);
    assert_true(is_filled(pages, 3 * PAGE, 9));
    struct common_range range = begin(pages, 3 * PAGE);
    assert_denied(pages, 3 * PAGE); /* a file's now */
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_int_equal(munmap(pages + PAGE, PAGE), 0);
    assert_denied(pages, 3 * PAGE);
    munmap(pages, 3 * PAGE);

    uint8_t *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    assert_denied(shared, PAGE);
    munmap(shared, PAGE);

    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    uint8_t *private = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    assert_ptr_not_equal(private, MAP_FAILED);
    private[0] = 1;
    assert_denied(private, PAGE);
    munmap(private, PAGE);
    close(file);

    uint8_t stack[3 * PAGE] = {1};
    assert_denied(stack, sizeof stack);
}

/* In a frame above the one that turns it; what is below is needed. */
static void *turn_own_stack(void *argument)
{
    uint8_t buffer[20 * PAGE];
    fill(buffer, sizeof buffer, 5);
    struct common_range range = begin(buffer, sizeof buffer);
    assert_true(is_filled(buffer, sizeof buffer, 5));
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(buffer, sizeof buffer, 5));
    assert_denied((uint8_t *)__builtin_frame_address(0) - 30 * PAGE, 40 * PAGE);
    assert_denied((uint8_t *)pthread_self() - PAGE, 3 * PAGE);
    return NULL;
}

static void a_thread_turns_no_stack_that_it_needs(void **state)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, turn_own_stack, NULL), 0);
    pthread_join(thread, NULL);
}

static void huge_pages_are_turned_in_parts(void **state)
{
    const uint64_t huge = UINT64_C(2) << 20, length = 5 * huge;
    uint8_t *pages = make_pages((uint32_t)(length / PAGE));
    (void)madvise(pages, length, MADV_HUGEPAGE);
    fill(pages, length, 1);
    struct common_range range = begin(pages + 5, length - huge);
    assert_true(is_filled(pages, length, 1));
    fill(pages, length, 2);
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(pages, length, 2));
    munmap(pages, length);
}

/* Whether a page has memory of its own. */
static bool is_there(const uint8_t *page)
{
    int pages = present_open();
    struct present_run run;
    bool there = present_next(pages, (uint8_t *)(uintptr_t)page, PAGE, &run);
    close(pages);
    return there;
}

static void holes_stay_holes(void **state)
{
    uint64_t before = file_pages();
    uint8_t *pages = make_pages(64);
    pages[10 * PAGE] = 1;
    pages[11 * PAGE] = 2;
    pages[63 * PAGE] = 3;
    assert_int_equal(*(volatile uint8_t *)(pages + 20 * PAGE), 0); /* read, and never written */
    struct common_range range = begin(pages, 64 * PAGE);
    assert_int_equal(file_pages() - before, 3);
    pages[40 * PAGE] = 4;
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_int_equal(file_pages(), before);
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(is_there(pages + i * PAGE), i == 10 || i == 11 || i == 40 || i == 63);
    }
    assert_int_equal(pages[10 * PAGE] + 10 * pages[11 * PAGE] + 100 * pages[63 * PAGE], 321);
    assert_int_equal(pages[40 * PAGE], 4);
    munmap(pages, 64 * PAGE);
}

static void the_mapping_comes_back_as_it_was(void **state)
{
    char before[256], after[256];
    uint8_t *pages = make_pages(9);
    fill(pages, 9 * PAGE, 2);
    assert_int_equal(madvise(pages, 6 * PAGE, MADV_DONTFORK), 0);
    assert_int_equal(madvise(pages + 3 * PAGE, 6 * PAGE, MADV_DONTDUMP), 0);
    read_listing(pages, "", before, sizeof before);
    struct common_range range = begin(pages + PAGE, 7 * PAGE); /* of three mappings */
    read_listing(pages + PAGE, "", after, sizeof after);
    assert_non_null(strstr(after, "rw-s"));
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(pages, 9 * PAGE, 2));
    read_listing(pages + PAGE, "", after, sizeof after);
    assert_string_equal(before, after); /* one with its neighbour again */
    for (uint32_t i = 0; i < 9; i++) {
        read_listing(pages + i * PAGE, "VmFlags", after, sizeof after);
        assert_int_equal(strstr(after, " dc ") != NULL, i < 6);
        assert_int_equal(strstr(after, " dd ") != NULL, i >= 3);
    }
    munmap(pages, 9 * PAGE);
}

static void what_the_program_maps_meanwhile_stays(void **state)
{
    uint8_t *pages = make_pages(8);
    fill(pages, 8 * PAGE, 4);
    struct common_range range = begin(pages, 8 * PAGE);
    uint8_t *seen = map_as_peer(&range);
    assert_int_equal(munmap(pages + PAGE, PAGE), 0);
    assert_ptr_equal(mmap(pages + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     pages + 3 * PAGE);
    pages[3 * PAGE] = 77;
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_ptr_equal(mmap(pages + 5 * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0),
                     pages + 5 * PAGE);
    assert_int_equal(mprotect(pages + 6 * PAGE, PAGE, PROT_READ), 0);
    assert_int_equal(mprotect(pages + 7 * PAGE, PAGE, PROT_NONE), 0);
    assert_int_equal(common_end(common, &range), STATUS_OK);
    fill(seen, 8 * PAGE, 99);
    assert_false(mapping_is_there(pages + PAGE, 1));
    assert_int_equal(pages[3 * PAGE], 77);
    assert_memory_equal(pages + 5 * PAGE, "\177ELF", 4);
    assert_false(mapping_populate(pages + 6 * PAGE, PAGE, true));
    assert_false(mapping_populate(pages + 7 * PAGE, PAGE, false));
    assert_int_equal(mprotect(pages + 6 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE), 0);
    uint8_t *own = make_pages(8);
    fill(own, 8 * PAGE, 4);
    for (uint32_t i = 0; i < 8; i++) {
        bool gone = i == 1 || i == 3 || i == 5;
        assert_true(gone || memcmp(pages + i * PAGE, own + i * PAGE, PAGE) == 0);
    }
    munmap(own, 8 * PAGE);
    munmap(seen, 8 * PAGE);
    munmap(pages, 8 * PAGE);
    close(file);
}

static void what_the_program_moves_meanwhile_is_turned_there(void **state)
{
    char listing[256];
    uint8_t *pages = make_pages(8), *place = make_pages(1), *own = make_pages(8);
    fill(pages, 8 * PAGE, 4);
    fill(own, 8 * PAGE, 4);
    struct common_range range = begin(pages, 8 * PAGE);
    const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    assert_ptr_equal(mremap(pages + 2 * PAGE, PAGE, PAGE, flags, place), place);
    assert_ptr_equal(mremap(pages + 6 * PAGE, PAGE, PAGE, flags, pages + 4 * PAGE),
                     pages + 4 * PAGE);
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_memory_equal(place, own + 2 * PAGE, PAGE);
    assert_memory_equal(pages + 4 * PAGE, own + 6 * PAGE, PAGE);
    assert_memory_equal(pages + 7 * PAGE, own + 7 * PAGE, PAGE);
    read_listing(place, "", listing, sizeof listing);
    assert_non_null(strstr(listing, "rw-p"));
    read_listing(pages + 4 * PAGE, "", listing, sizeof listing);
    assert_non_null(strstr(listing, "rw-p"));
    munmap(place, PAGE);
    munmap(own, 8 * PAGE);
    munmap(pages, 8 * PAGE);
}

static void a_range_that_grows_meets_no_other(void **state)
{
    const uint64_t more = UINT64_C(16) << 20;
    uint8_t *pages = make_pages(4), *others = make_pages(4);
    fill(pages, 4 * PAGE, 4);
    fill(others, 4 * PAGE, 5);
    struct common_range range = begin(pages, 4 * PAGE), other = begin(others, 4 * PAGE);
    uint8_t *grown = mremap(pages, 4 * PAGE, more, MREMAP_MAYMOVE);
    assert_ptr_not_equal(grown, MAP_FAILED);
    assert_true(is_filled(grown, 4 * PAGE, 4));
    for (uint64_t i = 4 * PAGE; i < more; i += PAGE) {
        assert_int_equal(grown[i], 0);
        grown[i] = 1;
    }
    assert_true(is_filled(others, 4 * PAGE, 5));
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_int_equal(common_end(common, &other), STATUS_OK);
    assert_true(is_filled(grown, 4 * PAGE, 4));
    assert_int_equal(grown[more - PAGE], 1);
    assert_true(is_filled(others, 4 * PAGE, 5));
    munmap(grown, more);
    munmap(others, 4 * PAGE);
}

static void what_is_locked_meanwhile_stays_locked(void **state)
{
    char flags[256];
    uint8_t *pages = make_pages(2);
    fill(pages, 2 * PAGE, 4);
    struct common_range range = begin(pages, 2 * PAGE);
    assert_int_equal(syscall(SYS_mlock, pages, 2 * PAGE), 0); /* not the sanitizers' */
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(pages, 2 * PAGE, 4));
    read_listing(pages, "VmFlags", flags, sizeof flags);
    assert_non_null(strstr(flags, " lo "));
    munmap(pages, 2 * PAGE);
}

static void ranges_are_many_and_apart(void **state)
{
    const uint32_t count = 300;
    static struct common_range ranges[300];
    uint8_t *pages = make_pages(2 * count);
    fill(pages, 2 * count * PAGE, 1);
    uint64_t before = file_pages();
    for (uint32_t i = 0; i < count; i++) {
        ranges[i] = begin(pages + 2 * i * PAGE, i % 2 == 0 ? 2 * PAGE : PAGE);
        for (uint32_t j = 0; j < i; j++) {
            assert_true(ranges[j].offset + ranges[j].length <= ranges[i].offset);
        }
        assert_int_equal((ranges[i].offset ^ (uintptr_t)ranges[i].bytes) % (2u << 20), 0);
    }
    assert_true(is_filled(pages, 2 * count * PAGE, 1));
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(common_end(common, &ranges[(i * 7) % count]), STATUS_OK);
    }
    assert_true(is_filled(pages, 2 * count * PAGE, 1));
    assert_int_equal(file_pages(), before);
    munmap(pages, 2 * count * PAGE);
}

/* A child, which has the same pages until one of the two writes. */
static void a_forked_childs_pages_are_its_own(void **state)
{
    int told[2];
    uint8_t *pages = make_pages(4);
    fill(pages, 3 * PAGE, 6);
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        char word;
        common_abandon(common);
        _exit(read(told[0], &word, 1) == 1 && is_filled(pages, 3 * PAGE, 6) ? 0 : 1);
    }
    struct common_range range = begin(pages, 4 * PAGE);
    assert_true(is_filled(pages, 3 * PAGE, 6));
    fill(pages, 3 * PAGE, 7);
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_true(is_filled(pages, 3 * PAGE, 7));
    assert_false(is_there(pages + 3 * PAGE));
    int status;
    assert_int_equal(write(told[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(told[0]);
    close(told[1]);
    munmap(pages, 4 * PAGE);
}

/* Another process, by what it is told: where in the file. It checks, stores, and stores again after
 * the end. */
static void another_process_stores_and_sees(void **state)
{
    int there[2], back[2];
    struct common_range range;
    char word;
    assert_int_equal(pipe(there), 0);
    assert_int_equal(pipe(back), 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        char path[64];
        int descriptor = common_descriptor(common);
        common_abandon(common);
        bool right = read(there[0], &range, sizeof range) == sizeof range;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", parent, descriptor);
        int file = open(path, O_RDWR | O_CLOEXEC);
        uint8_t *seen =
            mmap(NULL, range.length, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)range.offset);
        right = right && seen != MAP_FAILED && is_filled(seen, range.length, 1);
        fill(seen, range.length, 2);
        right = right && write(back[1], "x", 1) == 1 && read(there[0], &word, 1) == 1;
        fill(seen, range.length, 3);
        _exit(right && write(back[1], "x", 1) == 1 ? 0 : 1);
    }
    uint8_t *pages = make_pages(600);
    fill(pages, 600 * PAGE, 1);
    range = begin(pages, 600 * PAGE);
    assert_int_equal(write(there[1], &range, sizeof range), sizeof range);
    assert_int_equal(read(back[0], &word, 1), 1);
    assert_true(is_filled(pages, 600 * PAGE, 2));
    assert_int_equal(common_end(common, &range), STATUS_OK);
    assert_int_equal(write(there[1], "x", 1), 1);
    assert_int_equal(read(back[0], &word, 1), 1);
    assert_true(is_filled(pages, 600 * PAGE, 2));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    munmap(pages, 600 * PAGE);
    for (uint32_t i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_stored_stays_there_and_back),
        cmocka_unit_test(a_peer_stores_and_sees),
        cmocka_unit_test(the_whole_pages_within_are_turned),
        cmocka_unit_test(other_memory_is_refused),
        cmocka_unit_test(a_thread_turns_no_stack_that_it_needs),
        cmocka_unit_test(huge_pages_are_turned_in_parts),
        cmocka_unit_test(holes_stay_holes),
        cmocka_unit_test(the_mapping_comes_back_as_it_was),
        cmocka_unit_test(what_the_program_maps_meanwhile_stays),
        cmocka_unit_test(what_the_program_moves_meanwhile_is_turned_there),
        cmocka_unit_test(a_range_that_grows_meets_no_other),
        cmocka_unit_test(what_is_locked_meanwhile_stays_locked),
        cmocka_unit_test(ranges_are_many_and_apart),
        cmocka_unit_test(a_forked_childs_pages_are_its_own),
        cmocka_unit_test(another_process_stores_and_sees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
    return run_with_common(run);
}
