#include "rnic/base/crc32.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Bit by bit, from the definition. */
static uint32_t slow_crc32(const uint8_t *bytes, size_t length)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
        }
    }
    return ~crc;
}

static void check_value(void **state)
{
    assert_int_equal(crc32_update(0, (const uint8_t *)"123456789", 9), 0xcbf43926);
    assert_int_equal(crc32_update(0, NULL, 0), 0);
}

static void pieces_of_any_length(void **state)
{
    uint8_t bytes[600];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 31 + i / 7);
    }
    for (size_t length = 0; length <= sizeof bytes; length++) {
        uint32_t whole = slow_crc32(bytes, length);
        size_t cut = length * 3 / 7;
        assert_int_equal(crc32_update(0, bytes, length), whole);
        assert_int_equal(crc32_update(crc32_update(0, bytes, cut), bytes + cut, length - cut),
                         whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_value),
        cmocka_unit_test(pieces_of_any_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
