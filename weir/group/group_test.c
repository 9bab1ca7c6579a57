/* Calls to all and to some, end to end. Not here: deaths (lost_test.c). */
#include "weir/group/group_world_test.h"

#include <stdlib.h>
#include <string.h>

static void test_three(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    group_world_open(&world, 3, NULL);
    for (uint32_t caller = 0; caller < 3; caller++) {
        group_call(world.members[caller].group, world.members[caller].sum, 10, NULL, &outcome);
        group_world_run_until(&world, &outcome.is_told);
        assert_int_equal(outcome.reply.status, WEIR_OK);
        assert_int_equal(outcome.reply.asked, 3);
        assert_int_equal(outcome.reply.replied, 3);
        assert_int_equal(group_sum(&outcome), 30 + 0 + 1 + 2);
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_int_equal(world.members[rank].runs, caller + 1);
        }
    }
    group_world_close(&world);
}

/* Every radix, every caller, a client among them. */
static void test_trees(void **state)
{
    static const unsigned radices[] = {2, 3, 8, 64};
    struct group_world world;
    struct group_outcome outcome;
    group_world_open(&world, 12, NULL);
    for (unsigned i = 0; i < 4; i++) {
        struct weir_group_call_options options = {.radix = radices[i]};
        for (uint32_t caller = 0; caller < 12; caller += 5) {
            struct group_member *member = &world.members[caller];
            group_call(member->group, member->list, 0, &options, &outcome);
            group_world_run_until(&world, &outcome.is_told);
            assert_int_equal(outcome.reply.replied, 12);
            assert_int_equal(outcome.reply.length, 12 * sizeof(uint32_t));
            uint32_t ranks[12], seen = 0;
            memcpy(ranks, outcome.bytes, sizeof(ranks));
            for (unsigned k = 0; k < 12; k++) {
                seen |= 1u << ranks[k];
            }
            assert_int_equal(seen, 0xfff);
        }
    }
    group_world_close(&world);
}

static void test_some_ranks(void **state)
{
    struct weir_rank_range ranges[] = {{1, 2}, {5, 1}, {7, 1}};
    struct weir_group_call_options options = {.ranges = ranges, .range_count = 3};
    struct group_world world;
    struct group_outcome outcome;
    group_world_open(&world, 8, NULL);
    for (uint32_t caller = 0; caller < 6; caller += 5) { /* 5 is one of them */
        struct group_member *member = &world.members[caller];
        group_call(member->group, member->sum, 100, &options, &outcome);
        group_world_run_until(&world, &outcome.is_told);
        assert_int_equal(outcome.reply.asked, 4);
        assert_int_equal(outcome.reply.replied, 4);
        assert_int_equal(group_sum(&outcome), 400 + 1 + 2 + 5 + 7);
    }
    assert_int_equal(world.members[0].runs, 0);
    assert_int_equal(world.members[5].runs, 2);
    static const struct weir_rank_range wrong[][2] = {
        {{2, 1}, {1, 1}}, {{1, 2}, {2, 1}}, {{0, 0}, {1, 1}}, {{7, 1}, {8, 1}}, {{0, 9}, {9, 1}}};
    for (unsigned i = 0; i < 5; i++) {
        options.ranges = wrong[i];
        options.range_count = 2;
        assert_int_equal(weir_group_call(world.members[0].group, world.members[0].sum, NULL, 0,
                                         &options, group_told, &outcome),
                         WEIR_INVALID);
    }
    group_world_close(&world);
}

static void test_refusals_and_counts(void **state)
{
    struct group_world world;
    struct group_outcome outcome;
    group_world_open(&world, 9, NULL);
    struct group_member *caller = &world.members[4];
    group_call(caller->group, caller->count, 0, NULL, &outcome);
    group_world_run_until(&world, &outcome.is_told);
    assert_int_equal(outcome.reply.replied, 9);
    assert_int_equal(outcome.reply.length, 0);
    world.members[0].refuses = world.members[1].refuses = world.members[4].refuses = true;
    group_call(caller->group, caller->sum, 1, NULL, &outcome);
    group_world_run_until(&world, &outcome.is_told);
    assert_int_equal(outcome.reply.replied, 6);
    assert_int_equal(outcome.reply.failure_count, 3); /* each has a code of its own */
    assert_int_equal(outcome.failures[1].status, WEIR_REFUSED);
    assert_int_equal(outcome.failures[1].code, 101);
    assert_int_equal(group_failure(&outcome, 4), WEIR_REFUSED);
    assert_int_equal(group_sum(&outcome), 6 + 36 - 0 - 1 - 4);
    group_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three),
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_some_ranks),
        cmocka_unit_test(test_refusals_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
