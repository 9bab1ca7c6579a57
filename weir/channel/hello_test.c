/* Hellos and endpoints: round trips, padding, and strangers turned away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "weir/channel/hello.h"

static const struct hello sample = {
    .purpose = HELLO_CONNECT,
    .lane = 3,
    .lanes = 16,
    .status = 5,
    .lacks_immediate = true,
    .eager_length = 8192,
    .window = 64,
    .message_length_max = (uint32_t)1 << 31,
    .token = 0x0102030405060708,
};

static void test_round_trip(void **state)
{
    uint8_t bytes[56] = {0}; /* as rdma_cm pads it */
    struct hello hello;
    hello_pack(&sample, bytes);
    assert_null(hello_parse(bytes, sizeof(bytes), &hello));
    assert_int_equal(hello.purpose, sample.purpose);
    assert_int_equal(hello.lane, 3);
    assert_int_equal(hello.lanes, 16);
    assert_int_equal(hello.status, 5);
    assert_true(hello.lacks_immediate);
    assert_int_equal(hello.eager_length, 8192);
    assert_int_equal(hello.window, 64);
    assert_int_equal(hello.message_length_max, sample.message_length_max);
    assert_int_equal(hello.token, sample.token);
}

static void test_refusal(void **state)
{
    struct hello refusal = {.purpose = HELLO_REFUSE, .status = 3}, hello;
    uint8_t bytes[HELLO_LENGTH];
    hello_pack(&refusal, bytes);
    assert_null(hello_parse(bytes, sizeof(bytes), &hello));
    assert_string_equal(hello.words, "");
    memset(refusal.words, 'w', HELLO_WORDS);
    hello_pack(&refusal, bytes);
    bytes[12] = 0x1b; /* no escape sequences from strangers */
    assert_null(hello_parse(bytes, sizeof(bytes), &hello));
    assert_int_equal(strlen(hello.words), HELLO_WORDS);
    assert_int_equal(hello.words[0], '?');
    assert_string_equal(hello.words + 1, refusal.words + 1);
}

static const char *parse_spoiled(size_t at, uint8_t value)
{
    uint8_t bytes[HELLO_LENGTH];
    struct hello hello;
    hello_pack(&sample, bytes);
    bytes[at] = value;
    return hello_parse(bytes, sizeof(bytes), &hello);
}

static void test_strangers(void **state)
{
    uint8_t bytes[HELLO_LENGTH];
    struct hello hello;
    hello_pack(&sample, bytes);
    assert_non_null(hello_parse(bytes, HELLO_LENGTH - 1, &hello));
    assert_non_null(hello_parse(NULL, 0, &hello));
    assert_string_equal(parse_spoiled(0, 0), "it is not a Weir channel");
    assert_string_equal(parse_spoiled(5, HELLO_VERSION + 1),
                        "it speaks another version of the channel protocol");
    assert_string_equal(parse_spoiled(6, 0), "its hello makes no sense");
    assert_string_equal(parse_spoiled(6, HELLO_PURPOSE_END), "its hello makes no sense");
    assert_string_equal(parse_spoiled(7, LANES_MAX + 1), "its hello makes no sense");
    assert_string_equal(parse_spoiled(8, LANES_MAX + 1), "its hello offers what cannot be");
    assert_string_equal(parse_spoiled(12, 0xff), "its hello offers what cannot be"); /* eager */
    assert_string_equal(parse_spoiled(16, 0x01), "its hello offers what cannot be"); /* window */
    assert_string_equal(parse_spoiled(19, 0), "its hello offers what cannot be");
    assert_string_equal(parse_spoiled(23, 1), "its hello offers what cannot be"); /* longest */
}

static void test_endpoints(void **state)
{
    struct endpoint endpoint = {.lid = 0x1234, .mtu = 5, .is_infiniband = true, .reads_max = 16};
    struct endpoint parsed;
    uint8_t bytes[ENDPOINT_LENGTH];
    for (unsigned i = 0; i <= LANES_MAX; i++) {
        endpoint.qpn[i] = 0xffffff - i;
        endpoint.psn[i] = 0xabc000 + i;
    }
    memset(endpoint.gid, 0xfe, 16);
    endpoint_pack(&endpoint, bytes);
    assert_null(endpoint_parse(bytes, &parsed));
    assert_memory_equal(parsed.gid, endpoint.gid, 16);
    assert_memory_equal(parsed.qpn, endpoint.qpn, sizeof(endpoint.qpn));
    assert_memory_equal(parsed.psn, endpoint.psn, sizeof(endpoint.psn));
    assert_int_equal(parsed.lid, 0x1234);
    assert_int_equal(parsed.mtu, 5);
    assert_true(parsed.is_infiniband);
    assert_int_equal(parsed.reads_max, 16);
    bytes[18] = 6;
    assert_string_equal(endpoint_parse(bytes, &parsed), "its path MTU is none");
    bytes[18] = 5;
    bytes[24] = 1;
    assert_string_equal(endpoint_parse(bytes, &parsed), "its queue pair's number is none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_endpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
