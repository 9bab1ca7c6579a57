/* Copies to several receivers at once, and what becomes of the others when one of them dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/choice/filter.h"
#include "tools/transfer/copy/fanout_world.h"

#define KIB (1u << 10)

static const char *const files[] = {"t/a", "t/big", "t/d/b", "t/d/empty", "t/z"};
#define FILE_COUNT (sizeof(files) / sizeof(files[0]))

static void make_tree(const struct scratch *s)
{
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/d");
    scratch_write(s, "here/t/a", "first");
    scratch_fill(s, "here/t/big", 600 * KIB, 1);
    scratch_fill(s, "here/t/d/b", 20 * KIB, 2);
    scratch_write(s, "here/t/d/empty", "");
    scratch_fill(s, "here/t/z", 40 * KIB, 3);
}

static bool has_all(const struct fanout_world *world, unsigned node)
{
    for (size_t i = 0; i < FILE_COUNT; i++) {
        char here[64], there[64];
        snprintf(here, sizeof(here), "here/%s", files[i]);
        snprintf(there, sizeof(there), "root%u/%s", node, files[i]);
        if (!scratch_exists(world->scratch, there) || !scratch_same(world->scratch, here, there)) {
            return false;
        }
    }
    return true;
}

/* What a killed receiver had under way is its own, and is swept by the next that comes. */
static void empty(const struct fanout_world *world)
{
    for (unsigned i = 0; i < NODES_MAX; i++) {
        for (size_t j = 0; j < FILE_COUNT; j++) {
            unlinkat(world->nodes[i].root, files[j], 0);
        }
        unlinkat(world->nodes[i].root, "t/d", AT_REMOVEDIR);
        unlinkat(world->nodes[i].root, "t", AT_REMOVEDIR);
    }
}

static void expect_whole(const struct fanout_world *world, unsigned node)
{
    if (fanout_outcome(world->fanout, node) != SESSION_COMPLETE) {
        print_message("%u: %s\n", node, fanout_why(world->fanout, node));
    }
    assert_int_equal(fanout_outcome(world->fanout, node), SESSION_COMPLETE);
    assert_int_equal(fanout_tally(world->fanout, node)->failed, 0);
    assert_true(has_all(world, node));
}

static void expect_complete(const struct fanout_world *world)
{
    assert_true(session_is_closed(world->client));
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
}

/* All that a copy to so many leaves behind. */
static void expect_whole_everywhere(const struct fanout_world *world)
{
    expect_complete(world);
    for (unsigned i = 0; i < world->count; i++) {
        expect_whole(world, i);
    }
}

/* A copy of the tree to so many, which is to be run. */
static void begin_tree(struct fanout_world *world, unsigned count)
{
    make_tree(world->scratch);
    world->request.wishes.bits |= WISH_RECURSIVE;
    fanout_world_begin(world, "t", count);
}

static void each_receiver_gets_all_and_the_source_puts_it_once(void **state)
{
    struct fanout_world *world = *state;
    make_tree(world->scratch);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_TOTALS;
    for (unsigned count = 1; count <= NODES_MAX; count++) {
        fanout_world_begin(world, "t", count);
        fanout_world_run(world);
        expect_whole_everywhere(world);
        assert_int_equal(session_tally(world->client)->files, FILE_COUNT);
        assert_int_equal(fanout_bytes_put(world->fanout), 640 * KIB);
        assert_int_equal(fanout_feeds(world->fanout), 1);
        empty(world);
    }
}

static void more_than_the_chain_holds_goes_through_it(void **state)
{
    struct fanout_world *world = *state;
    const uint64_t size = 3ull * HOP_CHUNK_LENGTH * HOP_CHUNK_COUNT + 17;
    scratch_fill(world->scratch, "here/t", size, 4);
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    expect_complete(world);
    assert_true(scratch_same(world->scratch, "here/t", "root0/t"));
    assert_true(scratch_same(world->scratch, "here/t", "root2/t"));
    assert_int_equal(fanout_bytes_put(world->fanout), size);
}

