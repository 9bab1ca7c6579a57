/* Copies to several receivers that were interrupted and are gone on with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/copy/fanout_world.h"

#define MIB      (1u << 20)
#define CUT_SIZE (30 * MIB + 5)

static unsigned cut_short_at;
static bool all_at_once;

/* Ends the copy in the middle of the file: a receiver at its step, and the source at the last. */
static void interrupt_at(struct fanout_world *world, unsigned step)
{
    if (step == cut_short_at) {
        for (unsigned i = 0; i < world->count; i++) {
            fanout_world_kill(world, i);
        }
    } else if (!all_at_once && cut_short_at - step < 200 * (world->count - 1) &&
               (cut_short_at - step) % 200 == 0) {
        fanout_world_kill(world, (cut_short_at - step) / 200);
    }
}

static void interrupt(struct fanout_world *world, unsigned step, bool all)
{
    world->between = interrupt_at;
    cut_short_at = step;
    all_at_once = all;
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    world->between = NULL;
}

static void expect_resumed(struct fanout_world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "root%u/t", i);
        assert_int_equal(fanout_outcome(world->fanout, i), SESSION_COMPLETE);
        assert_string_equal(world->nodes[i].problems, "");
        assert_true(scratch_same(world->scratch, "here/t", name));
        unlinkat(world->nodes[i].root, "t", 0);
    }
}

/* What all have is not sent; what one lacks is, to all. */
static void interrupted_copies_are_gone_on_with(void **state)
{
    struct fanout_world *world = *state;
    uint64_t least = UINT64_MAX;
    scratch_fill(world->scratch, "here/t", CUT_SIZE, 4);
    fanout_world_begin(world, "t", 3);
    unsigned steps = fanout_world_run(world);
    expect_resumed(world);
    world->request.wishes.bits = WISH_RESUME;
    for (unsigned i = 1; i < 12; i++) {
        interrupt(world, steps * i / 12, i % 2 == 0);
        fanout_world_begin(world, "t", 3);
        fanout_world_run(world);
        uint64_t put = fanout_bytes_put(world->fanout);
        uint64_t kept = session_tally(world->client)->kept;
        assert_int_equal(put + kept, CUT_SIZE);
        assert_int_equal(kept % (4 * MIB) <= 5, true);
        least = put < least ? put : least;
        expect_resumed(world);
    }
    assert_true(least <= 10 * MIB);
}

/* What a copy that was interrupted left at one, not its journal. */
static void name_left(const struct fanout_world *world, unsigned node, char ret_name[256])
{
    DIR *stream = fdopendir(openat(world->nodes[node].root, ".", O_RDONLY | O_DIRECTORY));
    ret_name[0] = 0;
    for (const struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        size_t length = strlen(entry->d_name), shortest = strlen(ret_name);
        if (entry->d_name[0] == '.' && length > 2 && (shortest == 0 || length < shortest)) {
            strcpy(ret_name, entry->d_name);
        }
    }
    closedir(stream);
    assert_true(ret_name[0] != 0);
}

static void flip_left(const struct fanout_world *world, unsigned node, off_t at)
{
    char name[256];
    uint8_t byte;
    name_left(world, node, name);
    int fd = openat(world->nodes[node].root, name, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* One has a wrong bit in one piece, another has nothing: each is told of by itself. */
static void what_one_lacks_is_sent(void **state)
{
    struct fanout_world *world = *state;
    char name[256];
    scratch_fill(world->scratch, "here/t", CUT_SIZE, 4);
    fanout_world_begin(world, "t", 3);
    unsigned steps = fanout_world_run(world);
    expect_resumed(world);
    world->request.wishes.bits = WISH_RESUME;
    interrupt(world, steps * 5 / 6, true);
    flip_left(world, 1, 4 * MIB + 17);
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    uint64_t put = fanout_bytes_put(world->fanout);
    assert_true(put >= 4 * MIB && put <= 18 * MIB);
    assert_string_equal(world->nodes[1].problems, "there target warning\n");
    world->nodes[1].problems[0] = 0;
    expect_resumed(world);
    interrupt(world, steps * 5 / 6, true);
    name_left(world, 2, name);
    unlinkat(world->nodes[2].root, name, 0);
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    assert_int_equal(fanout_bytes_put(world->fanout), CUT_SIZE);
    expect_resumed(world);
    interrupt(world, steps * 5 / 6, true); /* who dies while all prove theirs holds up nobody */
    name_left(world, 2, name);
    unlinkat(world->nodes[2].root, name, 0);
    fanout_world_begin(world, "t", 3);
    for (unsigned i = 0; i < 60; i++) {
        fanout_world_step(world);
    }
    fanout_world_kill(world, 2);
    fanout_world_run(world);
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
    assert_true(scratch_same(world->scratch, "here/t", "root0/t"));
    assert_true(scratch_same(world->scratch, "here/t", "root1/t"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fanout_world_setup, fanout_world_teardown)
        T(interrupted_copies_are_gone_on_with),
        T(what_one_lacks_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
