/* Pieces of files that are said to be huge: what was left of them is read in slices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tools/transfer/copy/session_world.h"
#include "tools/transfer/ends/receiver_private.h"

#define HUGE_SIZE (UINT64_C(4) << 40) /* whose pieces have up to 32 MiB */
#define DATA      (12 * MIB)

ssize_t __real_pread64(int fd, void *bytes, size_t length, off_t offset);
ssize_t __wrap_pread64(int fd, void *bytes, size_t length, off_t offset);

static uint64_t proven;    /* bytes that the receiver has read again */
static uint64_t gone_over; /* and the sender */

ssize_t __wrap_pread64(int fd, void *bytes, size_t length, off_t offset)
{
    proven += length == CACHED_LENGTH ? length : 0; /* nobody reads chunks of these lengths */
    gone_over += length == EAGER_LENGTH_MAX ? length : 0;
    return __real_pread64(fd, bytes, length, offset);
}

/* Until the session is over, or the server has so many bytes. The most that one side has read at
 * once. */
static uint64_t run_until(struct world *world, uint64_t bytes)
{
    uint64_t most = 0, before[2] = {proven, gone_over};
    while (session_tally(world->server)->bytes < bytes && world_step(world)) {
        most = proven - before[0] > most ? proven - before[0] : most;
        most = gone_over - before[1] > most ? gone_over - before[1] : most;
        before[0] = proven;
        before[1] = gone_over;
    }
    return most;
}

static void make_source(const struct world *world)
{
    scratch_fill(world->scratch, "here/f", DATA, 1);
    int fd = openat(world->scratch->fd, "here/f", O_WRONLY);
    assert_int_equal(ftruncate(fd, HUGE_SIZE), 0);
    close(fd);
}

/* What is after `at`, so that its length tells nothing. */
static void expect_data(const struct world *world)
{
    int fd = openat(world->scratch->fd, "root/f", O_WRONLY);
    assert_int_equal(lseek(fd, 0, SEEK_END), HUGE_SIZE);
    assert_int_equal(ftruncate(fd, DATA), 0);
    close(fd);
    scratch_fill(world->scratch, "here/same", DATA, 1);
    assert_true(scratch_same(world->scratch, "here/same", "root/f"));
}

static void a_large_piece_is_proven_in_slices(void **state)
{
    struct world *world = *state;
    make_source(world);
    world->request.wishes.preserve = PRESERVE_SPARSE;
    world->request.wishes.bits |= WISH_RESUME;
    world_begin_push(world, "f", "/");
    (void)run_until(world, DATA);
    for (unsigned i = 0; i < 3; i++) { /* the hole ends the piece */
        (void)world_step(world);
    }
    memory_pair_cut(world->pair);
    world_run(world);
    world_begin_push(world, "f", "/");
    uint64_t most = run_until(world, UINT64_MAX);
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->kept, DATA);
    assert_in_range(most, 1, READ_BACK_AT_ONCE);
    assert_int_equal(gone_over, DATA);
    expect_data(world);
}

static void a_large_piece_is_read_back_in_slices(void **state)
{
    struct world *world = *state;
    make_source(world);
    world->request.wishes.preserve = PRESERVE_SPARSE;
    world->request.wishes.bits |= WISH_VERIFY;
    world_begin_push(world, "f", "/");
    uint64_t most = run_until(world, UINT64_MAX);
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
    assert_in_range(most, 1, READ_BACK_AT_ONCE);
    assert_true(proven >= DATA);
    expect_data(world);
}

/* As with -c, of one file or of many. */
static void digests_are_taken_in_slices(void **state)
{
    struct world *world = *state;
    char name[2][32];
    for (unsigned i = 0; i < 20; i++) {
        for (unsigned there = 0; there < 2; there++) {
            snprintf(name[there], sizeof(name[there]), "%s/t/%u", there ? "root" : "here", i);
        }
        if (i == 0) {
            scratch_directory(world->scratch, "here/t");
            scratch_directory(world->scratch, "root/t");
        }
        scratch_fill(world->scratch, name[0], i == 0 ? 40 * MIB : MIB, i);
        scratch_fill(world->scratch, name[1], i == 0 ? 40 * MIB : MIB, i);
    }
    world->request.wishes.bits = WISH_RECURSIVE | WISH_CHECKSUM;
    gone_over = 0;
    world_begin_push(world, "t", "/");
    uint64_t most = run_until(world, UINT64_MAX);
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->same, 20);
    assert_int_equal(gone_over, 59 * MIB);
    assert_in_range(most, 1, 2 * READ_BACK_AT_ONCE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(a_large_piece_is_proven_in_slices),
        T(a_large_piece_is_read_back_in_slices),
        T(digests_are_taken_in_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
