#include "rnic/base/crc32.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

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

#if defined(__x86_64__)
#define STATE_UPPER (1u << 2 | 1u << 6) /* of the registers of 256 and of 512 bits */

static bool knows_state_in_use(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    bool has_xsave = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_OSXSAVE) != 0;
    return has_xsave && __get_cpuid_count(0xd, 1, &a, &b, &c, &d) != 0 && (a & 1u << 2) != 0;
}

static uint32_t state_in_use(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
    return low;
}

static void wide_registers_are_left_unused(void **state)
{
    static uint8_t bytes[4096];
    if (!knows_state_in_use()) {
        skip();
    }
    uint32_t crc = crc32_update(0, bytes, sizeof bytes);
    uint32_t in_use = state_in_use();
    assert_int_equal(crc, UINT32_C(0xc71c0011));
    assert_int_equal(in_use & STATE_UPPER, 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_value),
        cmocka_unit_test(pieces_of_any_length),
#if defined(__x86_64__)
        cmocka_unit_test(wide_registers_are_left_unused),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
