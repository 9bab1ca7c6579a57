#include "rnic/base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void writes_and_reads_back_big_endian(void **state)
{
    uint8_t bytes[32] = {0};
    struct bytes_writer writer = bytes_writer(bytes, 21);
    bytes_put_u8(&writer, 0x01);
    bytes_put_u16(&writer, 0x0203);
    bytes_put_u24(&writer, 0xff040506);
    bytes_put_u32(&writer, 0x0708090a);
    bytes_put_u64(&writer, UINT64_C(0x0b0c0d0e0f101112));
    bytes_put_copy(&writer, (const uint8_t *)"ab", 2);
    bytes_put_zeroes(&writer, 1);
    assert_false(writer.failed);
    for (uint8_t i = 0; i < 18; i++) {
        assert_int_equal(bytes[i], i + 1);
    }

    struct bytes_reader reader = bytes_reader(bytes, 21);
    uint8_t text[2];
    assert_int_equal(bytes_get_u8(&reader), 0x01);
    assert_int_equal(bytes_get_u16(&reader), 0x0203);
    assert_int_equal(bytes_get_u24(&reader), 0x040506);
    assert_int_equal(bytes_get_u32(&reader), 0x0708090a);
    assert_true(bytes_get_u64(&reader) == UINT64_C(0x0b0c0d0e0f101112));
    bytes_get_copy(&reader, text, 2);
    assert_memory_equal(text, "ab", 2);
    assert_int_equal(bytes_left(&reader), 1);
    bytes_skip(&reader, 1);
    assert_false(reader.failed);
}

static void stays_failed_at_the_end(void **state)
{
    uint8_t bytes[4] = {1, 2, 3, 4};
    struct bytes_reader reader = bytes_reader(bytes, 3);
    assert_int_equal(bytes_get_u32(&reader), 0);
    assert_true(reader.failed);
    assert_int_equal(bytes_get_u8(&reader), 0);
    uint8_t copy[2] = {9, 9};
    bytes_get_copy(&reader, copy, 2);
    assert_int_equal(copy[0] | copy[1], 0);

    struct bytes_writer writer = bytes_writer(bytes, 3);
    bytes_put_u32(&writer, UINT32_MAX);
    bytes_put_u8(&writer, 9);
    assert_true(writer.failed);
    assert_memory_equal(bytes, "\1\2\3\4", 4);
}

static void copies_what_is_short(void **state)
{
    uint8_t from[48], to[50];
    for (size_t length = 0; length <= sizeof from; length++) {
        for (size_t i = 0; i < sizeof from; i++) {
            from[i] = (uint8_t)(length + i + 1);
        }
        memset(to, 0, sizeof to);
        bytes_copy_short(to + 1, length == 0 ? NULL : from, length);
        assert_int_equal(to[0] | to[length + 1], 0);
        assert_memory_equal(to + 1, from, length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_reads_back_big_endian),
        cmocka_unit_test(stays_failed_at_the_end),
        cmocka_unit_test(copies_what_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
