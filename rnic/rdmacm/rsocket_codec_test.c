#include "rnic/rdmacm/rsocket_codec.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct rsocket_hello sample = {
    .has_mappings = true,
    .credits = 384,
    .mappings = 5,
    .table = {0x0102030405060708, 0x11121314, 2},
    .buffer = {0x2122232425262728, 0x31323334, 65536},
};

static const uint8_t sample_bytes[RSOCKET_HELLO_LENGTH] = {
    1,    2,    0x01, 0x80, 0,    0,    0,    5,    0x01, 0x02, 0x03, 0x04, 0x05, 0x06,
    0x07, 0x08, 0x11, 0x12, 0x13, 0x14, 0,    0,    0,    2,    0x21, 0x22, 0x23, 0x24,
    0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0,    1,    0,    0,
};

static void hello_has_the_layout_of_version_1(void **state)
{
    uint8_t bytes[RSOCKET_HELLO_LENGTH];
    struct rsocket_hello hello;
    rsocket_hello_build(&sample, bytes);
    assert_memory_equal(bytes, sample_bytes, sizeof bytes);
    assert_true(rsocket_hello_parse(bytes, sizeof bytes, &hello));
    assert_int_equal(hello.credits, 384);
    assert_int_equal(hello.mappings, 5);
    assert_false(hello.is_big_endian);
    assert_true(hello.table.address == sample.table.address);
    assert_int_equal(hello.buffer.key, sample.buffer.key);
    assert_int_equal(hello.buffer.length, 65536);
}

static void hello_of_another_kind_is_refused(void **state)
{
    uint8_t bytes[RSOCKET_HELLO_LENGTH];
    struct rsocket_hello hello = {.credits = 7};
    memcpy(bytes, sample_bytes, sizeof bytes);
    assert_false(rsocket_hello_parse(bytes, sizeof bytes - 1, &hello));
    bytes[0] = 2;
    assert_false(rsocket_hello_parse(bytes, sizeof bytes, &hello));
    bytes[0] = 1;
    bytes[23] = 0; /* a table without entries */
    assert_false(rsocket_hello_parse(bytes, sizeof bytes, &hello));
    assert_int_equal(hello.credits, 7);
}

static void without_the_flag_there_are_no_mappings(void **state)
{
    uint8_t bytes[RSOCKET_HELLO_LENGTH];
    struct rsocket_hello hello;
    memcpy(bytes, sample_bytes, sizeof bytes);
    bytes[1] = 1;
    assert_true(rsocket_hello_parse(bytes, sizeof bytes, &hello));
    assert_true(hello.is_big_endian);
    assert_int_equal(hello.mappings, 0);
}

static void large_numbers_of_mappings_are_rounded(void **state)
{
    assert_int_equal(rsocket_round_mappings(0), 0);
    assert_int_equal(rsocket_round_mappings(128), 128);
    assert_int_equal(rsocket_round_mappings(1000), 3 * 256);
    assert_int_equal(rsocket_round_mappings(UINT32_MAX), 127 * 256);
}

static void messages_have_three_bits_of_operation(void **state)
{
    assert_int_equal(rsocket_message_encode(RSOCKET_DATA, 65536), 0x00010000);
    assert_int_equal(rsocket_message_encode(RSOCKET_CREDITS, 0x1234), 0x80001234);
    assert_int_equal(rsocket_message_encode(RSOCKET_MAPPING, 3), 0xc0000003);
    assert_int_equal(rsocket_message_encode(RSOCKET_CONTROL, RSOCKET_SHUTDOWN), 0xe0000002);
    struct rsocket_message message = rsocket_message_decode(0xbfffffff);
    assert_int_equal(message.operation, 5);
    assert_int_equal(message.value, RSOCKET_VALUE_MAX);
}

