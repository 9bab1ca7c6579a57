#include "rnic/base/siphash.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Of its authors' reference: the key is the bytes 0 to 15, the message those from 0 on. */
static void known_values(void **state)
{
    static const struct {
        size_t length;
        uint64_t hash;
    } known[] = {
        {0, UINT64_C(0x726fdb47dd0e0e31)},  {1, UINT64_C(0x74f839c593dc67fd)},
        {2, UINT64_C(0x0d6c8009d9a94f5a)},  {3, UINT64_C(0x85676696d7fb7e2d)},
        {4, UINT64_C(0xcf2794e0277187b7)},  {5, UINT64_C(0x18765564cd99a68d)},
        {6, UINT64_C(0xcbc9466e58fee3ce)},  {7, UINT64_C(0xab0200f58b01d137)},
        {8, UINT64_C(0x93f5f5799a932462)},  {9, UINT64_C(0x9e0082df0ba9e4b0)},
        {10, UINT64_C(0x7a5dbbc594ddb9f3)}, {11, UINT64_C(0xf4b32f46226bada7)},
        {15, UINT64_C(0xa129ca6149be45e5)}, {16, UINT64_C(0x3f2acc7f57c29bdb)},
        {63, UINT64_C(0x958a324ceb064572)},
    };
    const struct siphash_key key = {{UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)}};
    uint8_t message[64];
    for (uint8_t i = 0; i < sizeof message; i++) {
        message[i] = i;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_true(siphash(&key, message, known[i].length) == known[i].hash);
    }
}

static void each_bit_of_the_key_counts(void **state)
{
    struct siphash_key key = {{1, 2}};
    const uint64_t message = 7;
    uint64_t before = siphash(&key, &message, sizeof message);
    for (unsigned bit = 0; bit < 128; bit++) {
        key.halves[bit / 64] ^= UINT64_C(1) << bit % 64;
        assert_false(siphash(&key, &message, sizeof message) == before);
        key.halves[bit / 64] ^= UINT64_C(1) << bit % 64;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(each_bit_of_the_key_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
