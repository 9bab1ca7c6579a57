/* Counts, lengths and opcodes of packets, at and around the edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rnic/transport/segment.h"

static void counts_and_lengths_add_up(void **state)
{
    for (uint32_t shift = 8; shift <= 12; shift++) {
        uint32_t mtu = 1u << shift;
        uint32_t lengths[] = {0, 1, mtu - 1, mtu, mtu + 1, 7 * mtu, MESSAGE_LENGTH_MAX};
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            uint32_t count = segment_packet_count(lengths[i], shift);
            uint32_t last = segment_payload_length(lengths[i], count - 1, shift);
            assert_int_equal(((uint64_t)(count - 1) << shift) + last, lengths[i]);
            assert_true(count >= 1 && last <= mtu && (last > 0 || lengths[i] == 0));
            if (count > 1) {
                assert_int_equal(segment_payload_length(lengths[i], 0, shift), mtu);
            }
        }
    }
}

static void each_opcode_stands_where_it_says(void **state)
{
    for (int kind = WORK_SEND; kind <= WORK_WRITE_IMMEDIATE; kind++) {
        for (int place = 0; place < 4; place++) {
            bool first = place & 1, last = place & 2;
            const struct opcode_info *info = opcode_lookup(
                segment_request_opcode(SERVICE_RC, (enum work_kind)kind, first, last));
            assert_non_null(info);
            assert_int_equal(info->first, first);
            assert_int_equal(info->last, last);
            bool write = kind == WORK_WRITE || kind == WORK_WRITE_IMMEDIATE;
            assert_int_equal(info->operation, write ? OPERATION_WRITE : OPERATION_SEND);
            assert_int_equal(info->has_immediate,
                             last && (kind == WORK_SEND_IMMEDIATE || kind == WORK_WRITE_IMMEDIATE));
            assert_int_equal(info->has_invalidate, last && kind == WORK_SEND_INVALIDATE);
            info = opcode_lookup(segment_response_opcode(SERVICE_RC, first, last));
            assert_int_equal(info->operation, OPERATION_READ_RESPONSE);
            assert_int_equal(info->first, first);
            assert_int_equal(info->last, last);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_lengths_add_up),
        cmocka_unit_test(each_opcode_stands_where_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
