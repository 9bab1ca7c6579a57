/* Messages as they should be, and each way in which they should not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "weir/rpc/rpc_message.h"

static struct rpc_message request(void)
{
    return (struct rpc_message){
        .kind = RPC_REQUEST,
        .value = 5000,
        .call = 0x0102030405060708,
        .procedure = 0x1112131415161718,
        .bulk_count = 2,
        .bulk = {{{0x1000, 64, 7}, WEIR_REMOTE_READ},
                 {{0x2000, 1, 8}, WEIR_REMOTE_READ | WEIR_REMOTE_WRITE}},
    };
}

static void test_request(void **state)
{
    struct rpc_message message = request(), parsed;
    uint8_t bytes[RPC_HEADER_MAX + 3];
    size_t length = rpc_message_pack(&message, bytes);
    assert_int_equal(length, RPC_REQUEST_LENGTH + 2 * RPC_BULK_LENGTH);
    memcpy(bytes + length, "abc", 3);
    assert_null(rpc_message_parse(bytes, length + 3, &parsed));
    assert_int_equal(parsed.value, 5000);
    assert_int_equal(parsed.call, message.call);
    assert_int_equal(parsed.procedure, message.procedure);
    assert_int_equal(parsed.bulk_count, 2);
    assert_int_equal(parsed.bulk[1].remote.address, 0x2000);
    assert_int_equal(parsed.bulk[1].remote.key, 8);
    assert_int_equal(parsed.bulk[1].rights, WEIR_REMOTE_READ | WEIR_REMOTE_WRITE);
    assert_int_equal(parsed.length, 3);
    assert_memory_equal(parsed.bytes, "abc", 3);
    for (size_t i = 0; i < length; i++) {
        assert_non_null(rpc_message_parse(bytes, i, &parsed));
    }
}

static void expect_wrong(const struct rpc_message *message, size_t more, const char *words)
{
    uint8_t bytes[RPC_HEADER_MAX + RPC_WORDS_MAX + 1] = {0};
    struct rpc_message parsed;
    size_t length = rpc_message_pack(message, bytes);
    const char *wrong = rpc_message_parse(bytes, length + more, &parsed);
    assert_non_null(wrong);
    assert_non_null(strstr(wrong, words));
}

static void test_wrong_requests(void **state)
{
    struct rpc_message message = request();
    message.bulk[0].rights = 0;
    expect_wrong(&message, 0, "rights");
    message.bulk[0].rights = 4;
    expect_wrong(&message, 0, "rights");
    message = request();
    message.bulk[1].remote.length = 0;
    expect_wrong(&message, 0, "length");
    message.bulk[1].remote.length = UINT64_MAX - 0x1fff;
    expect_wrong(&message, 0, "length");
    message = request();
    uint8_t bytes[RPC_HEADER_MAX];
    size_t length = rpc_message_pack(&message, bytes);
    bytes[27] = WEIR_BULK_MAX + 1;
    struct rpc_message parsed;
    assert_non_null(strstr(rpc_message_parse(bytes, length, &parsed), "too many"));
    bytes[24] = 0xff;
    assert_non_null(strstr(rpc_message_parse(bytes, length, &parsed), "too many"));
}

static void test_answers(void **state)
{
    struct rpc_message parsed;
    for (unsigned kind = RPC_WELCOME; kind < RPC_KIND_END; kind++) {
        struct rpc_message message = {
            .kind = (enum rpc_kind)kind, .value = kind == RPC_WELCOME, .call = 9};
        uint8_t bytes[RPC_HEADER_MAX];
        size_t length = rpc_message_pack(&message, bytes);
        assert_null(rpc_message_parse(bytes, length, &parsed));
        assert_int_equal(parsed.kind, kind);
        assert_int_equal(parsed.call, 9);
    }
}

static void test_wrong_answers(void **state)
{
    struct rpc_message message = {.kind = RPC_WELCOME};
    expect_wrong(&message, 0, "welcome");
    message.value = RPC_WINDOW_MAX + 1;
    expect_wrong(&message, 0, "welcome");
    message.value = 1;
    expect_wrong(&message, 1, "welcome");
    for (unsigned kind = RPC_UNKNOWN; kind < RPC_KIND_END; kind++) {
        if (kind != RPC_REQUEST) {
            message = (struct rpc_message){.kind = (enum rpc_kind)kind, .value = 1};
            expect_wrong(&message, 0, "more than it may have");
            message.value = 0;
            expect_wrong(&message, 1, "more than it may have");
        }
    }
    message = (struct rpc_message){.kind = RPC_REPLY, .value = 1};
    expect_wrong(&message, 0, "a reply with a value");
    message = (struct rpc_message){.kind = RPC_REFUSED, .value = 1};
    expect_wrong(&message, RPC_WORDS_MAX + 1, "too long");
    message.kind = RPC_KIND_END;
    expect_wrong(&message, 0, "unknown kind");
    message.kind = 0;
    expect_wrong(&message, 0, "unknown kind");
}

static void test_what_is_none(void **state)
{
    struct rpc_message message = {.kind = RPC_CANCEL}, parsed;
    uint8_t bytes[RPC_HEADER_MAX];
    size_t length = rpc_message_pack(&message, bytes);
    bytes[2]++;
    assert_non_null(strstr(rpc_message_parse(bytes, length, &parsed), "version"));
    bytes[0]++;
    assert_non_null(strstr(rpc_message_parse(bytes, length, &parsed), "none of rpc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),      cmocka_unit_test(test_wrong_requests),
        cmocka_unit_test(test_answers),      cmocka_unit_test(test_wrong_answers),
        cmocka_unit_test(test_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
