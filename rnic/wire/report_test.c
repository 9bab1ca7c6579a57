/* A report survives the way through bytes; what is none, or is cut short or too long, is refused.
 */
#include "rnic/wire/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct report sample = {
    .destination = {0x123456},
    .source = {0x654321},
    .acknowledged = {0xfffffe},
    .expected = {0xffffff},
    .unacked = {77},
    .asks = true,
    .duplicates = 513,
    .tag = 0x1a5c,
};

static void it_comes_back(void **state)
{
    (void)state;
    uint8_t bytes[REPORT_LENGTH + 8] = {0};
    struct report report;
    report_build(&sample, bytes);
    bytes[REPORT_LENGTH] = 0x0a;
    assert_true(report_is_one(bytes, sizeof bytes));
    assert_int_equal(report_parse(bytes, sizeof bytes, &report), REFUSED_NOT);
    assert_int_equal(report.destination.value, sample.destination.value);
    assert_int_equal(report.source.value, sample.source.value);
    assert_int_equal(report.acknowledged.value, sample.acknowledged.value);
    assert_int_equal(report.expected.value, sample.expected.value);
    assert_int_equal(report.unacked.value, sample.unacked.value);
    assert_true(report.asks);
    assert_int_equal(report.duplicates, sample.duplicates);
    assert_int_equal(report.tag, sample.tag);
    assert_int_equal(report.bitmap_length, 8);
    assert_int_equal(report.bitmap[0], 0x0a);
}

/* To every other receiver it is a packet of a version that it does not know. */
static void others_drop_it(void **state)
{
    (void)state;
    uint8_t bytes[REPORT_LENGTH];
    struct packet packet;
    report_build(&sample, bytes);
    assert_int_equal(packet_parse(bytes, sizeof bytes, &packet), REFUSED_VERSION);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[REPORT_LENGTH + REPORT_BITMAP_MAX + 4] = {0};
    struct report report;
    report_build(&sample, bytes);
    assert_int_equal(report_parse(bytes, REPORT_LENGTH - 1, &report), REFUSED_TRUNCATED);
    assert_int_equal(report_parse(bytes, REPORT_LENGTH + 3, &report), REFUSED_PAYLOAD_LENGTH);
    assert_int_equal(report_parse(bytes, sizeof bytes, &report), REFUSED_PAYLOAD_LENGTH);
    assert_int_equal(report_parse(bytes, sizeof bytes - 4, &report), REFUSED_NOT);
    bytes[2] = 0x12;
    assert_int_equal(report_parse(bytes, REPORT_LENGTH, &report), REFUSED_PKEY);
    bytes[2] = 0xff;
    bytes[BTH_LENGTH]++;
    assert_int_equal(report_parse(bytes, REPORT_LENGTH, &report), REFUSED_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_comes_back),
        cmocka_unit_test(others_drop_it),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
