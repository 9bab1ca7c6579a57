#include "rnic/wire/opcode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/wire/packet.h"

static uint8_t header_length(uint8_t opcode)
{
    const struct opcode_info *info = opcode_lookup(opcode);
    assert_non_null(info);
    return info->header_length;
}

/* Sums taken by hand from the specification's figures. */
static void header_lengths(void **state)
{
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_SEND_MIDDLE)), 12);
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_SEND_ONLY_IMMEDIATE)), 16);
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_SEND_LAST_INVALIDATE)), 16);
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_WRITE_FIRST)), 28);
    assert_int_equal(header_length(OPCODE(SERVICE_UC, FORM_WRITE_ONLY_IMMEDIATE)), 32);
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_READ_REQUEST)), 28);
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_READ_RESPONSE_MIDDLE)), 12);
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE)), 16);
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_ATOMIC_ACKNOWLEDGE)), 24);
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_COMPARE_SWAP)), 40);
    assert_int_equal(header_length(OPCODE(SERVICE_UD, FORM_SEND_ONLY)), 20);
    assert_int_equal(header_length(OPCODE(SERVICE_UD, FORM_SEND_ONLY_IMMEDIATE)), 24);
    assert_int_equal(header_length(OPCODE(SERVICE_XRC, FORM_WRITE_ONLY_IMMEDIATE)), 36);
    assert_int_equal(header_length(OPCODE(SERVICE_XRC, FORM_ACKNOWLEDGE)), 16);
    assert_int_equal(header_length(OPCODE(SERVICE_RC, FORM_ATOMIC_WRITE)), 28);
    assert_int_equal(header_length(OPCODE_CNP), 28);
}

static void which_opcodes_there_are(void **state)
{
    int count[8] = {0};
    for (int opcode = 0; opcode < 256; opcode++) {
        const struct opcode_info *info = opcode_lookup((uint8_t)opcode);
        if (info == NULL) {
            continue;
        }
        count[opcode >> 5]++;
        assert_int_equal(info->service, opcode >> 5);
        assert_true(info->header_length <= PACKET_HEADER_MAX);
        assert_int_equal(info->header_length % 4, 0);
    }
    assert_int_equal(count[SERVICE_RC], 24);
    assert_int_equal(count[SERVICE_UC], 12);
    assert_int_equal(count[SERVICE_RD], 0);
    assert_int_equal(count[SERVICE_UD], 2);
    assert_int_equal(count[SERVICE_CNP], 1);
    assert_int_equal(count[SERVICE_XRC], 23);
    assert_null(opcode_lookup(0x15));
    assert_null(opcode_lookup(OPCODE(SERVICE_UD, FORM_SEND_FIRST)));
    assert_null(opcode_lookup(OPCODE(SERVICE_UC, FORM_READ_REQUEST)));
}

/* The name says what the flags must say. */
static void flags_agree_with_names(void **state)
{
    for (int opcode = 0; opcode < 256; opcode++) {
        const struct opcode_info *info = opcode_lookup((uint8_t)opcode);
        if (info == NULL) {
            continue;
        }
        bool first = strstr(info->name, "_FIRST") != NULL;
        bool middle = strstr(info->name, "_MIDDLE") != NULL;
        bool last = strstr(info->name, "_LAST") != NULL;
        assert_int_equal(info->first, !middle && !last);
        assert_int_equal(info->last, !middle && !first);
        assert_int_equal(info->has_immediate, strstr(info->name, "IMMEDIATE") != NULL);
        assert_int_equal(info->has_invalidate, strstr(info->name, "INVALIDATE") != NULL);
        bool is_write = info->operation == OPERATION_WRITE;
        assert_int_equal(is_write, strncmp(info->name, "WRITE", 5) == 0);
        bool is_read =
            info->operation == OPERATION_READ_REQUEST || info->operation == OPERATION_ATOMIC_WRITE;
        assert_int_equal(info->has_reth, is_read || (is_write && info->first));
        bool is_response = info->has_aeth || info->has_atomic_ack ||
                           info->operation == OPERATION_READ_RESPONSE ||
                           info->operation == OPERATION_CONGESTION;
        assert_int_equal(info->is_request, !is_response);
        assert_int_equal(info->has_deth, info->service == SERVICE_UD);
        assert_int_equal(info->has_xrceth, info->service == SERVICE_XRC && info->is_request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_lengths),
        cmocka_unit_test(which_opcodes_there_are),
        cmocka_unit_test(flags_agree_with_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
