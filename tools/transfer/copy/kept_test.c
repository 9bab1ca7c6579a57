/* Large files that come to an end for want of room, or of a source that can be read: what of them
 * stays for a later copy, and what does not. And what is noted of them, and is to be no more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/copy/session_world.h"
#include "tools/transfer/disk/journal.h"

#define LARGE (30 * MIB)
#define PIECE (4 * MIB)

ssize_t __real_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __real_pread64(int fd, void *bytes, size_t length, off_t offset);
ssize_t __wrap_pread64(int fd, void *bytes, size_t length, off_t offset);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

static _Atomic off_t full_at = -1;  /* the disk has no room from here on; -1: it has */
static atomic_bool journal_is_full; /* from its second record on */
static off_t unreadable_at = -1;    /* the source cannot be read from here on */
static atomic_uint syncs;
static off_t unreadable_when_stored = -1; /* what unreadable_at becomes when data are stored */
static unsigned lost_at; /* the call for data that tells of lost ones; 0: none does */

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
    bool of_journal = length == JOURNAL_RECORD_LENGTH && offset < (off_t)PIECE;
    bool full = of_journal ? journal_is_full && offset > JOURNAL_HEAD_LENGTH
                           : full_at >= 0 && offset + (off_t)length > full_at;
    errno = ENOSPC;
    return full ? -1 : __real_pwrite64(fd, bytes, length, offset);
}

ssize_t __wrap_pread64(int fd, void *bytes, size_t length, off_t offset)
{
    errno = EIO;
    return unreadable_at >= 0 && offset >= unreadable_at
               ? -1
               : __real_pread64(fd, bytes, length, offset);
}

/* As Linux does: what was lost is told once, and what is still in memory is taken for stored. */
int __wrap_fdatasync(int fd)
{
    bool lost = ++syncs == lost_at;
    unreadable_at = unreadable_when_stored >= 0 ? unreadable_when_stored : unreadable_at;
    errno = EIO;
    return lost ? -1 : __real_fdatasync(fd);
}

static void expect_failed(struct world *world, const char *problem)
{
    assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], problem);
    assert_int_equal(session_tally(world->client)->failed, 1);
    assert_int_equal(session_tally(world->server)->bytes, 0);
    assert_false(scratch_exists(world->scratch, "root/f"));
}

static void expect_kept(struct world *world, uint64_t kept)
{
    world->request.wishes.bits |= WISH_RESUME;
    assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 0);
    assert_int_equal(session_tally(world->client)->kept, kept);
    assert_true(scratch_same(world->scratch, "here/f", "root/f"));
    assert_int_equal(unlinkat(world->scratch->fd, "root/f", 0), 0);
}

static void a_full_disk_leaves_what_was_proven(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", LARGE, 1);
    for (int i = 0; i < 4; i++) { /* written behind or not, with --resume or without */
        world->sealed = world->goes_on_pumping = i % 2 == 1;
        world->request.wishes.bits = i >= 2 ? WISH_RESUME : 0;
        full_at = 3 * PIECE + 100;
        expect_failed(world, "there target no-space\n");
        full_at = -1;
        expect_kept(world, i >= 2 ? 3 * PIECE : 0);
    }
}

static void a_full_disk_may_be_full_for_the_journal_first(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", LARGE, 1);
    world->request.wishes.bits = WISH_RESUME;
    journal_is_full = true;
    full_at = 3 * PIECE + 100;
    expect_failed(world, "there target no-space\n");
    journal_is_full = false;
    full_at = -1;
    expect_kept(world, PIECE);
}

static void a_source_that_cannot_be_read_leaves_what_has_come(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", LARGE, 1);
    for (int resumes = 0; resumes < 2; resumes++) {
        world->request.wishes.bits = resumes == 1 ? WISH_RESUME : 0;
        unreadable_at = 3 * PIECE + 100;
        expect_failed(world, "here source input-output\n");
        unreadable_at = -1;
        expect_kept(world, resumes == 1 ? 3 * PIECE : 0);
    }
}

/* What a hole goes over is unlearnt at once, not piece by piece. */
static void a_hole_over_many_pieces_is_noted_once(void **state)
{
    struct world *world = *state;
    struct stat status;
    scratch_fill(world->scratch, "here/f", LARGE, 1);
    assert_int_equal(fstatat(world->scratch->fd, "here/f", &status, 0), 0);
    const struct timespec times[2] = {status.st_mtim, status.st_mtim};
    world->request.wishes.bits = WISH_RESUME | WISH_FSYNC;
    full_at = 7 * PIECE + 100;
    expect_failed(world, "there target no-space\n");
    full_at = -1;
    int fd = openat(world->scratch->fd, "here/f", O_WRONLY);
    assert_int_equal(
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)(6 * PIECE)), 0);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    syncs = 0;
    expect_kept(world, PIECE);
    assert_in_range(syncs, 1, 3); /* and of the data and the record that came anew */
}

/* Whoever asks for stable storage hears of it, whoever else has asked before. */
static void what_storage_lost_is_not_placed(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", (JOURNAL_BATCH + 1) * PIECE, 1);
    for (int i = 0; i < 3; i++) { /* written behind or not, and read back */
        world->sealed = world->goes_on_pumping = i == 1;
        world->request.wishes.bits = WISH_FSYNC | (i == 2 ? WISH_VERIFY : 0);
        syncs = 0;
        lost_at = 1;
        expect_failed(world, "there target input-output\n");
        lost_at = 0;
        expect_kept(world, 0);
    }
}

static void what_cannot_be_read_back_is_not_called_another(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", LARGE, 1);
    world->request.wishes.bits = WISH_VERIFY;
    unreadable_when_stored = 3 * PIECE + 100;
    expect_failed(world, "there target input-output\n");
    unreadable_when_stored = unreadable_at = -1;
    expect_kept(world, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(a_full_disk_leaves_what_was_proven),
        T(a_full_disk_may_be_full_for_the_journal_first),
        T(a_source_that_cannot_be_read_leaves_what_has_come),
        T(a_hole_over_many_pieces_is_noted_once),
        T(what_storage_lost_is_not_placed),
        T(what_cannot_be_read_back_is_not_called_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
