/* The thread that writes large files, by itself and in whole transfers. */
#include "tools/transfer/disk/writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/copy/session_world.h"

#define LARGE   (20 * MIB) /* behind, with some rounds of all chunks */
#define FAILING 6          /* files, of which more is read ahead than there are chunks */

ssize_t __real_pwrite64(int fd, const void *bytes, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset);

/* The disk is full here; -1: it is not. */
static _Atomic off_t full_at = -1;
/* Something was written by another thread than the test's. */
static atomic_bool was_behind;
static pthread_t test_thread;
/* The disk does not answer while this is locked. */
static pthread_mutex_t stalled = PTHREAD_MUTEX_INITIALIZER;

ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t length, off_t offset)
{
    if (!pthread_equal(pthread_self(), test_thread)) {
        was_behind = true;
    }
    if (!pthread_equal(pthread_self(), test_thread)) { /* as long as the test holds it */
        pthread_mutex_lock(&stalled);
        pthread_mutex_unlock(&stalled);
    }
    if (full_at >= 0 && offset + (off_t)length > full_at) {
        errno = ENOSPC;
        return -1;
    }
    return __real_pwrite64(fd, bytes, length, offset);
}

/* --- by itself --- */

struct notes {
    uint64_t positions[4 * WRITER_ROOM];
    unsigned count;
    uint64_t bad; /* the piece at this position fails; 0: none */
    atomic_uint done;
};

static int note(void *user, const struct writer_piece *piece)
{
    struct notes *notes = user;
    notes->positions[notes->count++] = piece->position;
    return piece->position == notes->bad && notes->bad != 0 ? EIO : 0;
}

static void count(void *user)
{
    ((struct notes *)user)->done++;
}

static struct writer *begin(struct notes *notes)
{
    const struct writer_options options = {.work = note, .done = count, .user = notes};
    struct writer *writer = writer_create(&options);
    assert_non_null(writer);
    return writer;
}

static void pieces_are_done_in_order(void **state)
{
    struct notes notes = {0};
    struct writer *writer = begin(&notes);
    struct writer_piece piece = {0}, back;
    uint64_t given = 0, taken = 0;
    assert_false(writer_take(writer, &back));
    while (taken < 3 * WRITER_ROOM) {
        piece.position = given + 1;
        if (given < 3 * WRITER_ROOM && writer_give(writer, &piece)) {
            given++;
            continue;
        }
        assert_true(given - taken <= WRITER_ROOM);
        writer_wait(writer);
        while (writer_take(writer, &back)) {
            assert_int_equal(back.position, ++taken);
            assert_int_equal(back.error, 0);
        }
        assert_int_equal(taken, given);
    }
    writer_destroy(writer);
    assert_int_equal(notes.count, 3 * WRITER_ROOM);
    assert_int_equal(notes.done, 3 * WRITER_ROOM);
    for (unsigned i = 0; i < notes.count; i++) {
        assert_int_equal(notes.positions[i], i + 1);
    }
}

static void behind_an_error_nothing_is_done(void **state)
{
    struct notes notes = {.bad = 3};
    struct writer *writer = begin(&notes);
    struct writer_piece piece = {0}, back;
    for (unsigned round = 0; round < 2; round++) { /* of which the second has no error */
        for (piece.position = 1; piece.position <= 8; piece.position++) {
            assert_true(writer_give(writer, &piece));
        }
        writer_wait(writer);
        for (unsigned i = 1; writer_take(writer, &back); i++) {
            assert_int_equal(back.position, i);
            assert_int_equal(back.error, round == 0 && i == 3 ? EIO : 0);
        }
        assert_int_equal(notes.count, round == 0 ? 3 : 3 + 8);
        notes.bad = 0;
    }
    writer_destroy(writer);
}

static void what_was_given_is_done_before_the_end(void **state)
{
    struct notes notes = {0};
    struct writer *writer = begin(&notes);
    const struct writer_piece piece = {0};
    for (unsigned i = 0; i < WRITER_ROOM; i++) {
        assert_true(writer_give(writer, &piece));
    }
    assert_false(writer_give(writer, &piece));
    writer_destroy(writer);
    assert_int_equal(notes.count, WRITER_ROOM);
}

/* --- in transfers --- */

static void make_files(struct world *world)
{
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_fill(s, "here/t/a", LARGE, 1);
    scratch_fill(s, "here/t/b", LARGE + 12345, 2);
    int fd = openat(s->fd, "here/t/holes", O_CREAT | O_RDWR, 0600);
    assert_int_equal(ftruncate(fd, (off_t)LARGE), 0);
    for (off_t at = 0; at < (off_t)LARGE; at += MIB) { /* more holes than there is room for */
        assert_int_equal(pwrite(fd, &at, sizeof(at), at), sizeof(at));
    }
    close(fd);
    scratch_write(s, "here/t/small", "beside them");
    world->request.wishes.bits |= WISH_RECURSIVE;
    world->sealed = true;
    test_thread = pthread_self();
    was_behind = false;
}

static void expect_same(struct world *world, const char *name)
{
    char paths[2][64];
    snprintf(paths[0], 64, "here/t/%s", name);
    snprintf(paths[1], 64, "root/t/%s", name);
    assert_true(scratch_same(world->scratch, paths[0], paths[1]));
}

