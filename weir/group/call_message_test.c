/* Requests and replies of calls as they should be, and each way in which they should not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "weir/bytes.h"
#include "weir/group/call_message.h"

static size_t make_request(uint8_t *bytes)
{
    struct call_request request = {.radix = 8,
                                   .caller_rank = 3,
                                   .caller = 0x0102030405060708,
                                   .number = 42,
                                   .procedure = 0x1112131415161718,
                                   .total_ms = 5000};
    struct ranks below = {0};
    assert_true(ranks_add(&below, 4, 10));
    assert_true(ranks_add(&below, 20, 1));
    call_request_pack(&request, bytes);
    ranks_pack(&below, bytes + CALL_REQUEST_LENGTH);
    size_t length = CALL_REQUEST_LENGTH + ranks_packed_length(&below);
    ranks_fini(&below);
    return length;
}

static void test_request(void **state)
{
    uint8_t bytes[128];
    struct call_request parsed;
    size_t length = make_request(bytes);
    memcpy(bytes + length, "abc", 3);
    assert_null(call_request_parse(bytes, length + 3, &parsed));
    assert_int_equal(parsed.radix, 8);
    assert_int_equal(parsed.caller_rank, 3);
    assert_int_equal(parsed.caller, 0x0102030405060708);
    assert_int_equal(parsed.number, 42);
    assert_int_equal(parsed.procedure, 0x1112131415161718);
    assert_int_equal(parsed.total_ms, 5000);
    assert_int_equal(parsed.below.total, 11);
    assert_int_equal(parsed.length, 3);
    assert_memory_equal(parsed.bytes, "abc", 3);
    ranks_fini(&parsed.below);
    for (size_t i = 0; i < length; i++) {
        assert_non_null(call_request_parse(bytes, i, &parsed));
    }
}

static void expect_wrong_request(size_t at, uint8_t value)
{
    uint8_t bytes[128];
    struct call_request parsed;
    size_t length = make_request(bytes);
    bytes[at] = value;
    assert_non_null(call_request_parse(bytes, length, &parsed));
}

static void test_wrong_requests(void **state)
{
    expect_wrong_request(0, 0);
    expect_wrong_request(2, 2);
    expect_wrong_request(3, 1);
    expect_wrong_request(3, 65);
    expect_wrong_request(CALL_REQUEST_LENGTH + 3, 3);  /* more ranges than there are */
    expect_wrong_request(CALL_REQUEST_LENGTH + 5, 1);  /* beyond any group */
    expect_wrong_request(CALL_REQUEST_LENGTH + 11, 0); /* of nobody */
}

static void test_reply(void **state)
{
    uint8_t bytes[64];
    struct ranks asked = {0};
    struct call_reply reply = {.has_bytes = true}, parsed;
    assert_true(ranks_add(&asked, 4, 2));
    call_reply_pack(&reply, bytes);
    put_u32(bytes + 4, 1);
    put_u32(bytes + 8, 5);
    put_u32(bytes + 12, 1);
    put_u32(bytes + 16, WEIR_REFUSED);
    put_u32(bytes + 20, 77);
    memcpy(bytes + 24, "xyz", 3);
    assert_null(call_reply_parse(bytes, 27, &asked, &parsed));
    assert_true(parsed.has_bytes);
    assert_int_equal(parsed.failures.total, 1);
    assert_int_equal(parsed.failures.entries[0].code, 77);
    assert_int_equal(parsed.length, 3);
    failures_fini(&parsed.failures);
    for (size_t i = 0; i < 24; i++) {
        assert_non_null(call_reply_parse(bytes, i, &asked, &parsed));
    }
    bytes[3] = 0; /* bytes of nobody */
    assert_non_null(call_reply_parse(bytes, 27, &asked, &parsed));
    bytes[3] = 2;
    assert_non_null(call_reply_parse(bytes, 24, &asked, &parsed));
    bytes[3] = 1;
    put_u32(bytes + 8, 4);
    put_u32(bytes + 12, 2); /* all have failed, and yet there are bytes */
    assert_non_null(call_reply_parse(bytes, 27, &asked, &parsed));
    bytes[2] = 9;
    assert_non_null(call_reply_parse(bytes, 27, &asked, &parsed));
    ranks_fini(&asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_wrong_requests),
        cmocka_unit_test(test_reply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