static struct {
    unsigned node, step;
    unsigned other, other_step;
} deaths;

static void die(struct fanout_world *world, unsigned step)
{
    if (step == deaths.step) {
        fanout_world_kill(world, deaths.node);
    }
    if (step == deaths.other_step) {
        fanout_world_kill(world, deaths.other);
    }
}

/* Who died is named, if it had not said that it has all; the others have all. */
static void expect_others_whole(const struct fanout_world *world)
{
    expect_complete(world);
    for (unsigned i = 0; i < world->count; i++) {
        bool dead = world->nodes[i].dead;
        if (!dead || fanout_outcome(world->fanout, i) == SESSION_COMPLETE) {
            expect_whole(world, i);
        } else {
            assert_true(fanout_why(world->fanout, i)[0] != 0);
        }
    }
}

static void a_receiver_may_die_at_each_event(void **state)
{
    struct fanout_world *world = *state;
    begin_tree(world, 3);
    unsigned steps = fanout_world_run(world);
    assert_true(steps > 100);
    world->between = die;
    deaths.other_step = UINT32_MAX;
    for (deaths.node = 0; deaths.node < 3; deaths.node++) {
        for (deaths.step = 0; deaths.step < steps; deaths.step++) {
            empty(world);
            fanout_world_begin(world, "t", 3);
            fanout_world_run(world);
            expect_others_whole(world);
        }
    }
}

static void two_of_five_may_die(void **state)
{
    struct fanout_world *world = *state;
    begin_tree(world, 5);
    unsigned steps = fanout_world_run(world);
    world->between = die;
    for (unsigned i = 0; i < 200; i++) {
        unsigned number = i * 2654435761u;
        deaths.node = number % 5;
        deaths.other = (deaths.node + 1 + number / 5 % 4) % 5;
        deaths.step = number / 20 % steps;
        deaths.other_step = deaths.step + number / 7 % 40;
        empty(world);
        fanout_world_begin(world, "t", 5);
        fanout_world_run(world);
        expect_others_whole(world);
    }
}

static void when_all_die_the_copy_ends(void **state)
{
    struct fanout_world *world = *state;
    make_tree(world->scratch);
    world->request.wishes.bits = WISH_RECURSIVE;
    world->between = die;
    deaths.node = 0;
    deaths.other = 1;
    for (deaths.step = 0; deaths.step < 60; deaths.step += 7) {
        deaths.other_step = deaths.step + 3;
        fanout_world_begin(world, "t", 2);
        fanout_world_run(world);
        assert_true(session_is_closed(world->client));
        assert_int_equal(session_outcome(world->client), SESSION_LOST);
        empty(world);
    }
}

static unsigned cuts, steps_between;

static void cut(struct fanout_world *world, unsigned step)
{
    if (step % steps_between == steps_between / 2 && cuts > 0) {
        cuts -= fanout_world_cut(world, 1);
    }
}

static void a_line_that_breaks_is_joined_again(void **state)
{
    struct fanout_world *world = *state;
    world->between = cut;
    cuts = 2;
    steps_between = 40;
    begin_tree(world, 3);
    fanout_world_run(world);
    assert_int_equal(cuts, 0);
    expect_whole_everywhere(world);
    assert_int_equal(fanout_bytes_put(world->fanout), 640 * KIB);
}

/* However often: between two breaks all get on. */
static void a_line_that_breaks_often_is_joined_again(void **state)
{
    struct fanout_world *world = *state;
    scratch_fill(world->scratch, "here/t", 100 * HOP_CHUNK_LENGTH, 4);
    world->between = cut;
    cuts = 6;
    steps_between = 100; /* so long takes a whole window of chunks with its acknowledgements */
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    assert_int_equal(cuts, 0);
    expect_complete(world);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(fanout_outcome(world->fanout, i), SESSION_COMPLETE);
    }
}

