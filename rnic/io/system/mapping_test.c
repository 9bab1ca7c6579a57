#include "rnic/io/system/mapping.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE 4096u

/* Four pages: one to write, one to read, one for nobody, and a hole. */
static uint8_t *make_pages(void)
{
    uint8_t *pages =
        mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages + PAGE, PAGE, PROT_READ), 0);
    assert_int_equal(mprotect(pages + 2 * PAGE, PAGE, PROT_NONE), 0);
    assert_int_equal(munmap(pages + 3 * PAGE, PAGE), 0);
    return pages;
}

static void holes_are_seen(void **state)
{
    uint8_t *pages = make_pages();
    assert_true(mapping_is_there(pages, 3 * PAGE));
    assert_true(mapping_is_there(pages + 3 * PAGE - 1, 1));
    assert_false(mapping_is_there(pages + 3 * PAGE - 1, 2));
    assert_true(mapping_is_there(NULL, 0));
    assert_false(mapping_is_there(NULL, SIZE_MAX));
    assert_false(mapping_is_there(pages, SIZE_MAX));
    munmap(pages, 3 * PAGE);
}

static void a_hole_far_behind_is_seen(void **state)
{
    const size_t length = 5000 * (size_t)PAGE; /* more than is asked for at once */
    uint8_t *pages = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_true(mapping_is_there(pages + 1, length - 1));
    assert_int_equal(munmap(pages + length - PAGE, PAGE), 0);
    assert_false(mapping_is_there(pages, length));
    assert_true(mapping_is_there(pages, length - PAGE));
    munmap(pages, length - PAGE);
}

static void what_can_be_touched_is_brought_in(void **state)
{
    uint8_t *pages = make_pages();
    assert_true(mapping_populate(pages, PAGE, true));
    assert_true(mapping_populate(pages + 10, 2 * PAGE - 10, false));
    assert_false(mapping_populate(pages, PAGE + 1, true));
    assert_false(mapping_populate(pages + 2 * PAGE, 1, false));
    assert_false(mapping_populate(pages + 3 * PAGE, 1, false));
    assert_true(mapping_populate(NULL, 0, true));
    assert_false(mapping_populate(NULL, 1, false));
    struct memory_probe *probe = mapping_probe();
    assert_true(probe->is_mapped(probe, pages + PAGE, 8, false));
    assert_false(probe->is_mapped(probe, pages + PAGE, 8, true));
    munmap(pages, 3 * PAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holes_are_seen),
        cmocka_unit_test(a_hole_far_behind_is_seen),
        cmocka_unit_test(what_can_be_touched_is_brought_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