static void large_files_are_written_behind(void **state)
{
    struct world *world = *state;
    make_files(world);
    for (int i = 0; i < 4; i++) {
        world->goes_on_pumping = i % 2 == 1;
        world->request.wishes.bits |= WISH_IGNORE_TIMES | (i >= 2 ? WISH_VERIFY : 0);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->failed, 0);
        assert_int_equal(session_tally(world->client)->files, 4);
        assert_int_equal(session_tally(world->client)->bytes, 3 * LARGE + 12345 + 11);
        expect_same(world, "a");
        expect_same(world, "b");
        expect_same(world, "holes");
        expect_same(world, "small");
        assert_true(was_behind);
        was_behind = false;
    }
    struct stat status;
    assert_int_equal(fstatat(world->scratch->fd, "root/t/holes", &status, 0), 0);
    assert_true(status.st_blocks * 512 < (blkcnt_t)LARGE / 2);
}

/* It is named, leaves nothing behind, and the others come all the same. */
static void an_error_behind_is_that_files(void **state)
{
    struct world *world = *state;
    make_files(world);
    for (off_t at = 0; at <= (off_t)LARGE + 12345; at += 6 * (off_t)MIB) {
        for (int i = 0; i < 2; i++) {
            world->goes_on_pumping = i == 1;
            full_at = at > (off_t)LARGE ? (off_t)LARGE + 1 : at + 100; /* but for b alone */
            assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
            full_at = -1;
            bool of_b = at > (off_t)LARGE;
            assert_int_equal(session_tally(world->client)->failed, of_b ? 1 : 3);
            assert_int_equal(scratch_exists(world->scratch, "root/t/a"), of_b);
            assert_false(scratch_exists(world->scratch, "root/t/b"));
            scratch_expect(world->scratch, "root/t/small", "beside them");
            unlinkat(world->scratch->fd, "root/t/a", 0);
            unlinkat(world->scratch->fd, "root/t/holes", 0);
            unlinkat(world->scratch->fd, "root/t/small", 0);
            assert_int_equal(unlinkat(world->scratch->fd, "root/t", AT_REMOVEDIR), 0);
        }
    }
}

/* What is under way when the line is cut is kept as far as it was proven, and gone on with. */
static void a_cut_line_waits_for_what_is_behind(void **state)
{
    struct world *world = *state;
    uint64_t kept = 0;
    test_thread = pthread_self();
    world->sealed = world->goes_on_pumping = true;
    for (uint64_t bytes = 0; bytes < LARGE; bytes += 6 * MIB) {
        scratch_fill(world->scratch, "here/f", LARGE, 1);
        world->request.wishes.bits &= ~(uint32_t)WISH_RESUME;
        world_begin_push(world, "f", "/");
        while (session_tally(world->server)->bytes < bytes) {
            world_step(world);
        }
        memory_pair_cut(world->pair);
        world_run(world);
        assert_false(scratch_exists(world->scratch, "root/f"));
        world->request.wishes.bits |= WISH_RESUME;
        assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->failed, 0);
        assert_true(scratch_same(world->scratch, "here/f", "root/f"));
        assert_true(session_tally(world->client)->kept + 4 * MIB > bytes); /* whole pieces */
        kept += session_tally(world->client)->kept;
        unlinkat(world->scratch->fd, "root/f", 0);
    }
    assert_true(kept > 0);
}

/* Who has sent all that it may is not the one that does nothing. */
static void a_disk_that_stalls_is_known(void **state)
{
    struct world *world = *state;
    test_thread = pthread_self();
    world->sealed = world->goes_on_pumping = true;
    scratch_fill(world->scratch, "here/f", LARGE, 1);
    world_begin_push(world, "f", "/");
    assert_false(session_is_writing(world->server));
    pthread_mutex_lock(&stalled);
    while (!session_is_writing(world->server)) {
        world_step(world);
    }
    for (unsigned i = 0; i < 200; i++) {
        world_step(world);
    }
    bool writing = session_is_writing(world->server);
    uint64_t activity = session_activity(world->server);
    for (unsigned i = 0; i < 50; i++) {
        world_step(world);
    }
    bool silent = session_activity(world->server) == activity;
    pthread_mutex_unlock(&stalled);
    assert_true(writing && silent);
    world_run(world);
    assert_false(session_is_writing(world->server));
    assert_true(scratch_same(world->scratch, "here/f", "root/f"));
}

/* While the disk stalls the sender reads ahead. Of files that fail then it has as much room as
 * before for those that follow. */
static void what_was_read_for_nothing_holds_no_room(void **state)
{
    struct world *world = *state;
    char name[32];
    test_thread = pthread_self();
    world->sealed = world->goes_on_pumping = true;
    world->request.wishes.bits |= WISH_RECURSIVE;
    scratch_directory(world->scratch, "here/t");
    for (char file = 'a'; file < 'a' + FAILING; file++) {
        snprintf(name, sizeof(name), "here/t/%c", file);
        scratch_fill(world->scratch, name, LARGE, (unsigned)file);
    }
    scratch_fill(world->scratch, "here/t/z", MIB / 2, 1);
    full_at = MIB;
    world_begin_push(world, "t", "/");
    for (unsigned i = 0; i < FAILING; i++) {
        pthread_mutex_lock(&stalled);
        while (!session_is_writing(world->server)) {
            world_step(world);
        }
        for (unsigned step = 0; step < 200; step++) {
            world_step(world);
        }
        pthread_mutex_unlock(&stalled);
        while (session_is_writing(world->server)) {
            world_step(world);
        }
    }
    world_run(world);
    full_at = -1;
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, FAILING);
    expect_same(world, "z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        cmocka_unit_test(pieces_are_done_in_order),
        cmocka_unit_test(behind_an_error_nothing_is_done),
        cmocka_unit_test(what_was_given_is_done_before_the_end),
        T(large_files_are_written_behind),
        T(an_error_behind_is_that_files),
        T(a_cut_line_waits_for_what_is_behind),
        T(a_disk_that_stalls_is_known),
        T(what_was_read_for_nothing_holds_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
