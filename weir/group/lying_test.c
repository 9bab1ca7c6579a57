/* Peers that say what they like: to a member's two procedures, and as a member that is called. And
 * calls that come twice, as they do when a tree was repaired. */
#include "weir/group/group_world_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/bytes.h"
#include "weir/group/call_message.h"
#include "weir/group/group.h"
#include "weir/group/run.h"
#include "weir/group/spread.h"
#include "weir/group/swim_message.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static const struct weir_group_options quick = {.period_ms = 60, .radix = 2};

/* A stranger, who speaks rpc to member 0. */
struct stranger {
    struct weir_rpc *rpc;
    struct weir_target *target;
    struct weir_procedure *call, *swim;
    unsigned told;
    enum weir_status status;
    uint32_t code;
    size_t length;
    uint8_t bytes[256];
};

static void stranger_open(struct stranger *stranger, struct group_world *world)
{
    struct weir_error error;
    *stranger = (struct stranger){0};
    assert_int_equal(weir_rpc_create(world->poller, NULL, &stranger->rpc, &error), WEIR_OK);
    assert_int_equal(
        weir_target_create(stranger->rpc, world->addresses[0], &stranger->target, &error), WEIR_OK);
    assert_int_equal(
        weir_rpc_register(stranger->rpc, "group/call", NULL, NULL, &stranger->call, &error),
        WEIR_OK);
    assert_int_equal(
        weir_rpc_register(stranger->rpc, "group/swim", NULL, NULL, &stranger->swim, &error),
        WEIR_OK);
}

static void told(const struct weir_reply *reply, void *argument)
{
    struct stranger *stranger = argument;
    stranger->told++;
    stranger->status = reply->status;
    stranger->code = reply->code;
    stranger->length = reply->length;
    if (reply->length > 0 && reply->length <= sizeof(stranger->bytes)) {
        memcpy(stranger->bytes, reply->bytes, reply->length);
    }
}

static void say(struct stranger *stranger, struct weir_procedure *procedure, const void *bytes,
                size_t length)
{
    struct weir_piece piece = {bytes, length};
    assert_int_equal(
        weir_rpc_call(stranger->target, procedure, &piece, 1, NULL, told, stranger, NULL), WEIR_OK);
}

static void run_until(struct group_world *world, const struct stranger *stranger, unsigned count)
{
    while (stranger->told < count) {
        group_world_poll(world);
    }
}

/* A call with nobody below, of "sum" with 5. */
static size_t make_call(uint64_t number, uint8_t *bytes)
{
    uint64_t value = 5;
    struct call_request request = {.radix = 2,
                                   .caller_rank = 3,
                                   .caller = 77,
                                   .number = number,
                                   .procedure = XXH3_64bits("sum", 3),
                                   .total_ms = 5000};
    call_request_pack(&request, bytes);
    put_u32(bytes + CALL_REQUEST_LENGTH, 0);
    memcpy(bytes + CALL_REQUEST_LENGTH + 4, &value, sizeof(value));
    return CALL_REQUEST_LENGTH + 4 + sizeof(value);
}

static void test_what_is_not_understood(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    struct stranger stranger;
    uint8_t bytes[600];
    uint32_t random = 1;
    group_world_open(&world, 4, &quick);
    stranger_open(&stranger, &world);
    unsigned said = 0;
    for (unsigned i = 0; i < 200; i++) {
        size_t length = make_call(i, bytes);
        random = random * 1664525u + 1013904223u;
        for (size_t k = 0; k < 1 + i % 4; k++) {
            bytes[(random >> (8 + k)) % CALL_REQUEST_LENGTH] ^= (uint8_t)(1u << (i % 8));
        }
        length -= i % 3 == 0 ? (random >> 20) % length : 0;
        say(&stranger, i % 2 == 0 ? stranger.call : stranger.swim, bytes, length);
        run_until(&world, &stranger, ++said);
        assert_true(stranger.status == WEIR_OK || stranger.status == WEIR_REFUSED);
    }
    group_call(world.members[1].group, world.members[1].sum, 0, NULL, &outcome);
    group_world_run_until(&world, &outcome.is_told);
    assert_int_equal(outcome.reply.replied, 4);
    weir_rpc_destroy(stranger.rpc);
    group_world_close(&world);
}

