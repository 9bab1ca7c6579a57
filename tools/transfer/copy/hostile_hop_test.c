/* A member of a fan-out that changes what it has put, when that has been proven. Needs to be linked
 * with --wrap=pwrite64. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/copy/fanout_world.h"

#define MIB  (1u << 20)
#define SIZE (8 * MIB) /* less than the window of a chain */

ssize_t __real_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset);

/* The middle one of three: fed by one that is not the source, and feeds another. */
#define MIDDLE 1
static const char middle_root[] = "/root1/";
/* Where it is, which is shown other bytes while it writes; NULL: nowhere. */
static struct fanout_world *deceived;
static unsigned deceits;

/* In each page of what whoever feeds that one may write to; twice is not at all. */
static void flip_memory(struct fanout_world *world)
{
    uint8_t *memory = fanout_world_memory(world, MIDDLE);
    assert_non_null(memory);
    for (size_t at = 0; at < (size_t)HOP_CHUNK_LENGTH * HOP_CHUNK_COUNT; at += 4096) {
        memory[at] ^= 1;
    }
}

static bool is_of_the_middle(int fd)
{
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = 0;
    return strstr(path, middle_root) != NULL;
}

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
    if (deceived == NULL || !is_of_the_middle(fd)) {
        return __real_pwrite64(fd, bytes, length, offset);
    }
    deceits++;
    flip_memory(deceived);
    ssize_t written = __real_pwrite64(fd, bytes, length, offset);
    flip_memory(deceived);
    return written;
}

static void begin(struct fanout_world *world)
{
    scratch_directory(world->scratch, "here/t");
    scratch_fill(world->scratch, "here/t/big", SIZE, 1);
    world->request.wishes.bits = WISH_RECURSIVE;
    fanout_world_begin(world, "t", 3);
}

/* All have it whole, and nobody was blamed: no more lines than that were made. */
static void expect_whole(const struct fanout_world *world, unsigned lines_expected)
{
    unsigned lines = 0;
    for (unsigned i = 0; i < world->wire_count; i++) {
        lines += world->wires[i].to_feed;
    }
    assert_int_equal(lines, lines_expected);
    for (unsigned i = 0; i < 3; i++) {
        char path[32];
        snprintf(path, sizeof(path), "root%u/t/big", i);
        assert_int_equal(fanout_outcome(world->fanout, i), SESSION_COMPLETE);
        assert_true(scratch_same(world->scratch, "here/t/big", path));
    }
}

/* Digests are taken before a write or after it: what is shown meanwhile must not come into the
 * file. */
static void what_is_written_is_what_was_proven(void **state)
{
    struct fanout_world *world = *state;
    begin(world);
    deceits = 0;
    deceived = world;
    fanout_world_run(world);
    deceived = NULL;
    assert_true(deceits >= SIZE / HOP_CHUNK_LENGTH);
    expect_whole(world, 3);
}

/* The line to the last one stands still when the file is under way. */
static void lag(struct fanout_world *world, unsigned step)
{
    world->nodes[MIDDLE + 1].lags |= step == 100;
}

/* Nor does it go on to the one behind, for whom it is held here until that one has it. */
static void what_goes_on_is_what_was_proven(void **state)
{
    struct fanout_world *world = *state;
    begin(world);
    world->between = lag;
    fanout_world_run(world);
    world->between = NULL;
    assert_true(world->nodes[MIDDLE + 1].lags);
    assert_false(session_is_closed(world->client));
    flip_memory(world);
    assert_true(fanout_world_cut(world, MIDDLE + 1));
    world->nodes[MIDDLE + 1].lags = false;
    fanout_world_run(world);
    expect_whole(world, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fanout_world_setup, fanout_world_teardown)
        T(what_is_written_is_what_was_proven),
        T(what_goes_on_is_what_was_proven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