/* What one has, all behind it do not have yet. */
static void two_may_die_before_one_that_lags(void **state)
{
    struct fanout_world *world = *state;
    begin_tree(world, 4);
    world->nodes[3].lags = true;
    fanout_world_run(world);
    fanout_world_kill(world, 1);
    fanout_world_run(world);
    fanout_world_kill(world, 2);
    fanout_world_run(world);
    world->nodes[3].lags = false;
    fanout_world_run(world);
    expect_complete(world);
    expect_whole(world, 0);
    expect_whole(world, 3);
}

static void who_cannot_be_fed_is_given_up(void **state)
{
    struct fanout_world *world = *state;
    world->nodes[1].deaf = true;
    world->nodes[2].unreachable = true;
    world->nodes[3].refuses = true;
    begin_tree(world, 5);
    fanout_world_run(world);
    expect_complete(world);
    expect_whole(world, 0);
    expect_whole(world, 4);
    assert_string_equal(fanout_why(world->fanout, 1), "a cannot feed it: no way");
    assert_int_equal(fanout_outcome(world->fanout, 2), SESSION_UNREACHED);
    assert_string_equal(fanout_why(world->fanout, 3), "not here");
    assert_int_equal(fanout_outcome(world->fanout, 3), SESSION_REFUSED);
}

/* Until a time has passed, by a clock that the test sets. */
static void expect_given_up_after(struct fanout_world *world, unsigned node, unsigned seconds,
                                  const char *why)
{
    fanout_world_wait(world, seconds);
    assert_int_equal(fanout_outcome(world->fanout, node), SESSION_RUNNING);
    assert_false(session_is_closed(world->client));
    fanout_world_wait(world, 1);
    assert_int_equal(fanout_outcome(world->fanout, node), SESSION_LOST);
    assert_string_equal(fanout_why(world->fanout, node), why);
    expect_complete(world);
}

static void who_says_nothing_is_given_up(void **state)
{
    struct fanout_world *world = *state;
    world->nodes[1].mute = true;
    begin_tree(world, 3);
    fanout_world_run(world);
    expect_given_up_after(world, 1, 10, "no answer to the greeting for 10 s");
    expect_whole(world, 0);
    expect_whole(world, 2);
}

/* While this process was held up, nobody could be heard: that counts for nothing. */
static void who_could_not_be_heard_has_its_time(void **state)
{
    struct fanout_world *world = *state;
    world->nodes[1].mute = true;
    begin_tree(world, 3);
    fanout_world_run(world);
    world->now_s += 1000;
    fanout_world_run(world);
    fanout_world_wait(world, 9);
    world->nodes[1].mute = false;
    fanout_world_run(world);
    expect_whole_everywhere(world);
}

/* Its line breaks, and it does not say by what token another one may come. */
static void who_awaits_nobody_is_given_up(void **state)
{
    struct fanout_world *world = *state;
    scratch_fill(world->scratch, "here/t", 60 * HOP_CHUNK_LENGTH, 4);
    fanout_world_begin(world, "t", 3);
    while (fanout_world_memory(world, 1) == NULL) {
        fanout_world_step(world);
    }
    world->nodes[1].mute = true;
    assert_true(fanout_world_cut(world, 1));
    fanout_world_run(world);
    expect_given_up_after(world, 1, 15, "it was not ready to be fed again for 15 s");
    assert_true(scratch_same(world->scratch, "here/t", "root0/t"));
    assert_true(scratch_same(world->scratch, "here/t", "root2/t"));
}

/* It stands still with its lines open, and is dropped when the source notices: its neighbours come
 * together then, from where they had got to, and it is they who do. */
