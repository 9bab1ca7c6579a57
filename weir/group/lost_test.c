/* Members that die, stop, leave, come back; calls while they do. */
#include "weir/channel/timer.h"
#include "weir/group/group_world_test.h"

#include <stdlib.h>
#include <string.h>

#include "weir/group/group.h"

static const struct weir_group_options quick = {.period_ms = 60, .radix = 2};

static bool holds(const struct group_member *member, uint32_t rank, enum weir_member_state state)
{
    struct weir_member about;
    assert_true(weir_group_member(member->group, rank, &about));
    return about.state == state;
}

/* Until all who live hold that of it. */
static void run_until_held(struct group_world *world, uint32_t rank, enum weir_member_state state)
{
    uint64_t started_ns = clock_now_ns();
    for (uint32_t i = 0; i < world->size; i++) {
        while (world->members[i].group != NULL && i != rank &&
               !holds(&world->members[i], rank, state)) {
            group_world_poll(world);
            if (clock_now_ns() - started_ns > (uint64_t)PATIENCE_MS * 1000000u) {
                fail_msg("%u does not hold %u %s", i, rank, weir_member_state_name(state));
            }
        }
    }
}

static void run_until_told(struct group_world *world, struct group_outcome *outcome)
{
    group_world_run_until(world, &outcome->is_told);
}

/* The dead one is the first below the caller, with half of the group below it. */
static void test_inner_node_dies(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    group_world_open(&world, 16, &quick);
    group_call(world.members[0].group, world.members[0].sum, 0, NULL, &outcome);
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 16);
    group_world_kill(&world, 1);
    group_call(world.members[0].group, world.members[0].sum, 0, NULL, &outcome);
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 15);
    assert_int_equal(outcome.reply.failure_count, 1);
    enum weir_status status = group_failure(&outcome, 1);
    assert_true(status == WEIR_PEER_LOST || status == WEIR_TIMED_OUT);
    assert_int_equal(group_sum(&outcome), 120 - 1);
    run_until_held(&world, 1, WEIR_MEMBER_DEAD);
    group_call(world.members[3].group, world.members[3].sum, 0, NULL, &outcome);
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 15);
    assert_int_equal(group_failure(&outcome, 1), WEIR_UNREACHABLE);
    for (uint32_t rank = 0; rank < 16; rank++) {
        assert_int_equal(world.members[rank].runs, rank == 1 ? 1 : 3); /* once for each */
    }
    group_world_close(&world);
}

/* It dies in the middle: it has handed the call on, and its own handler is at work. */
static void test_dies_while_it_runs(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    uint64_t started_ns = clock_now_ns();
    group_world_open(&world, 16, &quick);
    group_call(world.members[0].group, world.members[0].keep, 0, NULL, &outcome);
    for (uint32_t rank = 0; rank < 16; rank++) {
        while (world.members[rank].kept == NULL) {
            group_world_poll(&world);
            assert_true(clock_now_ns() - started_ns < (uint64_t)PATIENCE_MS * 1000000u);
        }
    }
    group_world_kill(&world, 1);
    group_world_kill(&world, 9); /* the first of the other half */
    for (uint32_t rank = 0; rank < 16; rank++) {
        if (world.members[rank].kept != NULL) {
            assert_int_equal(weir_group_request_caller(world.members[rank].kept), 0);
            assert_int_equal(weir_group_request_reply(world.members[rank].kept, "x", 1), WEIR_OK);
        }
    }
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 14);
    assert_int_equal(outcome.reply.length, 14);
    assert_int_not_equal(group_failure(&outcome, 1), WEIR_OK);
    assert_int_not_equal(group_failure(&outcome, 9), WEIR_OK);
    for (uint32_t rank = 0; rank < 16; rank++) {
        assert_int_equal(world.members[rank].runs, 1);
    }
    group_world_close(&world);
}

/* Its time ends; whom it has below it is called by others. */
static void test_handlers_that_do_not_answer(void **state)
{
    struct weir_group_call_options options = {.timeout_ms = 400};
    struct group_world world;
    struct group_outcome outcome;
    group_world_open(&world, 8, &quick);
    group_call(world.members[2].group, world.members[2].keep, 0, &options, &outcome);
    group_world_poll(&world);
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 0);
    assert_int_equal(outcome.reply.failure_count, 1);
    assert_int_equal(outcome.failures[0].status, WEIR_TIMED_OUT);
    for (uint32_t rank = 0; rank < 8; rank++) { /* nobody waits for it, and it must be said */
        assert_int_equal(world.members[rank].runs, 1);
        weir_group_request_refuse(world.members[rank].kept, 1);
        world.members[rank].kept = NULL;
    }
    group_world_close(&world);
}