/* It runs once; whoever asks again, also while it runs, hears the same. */
static void test_asked_twice(void **state)
{
    struct group_world world;
    struct stranger stranger;
    uint8_t bytes[128];
    group_world_open(&world, 4, &quick);
    stranger_open(&stranger, &world);
    struct group_member *member = &world.members[0];
    for (unsigned i = 1; i <= 3; i++) {
        size_t length = make_call(1, bytes);
        say(&stranger, stranger.call, bytes, length);
        run_until(&world, &stranger, i);
        assert_int_equal(stranger.status, WEIR_OK);
        assert_int_equal(stranger.length, 8 + 8);
        assert_int_equal(member->runs, 1);
    }
    size_t length = make_call(2, bytes);
    put_u64(bytes + 24, XXH3_64bits("keep", 4));
    say(&stranger, stranger.call, bytes, length);
    say(&stranger, stranger.call, bytes, length);
    while (member->kept == NULL) {
        group_world_poll(&world);
    }
    for (unsigned i = 0; i < 20; i++) {
        group_world_poll(&world);
    }
    assert_int_equal(stranger.told, 3);
    assert_int_equal(weir_group_request_reply(member->kept, "x", 1), WEIR_OK);
    run_until(&world, &stranger, 5);
    assert_int_equal(stranger.length, 8 + 1);
    assert_int_equal(member->runs, 2);
    /* What is forgotten does not run again either. */
    length = make_call(3, bytes);
    put_u32(bytes + 32, 0);
    say(&stranger, stranger.call, bytes, length);
    run_until(&world, &stranger, 6);
    while (member->group->calls.count > 2) {
        group_world_poll(&world);
    }
    say(&stranger, stranger.call, bytes, length);
    run_until(&world, &stranger, 7);
    assert_int_equal(member->runs, 3);
    assert_int_equal(get_u32(stranger.bytes + 4), 1); /* a failure: */
    assert_int_equal(get_u32(stranger.bytes + 16), WEIR_STATE);
    weir_rpc_destroy(stranger.rpc);
    group_world_close(&world);
}

/* Whoever asked is gone: nothing is waited for on its behalf, and what it has begun goes on. */
static void test_who_asked_is_gone(void **state)
{
    struct group_world world;
    struct stranger stranger;
    uint8_t bytes[128];
    group_world_open(&world, 4, &quick);
    stranger_open(&stranger, &world);
    struct group_member *member = &world.members[0];
    size_t length = make_call(1, bytes);
    put_u64(bytes + 24, XXH3_64bits("keep", 4));
    say(&stranger, stranger.call, bytes, length);
    while (member->kept == NULL) {
        group_world_poll(&world);
    }
    const struct weir_group_request *run = member->group->calls.first;
    assert_non_null(run->spreads);
    weir_rpc_destroy(stranger.rpc);
    for (unsigned i = 0; i < 1000 && run->spreads != NULL; i++) {
        group_world_poll(&world);
    }
    assert_null(run->spreads);
    assert_int_equal(weir_group_request_reply(member->kept, "x", 1), WEIR_OK);
    group_world_close(&world);
}

/* Few bytes that ask for as many ranks as may be, of whom nobody is there. */
static void test_what_a_call_costs(void **state)
{
    struct group_world world;
    struct stranger stranger;
    uint8_t bytes[128];
    group_world_open(&world, 4, &quick);
    stranger_open(&stranger, &world);
    struct group_member *member = &world.members[0];
    make_call(1, bytes);
    put_u64(bytes + 24, XXH3_64bits("keep", 4));
    put_u32(bytes + CALL_REQUEST_LENGTH, 1);
    put_u32(bytes + CALL_REQUEST_LENGTH + 4, 4);
    put_u32(bytes + CALL_REQUEST_LENGTH + 8, WEIR_GROUP_SIZE_MAX - 4);
    say(&stranger, stranger.call, bytes, CALL_REQUEST_LENGTH + 12);
    while (member->runs == 0) {
        group_world_poll(&world);
    }
    const struct failures *failures = &member->group->calls.first->spreads->failures;
    assert_int_equal(failures->total, WEIR_GROUP_SIZE_MAX - 4);
    assert_in_range(failures->capacity, 1, 16);
    weir_rpc_destroy(stranger.rpc);
    group_world_close(&world);
}

/* --- a member that answers what it likes --- */

struct liar {
    unsigned lie, asked;
};

