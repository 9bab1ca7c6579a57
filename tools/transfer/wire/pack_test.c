#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/wire/pack.h"

/* Messages of these lengths, filled with their number; what comes out of the other end. */
static void expect_round_trip(const size_t *lengths, unsigned count)
{
    struct pack *pack = calloc(1, sizeof(*pack));
    struct span message;
    for (unsigned i = 0; i < count; i++) {
        assert_true(pack_has_room(pack, lengths[i]));
        memset(pack_add(pack, lengths[i]), (int)i + 1, lengths[i]);
    }
    struct span bytes = pack_bytes(pack);
    struct unpack unpack = unpack_start(bytes.bytes, bytes.length);
    for (unsigned i = 0; i < count; i++) {
        assert_true(unpack_next(&unpack, &message));
        assert_int_equal(message.length, lengths[i]);
        assert_int_equal(((const uint8_t *)message.bytes)[lengths[i] - 1], i + 1);
    }
    assert_false(unpack_next(&unpack, &message));
    free(pack);
}

static void messages_come_out_as_they_went_in(void **state)
{
    static const size_t one[] = {5}, longest[] = {MESSAGE_LENGTH_MAX}, three[] = {1, 30000, 300};
    expect_round_trip(one, 1);
    expect_round_trip(longest, 1);
    expect_round_trip(three, 3);
}

static void one_alone_goes_as_it_is(void **state)
{
    struct pack *pack = calloc(1, sizeof(*pack));
    memcpy(pack_add(pack, 5), "\1abcd", 5);
    struct span bytes = pack_bytes(pack);
    assert_int_equal(bytes.length, 5);
    assert_memory_equal(bytes.bytes, "\1abcd", 5);
    free(pack);
}

static void a_pack_is_bounded(void **state)
{
    struct pack *pack = calloc(1, sizeof(*pack));
    assert_false(pack_has_room(pack, MESSAGE_LENGTH_MAX + 1));
    pack_add(pack, MESSAGE_LENGTH_MAX - 10);
    assert_true(pack_has_room(pack, 8));
    assert_false(pack_has_room(pack, 9));
    free(pack);
}

static void malformed_frames_are_messages_without_bytes(void **state)
{
    static const struct {
        const char *bytes;
        size_t length;
        unsigned good; /* messages before it */
    } cases[] = {{"\0\0", 2, 0},         {"\0\0\0", 3, 0},        {"\0\0\2x", 4, 0},
                 {"\0\0\1x\0", 5, 1},    {"\0\0\1x\0\0", 6, 1},   {"\0\377\377xxxx", 7, 0},
                 {"\0\0\1x\0\2y", 7, 1}, {"\0\0\1x\0\1y\1", 8, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t *exact = malloc(cases[i].length); /* so that a sanitizer sees a byte too far */
        memcpy(exact, cases[i].bytes, cases[i].length);
        struct unpack unpack = unpack_start(exact, cases[i].length);
        struct span message;
        for (unsigned good = 0; good < cases[i].good; good++) {
            assert_true(unpack_next(&unpack, &message));
            assert_int_equal(message.length, 1);
        }
        assert_true(unpack_next(&unpack, &message));
        assert_int_equal(message.length, 0);
        assert_false(unpack_next(&unpack, &message));
        free(exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_out_as_they_went_in),
        cmocka_unit_test(one_alone_goes_as_it_is),
        cmocka_unit_test(a_pack_is_bounded),
        cmocka_unit_test(malformed_frames_are_messages_without_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