static void the_neighbours_of_one_dropped_are_linked(void **state)
{
    struct fanout_world *world = *state;
    const uint64_t size = 60 * HOP_CHUNK_LENGTH;
    scratch_fill(world->scratch, "here/t", size, 4);
    fanout_world_begin(world, "t", 4);
    while (fanout_world_memory(world, 3) == NULL) {
        fanout_world_step(world);
    }
    assert_ptr_equal(fanout_world_feeder(world, 2), &world->nodes[1]);
    assert_true(fanout_world_cut(world, 1));
    fanout_world_freeze(world, 1);
    fanout_world_run(world);
    assert_ptr_equal(fanout_world_feeder(world, 2), &world->nodes[1]);
    expect_given_up_after(world, 1, 15, "it was not ready to be fed again for 15 s");
    assert_ptr_equal(fanout_world_feeder(world, 2), &world->nodes[0]);
    assert_ptr_equal(fanout_world_feeder(world, 3), &world->nodes[2]); /* as before */
    assert_int_equal(fanout_bytes_put(world->fanout), size);
    for (unsigned i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "root%u/t", i);
        assert_int_equal(scratch_exists(world->scratch, name) &&
                             scratch_same(world->scratch, "here/t", name),
                         i != 1);
    }
}

/* Whoever is to feed it connects, and gets nothing through, however often. */
static void who_is_not_come_to_is_given_up(void **state)
{
    struct fanout_world *world = *state;
    world->nodes[1].lags = true;
    begin_tree(world, 3);
    fanout_world_run(world);
    fanout_world_wait(world, 2 * 40);
    expect_given_up_after(world, 1, 39, "a cannot feed it: they did not come together for 39 s");
    expect_whole(world, 0);
    expect_whole(world, 2);
}

/* The bytes of a chunk change between the put and its notice. */
static unsigned flips;

static void flip(struct fanout_world *world, unsigned step)
{
    static const char *const names[] = {"here/t/big", "here/t/z"}; /* one of them is the first */
    uint8_t *memory = fanout_world_memory(world, 1), bytes[64];
    for (unsigned i = 0; i < 2 && memory != NULL && flips > 0; i++) {
        int fd = openat(world->scratch->fd, names[i], O_RDONLY);
        assert_int_equal(read(fd, bytes, sizeof(bytes)), sizeof(bytes));
        close(fd);
        if (memcmp(memory, bytes, sizeof(bytes)) == 0) {
            memory[10] ^= 1;
            flips--;
        }
    }
}

static void a_chunk_that_changed_on_its_way_is_put_again(void **state)
{
    struct fanout_world *world = *state;
    world->between = flip;
    flips = 1;
    begin_tree(world, 3);
    fanout_world_run(world);
    assert_int_equal(flips, 0);
    expect_whole_everywhere(world);
    bool twice = false;
    for (unsigned i = 0, feeds = 0; i < world->wire_count; i++) {
        feeds += world->wires[i].to_feed && world->wires[i].server == &world->nodes[1];
        twice |= feeds == 2;
    }
    assert_true(twice);
}

static void what_one_has_others_still_get(void **state)
{
    struct fanout_world *world = *state;
    struct stat before, after;
    begin_tree(world, 1);
    fanout_world_run(world);
    expect_whole(world, 0);
    assert_int_equal(fstatat(world->scratch->fd, "root0/t/big", &before, 0), 0);
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    expect_whole_everywhere(world);
    assert_int_equal(fanout_tally(world->fanout, 0)->same, FILE_COUNT);
    assert_int_equal(fanout_tally(world->fanout, 1)->files, FILE_COUNT);
    assert_int_equal(fstatat(world->scratch->fd, "root0/t/big", &after, 0), 0);
    assert_int_equal(after.st_ino, before.st_ino); /* it was not written again */
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    expect_complete(world);
    assert_int_equal(session_tally(world->client)->same, FILE_COUNT);
    assert_int_equal(fanout_bytes_put(world->fanout), 0);
    world->request.wishes.bits |= WISH_CHECKSUM;
    scratch_fill(world->scratch, "root1/t/z", 40 * KIB, 9);
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    expect_whole_everywhere(world);
    assert_int_equal(fanout_bytes_put(world->fanout), 40 * KIB);
}