static void test_death_is_known_and_return(void **state)
{
    struct group_world world;
    struct weir_error error;
    struct group_outcome outcome;
    group_world_open(&world, 5, &quick);
    struct group_member *member = &world.members[3];
    group_world_kill(&world, 3);
    run_until_held(&world, 3, WEIR_MEMBER_DEAD);
    assert_int_equal(weir_group_alive(world.members[0].group), 4);
    for (uint32_t i = 1; i < 5; i++) {
        assert_true(i == 3 || weir_group_version(world.members[i].group) ==
                                  weir_group_version(world.members[0].group));
    }
    assert_int_equal(weir_rpc_create(world.poller, NULL, &member->rpc, &error), WEIR_OK);
    assert_int_equal(weir_rpc_listen(member->rpc, world.addresses[3], &error), WEIR_OK);
    assert_int_equal(weir_group_create(member->rpc, &world.options,
                                       (const char *const *)world.addresses, 5, 3, &member->group,
                                       &error),
                     WEIR_OK);
    group_world_register(member);
    run_until_held(&world, 3, WEIR_MEMBER_ALIVE);
    group_call(world.members[0].group, world.members[0].sum, 0, NULL, &outcome);
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 5);
    group_world_close(&world);
}

static void left(enum weir_status status, void *argument)
{
    assert_int_equal(status, WEIR_OK);
    *(bool *)argument = true;
}

static void test_leaving(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    bool has_left = false;
    group_world_open(&world, 6, &quick);
    assert_int_equal(weir_group_leave(world.members[2].group, left, &has_left), WEIR_OK);
    assert_int_equal(weir_group_leave(world.members[2].group, left, &has_left), WEIR_STATE);
    assert_false(has_left);
    group_world_run_until(&world, &has_left);
    group_world_kill(&world, 2);
    run_until_held(&world, 2, WEIR_MEMBER_LEFT);
    group_call(world.members[0].group, world.members[0].sum, 0, NULL, &outcome);
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 5);
    assert_int_equal(group_failure(&outcome, 2), WEIR_DISCONNECTED);
    group_world_close(&world);
}

static void handle_slowly(struct weir_group_request *request, const void *bytes, size_t length,
                          void *user)
{
    *(unsigned *)user += 1;
}

static void count_told(const struct weir_group_reply *reply, void *argument)
{
    *(unsigned *)argument += 1;
}

/* Who has more calls at work than go to one server at once is probed all the same. */
static void test_busy_is_not_dead(void **state)
{
    struct weir_rank_range second = {1, 1};
    struct weir_group_call_options options = {
        .timeout_ms = 1500, .ranges = &second, .range_count = 1};
    struct weir_group_procedure *slow[2];
    struct group_world world;
    struct weir_error error;
    unsigned runs = 0, told = 0;
    group_world_open(&world, 2, &quick);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(weir_group_register(world.members[rank].group, "slow", handle_slowly, NULL,
                                             &runs, &slow[rank], &error),
                         WEIR_OK);
    }
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(
            weir_group_call(world.members[0].group, slow[0], NULL, 0, &options, count_told, &told),
            WEIR_OK);
    }
    while (told < 40) {
        group_world_poll(&world);
        assert_true(holds(&world.members[0], 1, WEIR_MEMBER_ALIVE));
    }
    assert_true(runs >= 32);
    group_world_close(&world);
}

static void test_alone(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    bool has_left = false;
    group_world_open(&world, 1, &quick);
    group_call(world.members[0].group, world.members[0].sum, 5, NULL, &outcome);
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 1);
    assert_int_equal(group_sum(&outcome), 5);
    assert_int_equal(weir_group_leave(world.members[0].group, left, &has_left), WEIR_OK);
    group_world_run_until(&world, &has_left);
    group_world_close(&world);
}

/* A client asks, is not asked, and hears who is dead. */
static void test_client(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    struct weir_error error;
    struct group_member client = {0};
    group_world_open(&world, 7, &quick);
    assert_int_equal(weir_rpc_create(world.poller, NULL, &client.rpc, &error), WEIR_OK);
    assert_int_equal(weir_group_create(client.rpc, &world.options,
                                       (const char *const *)world.addresses, 7, WEIR_RANK_NONE,
                                       &client.group, &error),
                     WEIR_OK);
    group_world_register(&client);
    assert_int_equal(weir_group_leave(client.group, left, NULL), WEIR_INVALID);
    group_call(client.group, client.list, 0, NULL, &outcome);
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 7);
    assert_int_equal(outcome.reply.length, 28);
    group_world_kill(&world, 0);
    while (!holds(&client, 0, WEIR_MEMBER_DEAD)) {
        group_world_poll(&world);
    }
    group_call(client.group, client.list, 0, NULL, &outcome);
    run_until_told(&world, &outcome);
    assert_int_equal(outcome.reply.replied, 6);
    assert_int_equal(group_failure(&outcome, 0), WEIR_UNREACHABLE);
    weir_group_destroy(client.group);
    weir_rpc_destroy(client.rpc);
    group_world_close(&world);
}

