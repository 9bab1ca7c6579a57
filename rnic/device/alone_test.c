/* What is done as it is posted, without a turn (device_advance_alone). */
#include "rnic/device/pair_test.h"

#define PLACES 64u
#define HERE   0u
#define THERE  8192u
#define LENGTH 100u

struct end {
    struct direct_link link; /* first */
    struct direct_table table;
    struct direct_entry qps[PLACES], keys[PLACES];
};

static struct end ends[2];
static struct pair *pair;
static uint32_t accesses;
static bool refuses, takes_calls;

static uint32_t access_directly(struct direct_link *link, const struct direct_access *access,
                                uint32_t count)
{
    struct direct_there there;
    const struct direct_table *table = &ends[link == &ends[0].link].table;
    accesses++;
    if (refuses || direct_table_grants(table, &(struct direct_seen){0}, access, 1, &there) == 0) {
        return 0;
    }
    uint8_t *its = (uint8_t *)(uintptr_t)there.bytes;
    for (uint32_t i = 0; i < access->place_count; i++) {
        uint8_t *ours = access->places[i].bytes;
        memcpy(access->write ? its : ours, access->write ? ours : its, access->places[i].length);
        its += access->places[i].length;
    }
    link->stores &= !takes_calls;
    return 1;
}

static int begin(void **state)
{
    struct pair_options options = pair_defaults;
    for (int i = 0; i < 2; i++) {
        memset(&ends[i], 0, sizeof ends[i]);
        ends[i].table = (struct direct_table){ends[i].qps, ends[i].keys, PLACES, PLACES};
        ends[i].link = (struct direct_link){.table = &ends[i].table,
                                            .part_bytes = LENGTH,
                                            .qpns_each = 1u << 24,
                                            .access = access_directly,
                                            .stores = true};
        options.direct[i] = &ends[i].link;
    }
    pair = pair_create(&options);
    pair_fill(&pair->sides[0], HERE, LENGTH, 1);
    accesses = 0;
    refuses = takes_calls = false;
    return 0;
}

static int finish(void **state)
{
    pair_destroy(pair);
    return 0;
}

static void post(uint64_t id, uint32_t length)
{
    pair_post_simple(&pair->sides[0], WORK_WRITE, id, HERE, THERE, length);
}

static bool advance_alone(void)
{
    return device_advance_alone(pair->sides[0].device, pair->sides[0].qp);
}

static void expect(uint64_t id)
{
    (void)pair_expect(pair->sides[0].sends, id, COMPLETION_SUCCESS);
}

/* The first has its turn, for nothing is known yet. */
static void post_first(void)
{
    post(1, LENGTH);
    assert_false(advance_alone());
    pair_run(pair);
    expect(1);
}

static void what_follows_one_that_went_so_needs_no_turn(void **state)
{
    post_first();
    pair_fill(&pair->sides[0], HERE, LENGTH, 2);
    post(2, LENGTH);
    assert_true(advance_alone());
    expect(2);
    assert_memory_equal(pair->sides[0].buffer + HERE, pair->sides[1].buffer + THERE, LENGTH);
    pair_post_simple(&pair->sides[0], WORK_READ, 3, HERE + LENGTH, THERE, LENGTH);
    assert_true(advance_alone());
    expect(3);
    assert_memory_equal(pair->sides[0].buffer + HERE + LENGTH, pair->sides[1].buffer + THERE,
                        LENGTH);
    assert_int_equal(accesses, 3);
}

static void what_takes_more_than_a_copy_has_a_turn(void **state)
{
    post_first();
    post(2, LENGTH);
    post(3, LENGTH);
    assert_false(advance_alone()); /* two */
    pair_run(pair);
    expect(2);
    expect(3);
    post(4, LENGTH + 1);
    assert_false(advance_alone()); /* in parts */
    pair_run(pair);
    expect(4);
    ends[0].link.stores = false;
    post(5, LENGTH);
    assert_false(advance_alone());
    pair_run(pair);
    expect(5);
    ends[0].link.stores = true;
    post(6, LENGTH);
    device_tell_exact_times(pair->sides[0].device);
    assert_false(advance_alone());
    pair_run(pair);
    expect(6);
}

