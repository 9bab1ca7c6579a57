/* Two devices and what goes between them: each operation, sizes around the MTU. */
#include "rnic/device/pair.h"

static const uint32_t sizes[] = {0,    1,    3,    4,    255,  256,  1023,   1024,
                                 1025, 2047, 2048, 2049, 4096, 9999, 100000, 1048579};

#define REMOTE 2097152u

static void write_moves_bytes(void **state)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct pair *pair = pair_create(&pair_defaults);
        struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
        pair_fill(a, 0, sizes[i], 5);
        pair_post_simple(a, WORK_WRITE, 1, 0, REMOTE, sizes[i]);
        pair_run(pair);
        (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
        assert_memory_equal(a->buffer, b->buffer + REMOTE, sizes[i]);
        assert_int_equal(b->buffer[REMOTE + sizes[i]], 0);
        assert_int_equal(device_counters(a->device)->values[COUNTER_RETRANSMITTED_PACKETS], 0);
        pair_destroy(pair);
    }
}

static void read_moves_bytes(void **state)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct pair *pair = pair_create(&pair_defaults);
        struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
        pair_fill(b, REMOTE, sizes[i], 6);
        pair_post_simple(a, WORK_READ, 1, 0, REMOTE, sizes[i]);
        pair_run(pair);
        struct completion completion = pair_expect(a->sends, 1, COMPLETION_SUCCESS);
        assert_int_equal(completion.byte_length, sizes[i]);
        assert_memory_equal(a->buffer, b->buffer + REMOTE, sizes[i]);
        assert_int_equal(a->buffer[sizes[i]], 0);
        pair_destroy(pair);
    }
}

static void send_moves_bytes(void **state)
{
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct pair *pair = pair_create(&pair_defaults);
        struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
        pair_fill(a, 0, sizes[i], 7);
        pair_post_receive(b, 9, REMOTE, 1048579);
        pair_post_simple(a, WORK_SEND, 1, 0, 0, sizes[i]);
        pair_run(pair);
        (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
        struct completion completion = pair_expect(b->receives, 9, COMPLETION_SUCCESS);
        assert_int_equal(completion.byte_length, sizes[i]);
        assert_memory_equal(a->buffer, b->buffer + REMOTE, sizes[i]);
        pair_destroy(pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_moves_bytes),
        cmocka_unit_test(read_moves_bytes),
        cmocka_unit_test(send_moves_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