static void entries_are_in_the_order_of_the_reader(void **state)
{
    uint8_t own[RSOCKET_MAPPING_LENGTH];
    uint8_t other[RSOCKET_MAPPING_LENGTH];
    const struct rsocket_mapping mapping = {0x0807060504030201, {1, 2, 3}};
    rsocket_mapping_encode(&mapping, false, own);
    rsocket_mapping_encode(&mapping, true, other);
    assert_memory_equal(own, &mapping, sizeof own);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(own[i], other[7 - i]);
        assert_int_equal(own[8 + i], other[15 - i]);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(own[16 + i], other[19 - i]);
        assert_int_equal(own[20 + i], other[23 - i]);
    }
}

static void datagrams_name_their_sender(void **state)
{
    uint8_t bytes[RSOCKET_DATAGRAM_HEADER_MAX];
    struct sockaddr_storage source;
    struct sockaddr_in ipv4 = {.sin_family = AF_INET, .sin_port = htons(0x1234)};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6, .sin6_port = htons(0x1234)};
    inet_pton(AF_INET, "10.1.2.3", &ipv4.sin_addr);
    inet_pton(AF_INET6, "fd00::7", &ipv6.sin6_addr);
    const uint8_t expected[] = {4, 8, 0x12, 0x34, 10, 1, 2, 3};
    assert_int_equal(rsocket_datagram_build((struct sockaddr *)&ipv4, bytes), 8);
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_int_equal(rsocket_datagram_parse(bytes, 8, &source), 8);
    assert_memory_equal(&source, &ipv4, sizeof ipv4);
    assert_int_equal(rsocket_datagram_parse(bytes, 7, &source), 0);
    assert_int_equal(rsocket_datagram_build((struct sockaddr *)&ipv6, bytes), 24);
    assert_int_equal(rsocket_datagram_parse(bytes, 24, &source), 24);
    assert_memory_equal(&source, &ipv6, sizeof ipv6);
    assert_int_equal(rsocket_datagram_parse(bytes, 23, &source), 0);
    bytes[1] = 8; /* a length that is not the version's */
    assert_int_equal(rsocket_datagram_parse(bytes, 24, &source), 0);
}

static void udp_headers_name_the_queue_pair(void **state)
{
    uint8_t bytes[RSOCKET_UDP_HEADER_MAX];
    const struct rsocket_udp_header said = {RSOCKET_CONTROL, 0x00abcdef};
    struct rsocket_udp_header heard;
    struct sockaddr_in ipv4 = {.sin_family = AF_INET};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6};
    const struct sockaddr *source = (struct sockaddr *)&ipv4;
    inet_pton(AF_INET, "10.1.2.3", &ipv4.sin_addr);
    const uint8_t expected[] = {0x55, 0x55, 0x55, 0x55, 4,  7, 16, 0,
                                0,    0xab, 0xcd, 0xef, 10, 1, 2,  3};
    assert_int_equal(rsocket_udp_build(&said, source, bytes), 16);
    assert_memory_equal(bytes, expected, sizeof expected);
    assert_int_equal(rsocket_udp_parse(bytes, 16, source, &heard), 16);
    assert_int_equal(heard.operation, RSOCKET_CONTROL);
    assert_int_equal(heard.qpn, 0xabcdef);
    assert_int_equal(rsocket_udp_parse(bytes, 15, source, &heard), 0);
    assert_int_equal(rsocket_udp_parse(bytes, 16, (struct sockaddr *)&ipv6, &heard), 0);
    bytes[0] = 0;
    assert_int_equal(rsocket_udp_parse(bytes, 16, source, &heard), 0);
    assert_int_equal(rsocket_udp_build(&said, (struct sockaddr *)&ipv6, bytes), 28);
    assert_int_equal(rsocket_udp_parse(bytes, 27, (struct sockaddr *)&ipv6, &heard), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_has_the_layout_of_version_1),
        cmocka_unit_test(hello_of_another_kind_is_refused),
        cmocka_unit_test(without_the_flag_there_are_no_mappings),
        cmocka_unit_test(large_numbers_of_mappings_are_rounded),
        cmocka_unit_test(messages_have_three_bits_of_operation),
        cmocka_unit_test(entries_are_in_the_order_of_the_reader),
        cmocka_unit_test(datagrams_name_their_sender),
        cmocka_unit_test(udp_headers_name_the_queue_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