static void what_is_refused_goes_by_packets(void **state)
{
    post_first();
    refuses = true;
    post(2, LENGTH);
    assert_false(advance_alone());
    pair_run(pair);
    expect(2);
    assert_int_equal(accesses, 2);
}

static struct memory_key register_only_to_read(struct pair_side *side)
{
    struct region_attributes region = {
        .domain = side->domain,
        .address = PAIR_BUFFER_ADDRESS,
        .length = PAIR_BUFFER_LENGTH,
        .bytes = side->buffer,
    };
    struct memory_key key;
    assert_int_equal(memory_register(device_memory(side->device), &region, &key), STATUS_OK);
    return key;
}

static void a_read_asks_whether_its_memory_may_be_written(void **state)
{
    struct pair_side *side = &pair->sides[0];
    post_first();
    pair_fill(&pair->sides[1], THERE, LENGTH, 2);
    struct sge sge = pair_sge(side, HERE + LENGTH, LENGTH);
    sge.key = register_only_to_read(side);
    struct send_request request = pair_request(side, WORK_READ, 2, &sge, THERE);
    pair_post(side, &request);
    assert_false(advance_alone());
    pair_run(pair);
    (void)pair_expect(side->sends, 2, COMPLETION_LOCAL_PROTECTION_ERROR);
    assert_int_equal(side->buffer[HERE + LENGTH], 0);
    assert_int_equal(memory_deregister(device_memory(side->device), sge.key), STATUS_OK);
}

static void one_of_two_pieces_has_a_turn(void **state)
{
    struct pair_side *side = &pair->sides[0];
    post_first();
    pair_fill(side, HERE, LENGTH, 2);
    struct sge sges[] = {pair_sge(side, HERE, LENGTH / 2),
                         pair_sge(side, HERE + LENGTH / 2, LENGTH / 2)};
    struct send_request request = pair_request(side, WORK_WRITE, 2, sges, THERE);
    request.sge_count = 2;
    pair_post(side, &request);
    assert_false(advance_alone());
    pair_run(pair);
    expect(2);
    assert_memory_equal(side->buffer + HERE, pair->sides[1].buffer + THERE, LENGTH);
}

static void nothing_overtakes_what_is_under_way(void **state)
{
    struct pair_side *side = &pair->sides[0];
    post_first();
    pair_post_receive(&pair->sides[1], 7, HERE, LENGTH);
    pair_post_simple(side, WORK_SEND, 2, HERE, 0, LENGTH);
    pair_advance(pair); /* its acknowledgement has not come */
    post(3, LENGTH);
    assert_false(advance_alone());
    pair_run(pair);
    expect(2);
    expect(3);
}

static void whoever_is_in_line_has_his_turn_first(void **state)
{
    struct pair_side *side = &pair->sides[0];
    post_first();
    post(2, LENGTH);
    device_look(side->device, side->qp);
    assert_false(advance_alone());
    assert_int_equal(accesses, 1);
    pair_run(pair);
    expect(2);
}

/* It is done, and there may be something to tell of it. */
static void one_that_became_a_call_has_a_turn(void **state)
{
    post_first();
    takes_calls = true;
    post(2, LENGTH);
    assert_false(advance_alone());
    expect(2);
    assert_int_equal(accesses, 2);
    pair_run(pair);
    pair_expect_none(pair->sides[0].sends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_follows_one_that_went_so_needs_no_turn, begin, finish),
        cmocka_unit_test_setup_teardown(what_takes_more_than_a_copy_has_a_turn, begin, finish),
        cmocka_unit_test_setup_teardown(what_is_refused_goes_by_packets, begin, finish),
        cmocka_unit_test_setup_teardown(a_read_asks_whether_its_memory_may_be_written, begin,
                                        finish),
        cmocka_unit_test_setup_teardown(one_of_two_pieces_has_a_turn, begin, finish),
        cmocka_unit_test_setup_teardown(nothing_overtakes_what_is_under_way, begin, finish),
        cmocka_unit_test_setup_teardown(whoever_is_in_line_has_his_turn_first, begin, finish),
        cmocka_unit_test_setup_teardown(one_that_became_a_call_has_a_turn, begin, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
