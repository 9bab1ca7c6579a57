/* Messages between the members of a fan-out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tools/transfer/chain/hop.h"
#include "tools/transfer/wire/pack.h"

static struct hop_message message_of(enum hop_type type)
{
    struct hop_message message = {.type = type};
    switch (type) {
    case HOP_JOIN:
        message.version = HOP_VERSION;
        break;
    case HOP_FORWARD:
        message.forward.encrypt = true;
        message.forward.address_count = 2;
        memset(message.forward.token.id, 7, HOP_ID_LENGTH);
        memset(&message.forward.token.secret, 8, SECRET_LENGTH);
        message.forward.token.guarded = true;
        strcpy(message.forward.addresses[0], "192.0.2.7:7471");
        strcpy(message.forward.addresses[1], "[2001:db8::7]:7471");
        break;
    case HOP_READY:
        memset(&message.ready, 1, sizeof(message.ready));
        strcpy(message.why, "it is gone");
        break;
    case HOP_LOST:
        strcpy(message.why, "no route");
        memset(message.ready.id, 9, HOP_ID_LENGTH);
        break;
    case HOP_TAKE:
        message.take.position = 1ull << 40;
        message.take.chunk_length = HOP_CHUNK_LENGTH;
        message.take.chunk_count = HOP_CHUNK_COUNT;
        message.take.remote =
            (struct weir_remote){1ull << 47, (uint64_t)HOP_CHUNK_LENGTH * HOP_CHUNK_COUNT, 77};
        break;
    case HOP_CHUNK:
        message.chunk.length = 4711;
        memset(message.chunk.digest, 5, DIGEST_LENGTH);
        break;
    case HOP_ACK:
        message.acked = UINT64_MAX;
        break;
    default:
        memset(message.ready.id, 3, HOP_ID_LENGTH);
        break;
    }
    if (type == HOP_LAST) {
        memset(&message.ready, 0, sizeof(message.ready));
    }
    return message;
}

static void each_message_comes_as_it_was_said(void **state)
{
    for (enum hop_type type = HOP_JOIN; type <= HOP_ACK; type++) {
        const struct hop_message said = message_of(type);
        struct hop_message heard;
        uint8_t bytes[HOP_LENGTH_MAX + 1], again[HOP_LENGTH_MAX];
        size_t length = hop_pack(&said, bytes);
        assert_true(hop_parse(bytes, length, &heard));
        assert_int_equal(heard.type, type);
        assert_int_equal(hop_pack(&heard, again), length);
        assert_memory_equal(bytes, again, length);
        for (size_t cut = 0; cut < length; cut++) {
            assert_false(hop_parse(bytes, cut, &heard));
        }
        bytes[length] = 0;
        assert_false(hop_parse(bytes, length + 1, &heard));
    }
}

static void the_longest_fits_where_messages_go(void **state)
{
    struct hop_message message = message_of(HOP_FORWARD);
    uint8_t bytes[HOP_LENGTH_MAX];
    struct hop_message heard;
    message.forward.address_count = HOP_ADDRESSES_MAX;
    for (unsigned i = 0; i < HOP_ADDRESSES_MAX; i++) {
        memset(message.forward.addresses[i], 'x', HOP_ADDRESS_LENGTH - 1);
        message.forward.addresses[i][HOP_ADDRESS_LENGTH - 1] = 0;
    }
    size_t length = hop_pack(&message, bytes);
    assert_true(hop_parse(bytes, length, &heard));
    assert_string_equal(heard.forward.addresses[HOP_ADDRESSES_MAX - 1],
                        message.forward.addresses[HOP_ADDRESSES_MAX - 1]);
    struct pack pack = {0};
    assert_true(pack_has_room(&pack, length));
}

static void what_is_out_of_bounds_is_no_message(void **state)
{
    struct hop_message heard, said = message_of(HOP_FORWARD);
    uint8_t bytes[HOP_LENGTH_MAX];
    size_t length = hop_pack(&said, bytes);
    const size_t count_at = 1 + HOP_ID_LENGTH + SECRET_LENGTH + 2;
    bytes[count_at] = HOP_ADDRESSES_MAX + 1;
    assert_false(hop_parse(bytes, length, &heard));
    hop_pack(&said, bytes);
    bytes[count_at - 1] = 2; /* a flag */
    assert_false(hop_parse(bytes, length, &heard));
    hop_pack(&said, bytes);
    bytes[count_at + 3] = 0; /* in a text */
    assert_false(hop_parse(bytes, length, &heard));
    said = message_of(HOP_TAKE);
    said.take.remote.length--;
    length = hop_pack(&said, bytes);
    assert_false(hop_parse(bytes, length, &heard));
    said = message_of(HOP_CHUNK);
    said.chunk.length = 0;
    length = hop_pack(&said, bytes);
    assert_false(hop_parse(bytes, length, &heard));
    bytes[0] = HOP_ACK + 1;
    assert_false(hop_is_one(bytes, length));
    bytes[0] = MESSAGE_READ_BACK;
    assert_false(hop_is_one(bytes, length));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_comes_as_it_was_said),
        cmocka_unit_test(the_longest_fits_where_messages_go),
        cmocka_unit_test(what_is_out_of_bounds_is_no_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