static void handle_lie(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct liar *liar = user;
    uint8_t lie[64] = {0x67, 0x72, 1, 0};
    size_t lie_length = 8;
    liar->asked++;
    switch (liar->lie) {
    case 0: /* nothing at all */
        lie_length = 0;
        break;
    case 1: /* failures of others than it was asked for */
        put_u32(lie + 4, 1);
        put_u32(lie + 8, 0);
        put_u32(lie + 12, 2);
        put_u32(lie + 16, WEIR_REFUSED);
        lie_length = 24;
        break;
    case 2: /* bytes that cannot be combined */
        lie[3] = 1;
        lie_length = 11;
        break;
    case 3: /* more failures than there are bytes */
        put_u32(lie + 4, UINT32_MAX);
        break;
    default:
        weir_request_refuse(request, 4711, "a code that is no status");
        return;
    }
    struct weir_piece piece = {lie, lie_length};
    assert_int_equal(weir_request_reply(request, &piece, 1), WEIR_OK);
}

/* It harms its own place in the tree, and nobody below it. */
static void test_a_member_that_lies(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    struct weir_error error;
    struct liar liar = {0};
    group_world_open(&world, 12, &quick);
    struct group_member *member = &world.members[1];
    weir_group_destroy(member->group);
    member->group = NULL;
    assert_int_equal(weir_rpc_register(member->rpc, "group/call", handle_lie, &liar, NULL, &error),
                     WEIR_OK);
    for (liar.lie = 0; liar.lie < 5; liar.lie++) {
        group_call(world.members[0].group, world.members[0].sum, 0, NULL, &outcome);
        group_world_run_until(&world, &outcome.is_told);
        assert_int_equal(outcome.reply.replied, 11);
        assert_int_equal(outcome.reply.failure_count, 1);
        assert_int_equal(outcome.failures[0].first, 1);
        assert_int_equal(group_sum(&outcome), 66 - 1);
        if (liar.asked > liar.lie) { /* it was not held dead yet */
            assert_int_equal(outcome.failures[0].status, WEIR_PROTOCOL);
        }
    }
    assert_true(liar.asked > 0);
    group_world_close(&world);
}

/* A member without the procedure costs its own place, too. */
static void test_not_registered_there(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    struct weir_error error;
    struct weir_group_procedure *only_here;
    group_world_open(&world, 5, &quick);
    assert_int_equal(weir_group_register(world.members[0].group, "only here", NULL, NULL, NULL,
                                         &only_here, &error),
                     WEIR_OK);
    assert_int_equal(weir_group_register(world.members[0].group, "only here", NULL, NULL, NULL,
                                         &only_here, &error),
                     WEIR_INVALID);
    group_call(world.members[0].group, only_here, 0, NULL, &outcome);
    group_world_run_until(&world, &outcome.is_told);
    assert_int_equal(outcome.reply.replied, 0);
    assert_int_equal(outcome.reply.failure_count, 1); /* the same for all */
    assert_int_equal(outcome.failures[0].status, WEIR_UNSUPPORTED);
    group_world_close(&world);
}

static void test_wrong_groups(void **state)
{
    static const char *const addresses[] = {"127.0.0.1:1", "127.0.0.1:2"};
    struct group_world world;
    struct weir_error error;
    struct weir_group *group;
    group_world_open(&world, 1, &quick);
    struct weir_rpc *rpc = world.members[0].rpc;
    struct weir_group_options wrong[] = {
        {.name = ""},    {.name = "a name of more than 31 bytes is too long"},
        {.radix = 1},    {.radix = 65},
        {.indirect = 9}, {.period_ms = 10, .probe_ms = 10},
        {.name = NULL}, /* it is taken */
    };
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_int_equal(weir_group_create(rpc, &wrong[i], addresses, 2, 0, &group, &error),
                         WEIR_INVALID);
    }
    struct weir_group_options other = {.name = "other"};
    assert_int_equal(weir_group_create(rpc, &other, addresses, 2, 2, &group, &error), WEIR_INVALID);
    assert_int_equal(weir_group_create(rpc, &other, addresses, 0, 0, &group, &error), WEIR_INVALID);
    assert_int_equal(weir_group_create(rpc, &other, addresses, 2, 0, &group, &error), WEIR_OK);
    weir_group_destroy(group);
    assert_int_equal(weir_group_create(rpc, &other, addresses, 2, 1, &group, &error), WEIR_OK);
    assert_int_equal(weir_group_rank(group), 1);
    assert_int_equal(weir_group_size(group), 2);
    weir_group_destroy(group);
    group_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_understood), cmocka_unit_test(test_asked_twice),
        cmocka_unit_test(test_a_member_that_lies),     cmocka_unit_test(test_not_registered_there),
        cmocka_unit_test(test_wrong_groups),           cmocka_unit_test(test_what_a_call_costs),
        cmocka_unit_test(test_who_asked_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
