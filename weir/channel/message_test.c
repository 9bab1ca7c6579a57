/* Channel messages: what is packed parses to the same; everything out of bounds is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "weir/channel/message.h"

static const struct message_limits limits = {.eager_length = 100, .length_max = 5000};

static void test_round_trip(void **state)
{
    static const struct message messages[] = {
        {.kind = MESSAGE_EAGER, .credit_limit = 7, .length = 4},
        {.kind = MESSAGE_EAGER, .length = 0},
        {.kind = MESSAGE_ANNOUNCE,
         .credit_limit = 0xfffffffe,
         .length = 5000,
         .value = 0x01020304,
         .address = 0x1122334455667788,
         .key = 0xa0b0c0d0},
        {.kind = MESSAGE_PULLED, .value = 9},
        {.kind = MESSAGE_NOTICE, .value = 0xffffffff, .length = MESSAGE_LENGTH_MAX},
        {.kind = MESSAGE_CREDIT, .credit_limit = 1},
        {.kind = MESSAGE_BYE},
        {.kind = MESSAGE_ABORT, .value = 3, .length = 5},
    };
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        uint8_t bytes[64] = {0};
        size_t length = message_pack(&messages[i], bytes);
        if (messages[i].kind == MESSAGE_EAGER || messages[i].kind == MESSAGE_ABORT) {
            length += messages[i].length;
        }
        struct message message;
        assert_null(message_parse(bytes, length, &limits, &message));
        assert_int_equal(message.kind, messages[i].kind);
        assert_int_equal(message.credit_limit, messages[i].credit_limit);
        assert_int_equal(message.length, messages[i].length);
        assert_int_equal(message.value, messages[i].value);
        assert_int_equal(message.address, messages[i].address);
        assert_int_equal(message.key, messages[i].key);
        assert_ptr_equal(message.payload, bytes + MESSAGE_HEADER_LENGTH);
        /* Neither a byte less nor one more. */
        assert_non_null(message_parse(bytes, length - 1, &limits, &message));
        assert_non_null(message_parse(bytes, length + 1, &limits, &message));
    }
}

/* The bytes of a header, for those who have something to spoil. */
static void test_header_bytes(void **state)
{
    static const uint8_t wanted[MESSAGE_ANNOUNCE_LENGTH] = {
        0x57, 0x52, 2, 0, 0, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8};
    struct message message = {.kind = MESSAGE_ANNOUNCE,
                              .credit_limit = 5,
                              .length = 256,
                              .value = 6,
                              .address = 7,
                              .key = 8};
    uint8_t bytes[MESSAGE_ANNOUNCE_LENGTH];
    assert_int_equal(message_pack(&message, bytes), sizeof(wanted));
    assert_memory_equal(bytes, wanted, sizeof(wanted));
}

static const char *parse_spoiled(struct message message, size_t at, uint8_t value, size_t length)
{
    uint8_t bytes[512] = {0};
    struct message parsed;
    message_pack(&message, bytes);
    if (at < sizeof(bytes)) {
        bytes[at] = value;
    }
    return message_parse(bytes, length, &limits, &parsed);
}

static void test_refusals(void **state)
{
    const size_t none = 512;
    struct message credit = {.kind = MESSAGE_CREDIT};
    assert_null(parse_spoiled(credit, none, 0, 16));
    assert_string_equal(parse_spoiled(credit, none, 0, 15), "a message shorter than its header");
    assert_string_equal(parse_spoiled(credit, none, 0, 0), "a message shorter than its header");
    assert_string_equal(parse_spoiled(credit, 0, 1, 16), "a message that does not begin as one");
    assert_string_equal(parse_spoiled(credit, 3, 1, 16), "a message that does not begin as one");
    assert_string_equal(parse_spoiled(credit, 2, 0, 16), "a message of unknown kind");
    assert_string_equal(parse_spoiled(credit, 2, MESSAGE_KIND_END, 16),
                        "a message of unknown kind");
    assert_string_equal(parse_spoiled(credit, 11, 1, 16), "a length where there is none");
    struct message eager = {.kind = MESSAGE_EAGER, .length = 101};
    assert_string_equal(parse_spoiled(eager, none, 0, 117), "an eager message too long");
    struct message_limits narrow = {.eager_length = 100, .length_max = 50};
    struct message parsed;
    uint8_t bytes[512] = {0};
    eager.length = 51;
    message_pack(&eager, bytes);
    assert_string_equal(message_parse(bytes, 67, &narrow, &parsed), "a message longer than agreed");
    struct message announce = {.kind = MESSAGE_ANNOUNCE, .length = 5001};
    assert_string_equal(parse_spoiled(announce, none, 0, 28), "a message longer than agreed");
    announce.length = 0;
    assert_string_equal(parse_spoiled(announce, none, 0, 28), "a message longer than agreed");
    struct message notice = {.kind = MESSAGE_NOTICE, .length = MESSAGE_LENGTH_MAX + 1};
    assert_string_equal(parse_spoiled(notice, none, 0, 16), "a notice of an impossible put");
    struct message abort = {.kind = MESSAGE_ABORT, .length = MESSAGE_TEXT_MAX + 1};
    assert_string_equal(parse_spoiled(abort, none, 0, 16 + MESSAGE_TEXT_MAX + 1),
                        "a reason too long");
}

static void test_what_needs_credit(void **state)
{
    assert_true(message_needs_credit(MESSAGE_EAGER));
    assert_true(message_needs_credit(MESSAGE_ANNOUNCE));
    assert_true(message_needs_credit(MESSAGE_NOTICE));
    assert_false(message_needs_credit(MESSAGE_CREDIT));
    assert_false(message_needs_credit(MESSAGE_PULLED));
    assert_false(message_needs_credit(MESSAGE_BYE));
    assert_false(message_needs_credit(MESSAGE_ABORT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_header_bytes),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_what_needs_credit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
