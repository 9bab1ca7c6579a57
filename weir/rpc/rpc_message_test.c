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
        .kind = RPC_NAMED,
        .place = 0xabc,
        .procedure = 0x1112131415161718,
        .timeout_ms = 5000,
        .bulk_count = 2,
        .bulk = {{{0x1000, 64, 7}, WEIR_REMOTE_READ},
                 {{0x2000, 1, 8}, WEIR_REMOTE_READ | WEIR_REMOTE_WRITE}},
    };
}

static void test_request(void **state)
{
    for (unsigned is_named = 0; is_named < 2; is_named++) {
        struct rpc_message message = request(), parsed;
        message.kind = is_named ? RPC_NAMED : RPC_REQUEST;
        uint8_t bytes[RPC_HEADER_MAX + 3];
        size_t length = rpc_message_pack(&message, bytes);
        assert_int_equal(length, (is_named ? 12 : 8) + 2 * RPC_BULK_LENGTH);
        memcpy(bytes + length, "abc", 3);
        assert_null(rpc_message_parse(bytes, length + 3, &parsed));
        assert_int_equal(parsed.kind, message.kind);
        assert_int_equal(parsed.place, 0xabc);
        assert_int_equal(parsed.timeout_ms, 4864);
        assert_int_equal(parsed.procedure, is_named ? message.procedure : 0x15161718);
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
}

/* Never longer than it was, and by less than a sixteenth shorter. */
static void test_times(void **state)
{
    for (unsigned timeout_ms = 0; timeout_ms < 3000000; timeout_ms += 1 + timeout_ms / 1000) {
        struct rpc_message message = {.kind = RPC_REQUEST, .timeout_ms = timeout_ms}, parsed;
        uint8_t bytes[RPC_HEADER_MAX];
        assert_null(rpc_message_parse(bytes, rpc_message_pack(&message, bytes), &parsed));
        if (timeout_ms >= RPC_TIME_MAX_MS) {
            assert_int_equal(parsed.timeout_ms, RPC_TIME_MAX_MS);
        } else {
            assert_in_range(parsed.timeout_ms, timeout_ms - timeout_ms / 16, timeout_ms);
        }
    }
}

static void expect_wrong(const struct rpc_message *message, size_t more, const char *words)
{
    uint8_t bytes[RPC_HEADER_MAX + RPC_NUMBERS_MAX * RPC_NUMBER_LENGTH + 8] = {0};
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
    bytes[2] = (WEIR_BULK_MAX + 1) << 4;
    struct rpc_message parsed;
    assert_non_null(strstr(rpc_message_parse(bytes, length, &parsed), "too many"));
}

static void test_answers(void **state)
{
    struct rpc_message parsed;
    for (unsigned kind = RPC_WELCOME; kind < RPC_KIND_END; kind++) {
        struct rpc_message message = {
            .kind = (enum rpc_kind)kind, .value = kind == RPC_WELCOME, .place = 9};
        uint8_t bytes[RPC_HEADER_MAX];
        size_t length = rpc_message_pack(&message, bytes);
        assert_null(rpc_message_parse(bytes, length, &parsed));
        assert_int_equal(parsed.kind, kind);
        assert_int_equal(parsed.place, 9);
    }
}

static void test_wrong_answers(void **state)
{
    struct rpc_message message = {.kind = RPC_WELCOME};
    expect_wrong(&message, 0, "welcome");
    message.value = RPC_PLACES_MAX + 1;
    expect_wrong(&message, 0, "welcome for");
    message.value = 1;
    expect_wrong(&message, 7, "welcome to");
    expect_wrong(&message, (RPC_NUMBERS_MAX + 1) * RPC_NUMBER_LENGTH, "welcome to");
    for (unsigned kind = RPC_UNKNOWN; kind < RPC_KIND_END; kind++) {
        if (kind != RPC_REQUEST && kind != RPC_NAMED) {
            message = (struct rpc_message){.kind = (enum rpc_kind)kind, .value = 1};
            expect_wrong(&message, 0, "more than it may have");
            message.value = 0;
            expect_wrong(&message, 1, "more than it may have");
        }
    }
    message = (struct rpc_message){.kind = RPC_REPLY, .value = 1};
    expect_wrong(&message, 0, "a reply with a value");
    message = (struct rpc_message){.kind = RPC_REPLY, .bulk_count = 1};
    expect_wrong(&message, 0, "more than it may have");
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
    bytes[0] += 0x10;
    assert_non_null(strstr(rpc_message_parse(bytes, length, &parsed), "version"));
    assert_non_null(strstr(rpc_message_parse(bytes, length - 1, &parsed), "none of rpc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),        cmocka_unit_test(test_times),
        cmocka_unit_test(test_wrong_requests), cmocka_unit_test(test_answers),
        cmocka_unit_test(test_wrong_answers),  cmocka_unit_test(test_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