static void each_deletes_what_the_source_has_not(void **state)
{
    struct fanout_world *world = *state;
    make_tree(world->scratch);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE | WISH_VERIFY;
    scratch_directory(world->scratch, "root1/t");
    scratch_write(world->scratch, "root1/t/extra", "x");
    scratch_directory(world->scratch, "root2/t");
    scratch_directory(world->scratch, "root2/t/more");
    scratch_write(world->scratch, "root2/t/more/extra", "x");
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    expect_whole_everywhere(world);
    assert_false(scratch_exists(world->scratch, "root1/t/extra"));
    assert_false(scratch_exists(world->scratch, "root2/t/more"));
    assert_int_equal(fanout_tally(world->fanout, 0)->deleted, 0);
    assert_int_equal(fanout_tally(world->fanout, 1)->deleted, 1);
    assert_int_equal(fanout_tally(world->fanout, 2)->deleted, 2);
}

static void each_keeps_what_its_own_rules_keep(void **state)
{
    struct fanout_world *world = *state;
    struct filter *filter = filter_create();
    assert_true(filter_add(filter, RULE_MERGES, (struct span){".rules", 6}));
    assert_true(filter_add(filter, 0, (struct span){".rules", 6}));
    world->request.filter = filter;
    for (unsigned i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof(name), "root%u/t", i);
        scratch_directory(world->scratch, name);
        snprintf(name, sizeof(name), "root%u/t/extra", i);
        scratch_write(world->scratch, name, "x");
    }
    scratch_write(world->scratch, "root1/t/.rules", "P extra\n");
    world->request.wishes.bits = WISH_DELETE;
    begin_tree(world, 3);
    fanout_world_run(world);
    expect_whole_everywhere(world);
    assert_false(scratch_exists(world->scratch, "root0/t/extra"));
    assert_true(scratch_exists(world->scratch, "root1/t/extra"));
    assert_false(scratch_exists(world->scratch, "root2/t/extra"));
    world->request.filter = NULL;
    filter_destroy(filter);
}

static void a_file_that_fails_at_one_is_told_of_that_one(void **state)
{
    struct fanout_world *world = *state;
    make_tree(world->scratch);
    world->request.wishes.bits = WISH_RECURSIVE;
    scratch_directory(world->scratch, "root1/t");
    scratch_directory(world->scratch, "root1/t/big");
    scratch_write(world->scratch, "root1/t/big/in the way", "x");
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    expect_complete(world);
    expect_whole(world, 0);
    expect_whole(world, 2);
    assert_int_equal(fanout_tally(world->fanout, 1)->failed, 1);
    assert_string_equal(world->nodes[1].problems, "there target wrong-kind\n");
    assert_string_equal(world->nodes[0].problems, "");
    assert_int_equal(session_tally(world->client)->failed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fanout_world_setup, fanout_world_teardown)
        T(each_receiver_gets_all_and_the_source_puts_it_once),
        T(more_than_the_chain_holds_goes_through_it),
        T(a_receiver_may_die_at_each_event),
        T(two_of_five_may_die),
        T(when_all_die_the_copy_ends),
        T(a_line_that_breaks_is_joined_again),
        T(a_line_that_breaks_often_is_joined_again),
        T(two_may_die_before_one_that_lags),
        T(who_cannot_be_fed_is_given_up),
        T(who_says_nothing_is_given_up),
        T(who_could_not_be_heard_has_its_time),
        T(who_awaits_nobody_is_given_up),
        T(the_neighbours_of_one_dropped_are_linked),
        T(who_is_not_come_to_is_given_up),
        T(a_chunk_that_changed_on_its_way_is_put_again),
        T(what_one_has_others_still_get),
        T(each_deletes_what_the_source_has_not),
        T(each_keeps_what_its_own_rules_keep),
        T(a_file_that_fails_at_one_is_told_of_that_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
