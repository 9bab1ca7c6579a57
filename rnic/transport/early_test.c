/* What is kept comes out as it came, in any order; the bounds hold; nothing is lost to the stock.
 */
#include "rnic/transport/early.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/heap.h"

#define CAPACITY 4u

static struct early_stock stock;
static struct early_tray tray;

static int start(void **state)
{
    (void)state;
    memset(&tray, 0, sizeof tray);
    return early_stock_init(&stock, heap_allocator(), CAPACITY) == STATUS_OK ? 0 : 1;
}

static int stop(void **state)
{
    (void)state;
    early_stock_fini(&stock, heap_allocator());
    return 0;
}

static bool keep(uint32_t psn)
{
    uint8_t payload[5] = {(uint8_t)psn, 1, 2, 3, 4};
    struct packet packet = {.psn = psn_make(psn), .payload = payload, .payload_length = 5};
    return early_keep(&tray, &stock, &packet);
}

static void a_copy_is_kept(void **state)
{
    (void)state;
    assert_true(keep(0xffffff));
    assert_true(keep(3));
    assert_false(early_has(&tray, psn_make(0)));
    struct early_packet *early = early_take(&tray, &stock, psn_make(3));
    assert_non_null(early);
    assert_int_equal(early->packet.payload[0], 3);
    assert_int_equal(early->packet.payload_length, 5);
    early_release(&stock, early);
    assert_null(early_take(&tray, &stock, psn_make(3)));
    assert_true(early_has(&tray, psn_make(0xffffff)));
}

static void the_stock_is_bounded_and_reused(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t psn = 0; psn < CAPACITY; psn++) {
            assert_true(keep(psn));
        }
        assert_false(keep(100));
        assert_true(keep(0)); /* is there already */
        assert_int_equal(tray.count, CAPACITY);
        early_forget(&tray, &stock, psn_make(1), 2);
        assert_int_equal(tray.count, CAPACITY - 2);
        early_forget(&tray, &stock, psn_make(0), REPORT_SPAN);
        assert_int_equal(tray.count, 0);
    }
}

static void it_is_described_from_the_due_one_on(void **state)
{
    (void)state;
    uint8_t bitmap[REPORT_BITMAP_MAX];
    assert_int_equal(early_describe(&tray, psn_make(7), bitmap), 0);
    assert_true(keep(0xffffff + 2)); /* 1 */
    assert_true(keep(31));
    assert_int_equal(early_describe(&tray, psn_make(0xffffff), bitmap), 8);
    assert_int_equal(bitmap[0], 1 << 2);
    assert_int_equal(bitmap[4], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_copy_is_kept, start, stop),
        cmocka_unit_test_setup_teardown(the_stock_is_bounded_and_reused, start, stop),
        cmocka_unit_test_setup_teardown(it_is_described_from_the_due_one_on, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