/* The caller's own handler answers last, and not from weir_poll: the call ends there. */
static void test_own_answer_is_the_last(void **state)
{
    struct weir_rank_range own = {0, 1};
    struct weir_group_call_options options = {.ranges = &own, .range_count = 1};
    struct group_world world;
    struct group_outcome outcome;
    group_world_open(&world, 2, &quick);
    group_call(world.members[0].group, world.members[0].keep, 0, &options, &outcome);
    while (world.members[0].kept == NULL) {
        group_world_poll(&world);
    }
    assert_int_equal(weir_group_request_reply(world.members[0].kept, "x", 1), WEIR_OK);
    assert_true(outcome.is_told);
    assert_int_equal(outcome.reply.replied, 1);
    group_world_close(&world);
}

/* --- callbacks that call --- */

struct busy {
    struct group_world *world;
    unsigned made, told, changes;
    enum weir_status left;
    bool is_over; /* all are told, and nobody has others to tell of */
};

static void call_again(const struct weir_group_reply *reply, void *argument)
{
    struct busy *busy = argument;
    busy->told++;
    for (uint32_t rank = 0; rank < busy->world->size; rank++) {
        struct group_member *member = &busy->world->members[rank];
        struct weir_group_request *kept = member->kept;
        member->kept = NULL;
        if (kept != NULL) {
            weir_group_request_refuse(kept, 1);
        }
        if (member->group != NULL && busy->made < 200) {
            struct weir_group_procedure *procedure =
                busy->made % 2 == 0 ? member->sum : member->list;
            busy->made += weir_group_call(member->group, procedure, NULL, 0, NULL, call_again,
                                          busy) == WEIR_OK;
        }
    }
    busy->is_over = busy->told == busy->made;
}

static void left_at_once(enum weir_status status, void *argument)
{
    ((struct busy *)argument)->left = status;
}

static void call_and_leave(struct weir_group *group, uint32_t rank, enum weir_member_state state,
                           void *user)
{
    struct busy *busy = user;
    struct group_member *member = &busy->world->members[weir_group_rank(group)];
    busy->changes++;
    busy->made += weir_group_call(group, member->sum, NULL, 0, NULL, call_again, busy) == WEIR_OK;
    if (state == WEIR_MEMBER_DEAD && member->rank == 4) {
        weir_group_leave(group, left_at_once, busy);
    }
}

static void test_callbacks_that_call(void **state)
{
    struct group_world world;
    struct busy busy = {.world = &world, .left = WEIR_CANCELED};
    struct weir_group_options options = quick;
    options.changed = call_and_leave;
    options.user = &busy;
    group_world_open(&world, 12, &options);
    busy.made = 1;
    assert_int_equal(weir_group_call(world.members[0].group, world.members[0].keep, NULL, 0, NULL,
                                     call_again, &busy),
                     WEIR_OK);
    while (world.members[11].kept == NULL) {
        group_world_poll(&world);
    }
    group_world_kill(&world, 1);
    group_world_kill(&world, 7);
    weir_group_request_refuse(world.members[0].kept, 1);
    world.members[0].kept = NULL;
    weir_group_request_refuse(world.members[11].kept, 1);
    world.members[11].kept = NULL;
    run_until_held(&world, 1, WEIR_MEMBER_DEAD);
    run_until_held(&world, 7, WEIR_MEMBER_DEAD);
    while (busy.left == WEIR_CANCELED) {
        group_world_poll(&world);
    }
    group_world_run_until(&world, &busy.is_over);
    assert_true(busy.made >= 200 && busy.changes > 0);
    busy.made = 1000; /* no more from what ends now */
    group_world_close(&world);
}

/* Both ends of a call, while it is under way. */
static void test_destroyed_while_called(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    group_world_open(&world, 9, &quick);
    for (uint32_t polls = 0; polls < 9; polls++) {
        struct group_member *caller = &world.members[polls];
        group_call(caller->group, caller->sum, 0, NULL, &outcome);
        for (uint32_t i = 0; i < polls && !outcome.is_told; i++) {
            assert_true(weir_poll(world.poller, 0) >= 0);
        }
        bool was_told = outcome.is_told;
        group_world_kill(&world, polls);
        assert_true(outcome.is_told);
        assert_true(was_told || outcome.reply.status == WEIR_CANCELED);
    }
    group_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inner_node_dies),
        cmocka_unit_test(test_dies_while_it_runs),
        cmocka_unit_test(test_handlers_that_do_not_answer),
        cmocka_unit_test(test_death_is_known_and_return),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_busy_is_not_dead),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_client),
        cmocka_unit_test(test_own_answer_is_the_last),
        cmocka_unit_test(test_callbacks_that_call),
        cmocka_unit_test(test_destroyed_while_called),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
