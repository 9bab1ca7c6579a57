/* Transfers that break off and are gone on with: what is kept, and what is not believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/copy/session_world.h"
#include "tools/transfer/disk/half_mark.h"
#include "tools/transfer/disk/journal.h"
#include "tools/transfer/disk/place.h"

/* Begins, and cuts the line when the server has so many bytes. */
static void break_off(struct world *world, const char *source, uint64_t bytes)
{
    world_begin_push(world, source, "/");
    while (session_tally(world->server)->bytes < bytes && world_step(world)) {
    }
    memory_pair_cut(world->pair);
    world_run(world);
    assert_true(session_is_closed(world->client) && session_is_closed(world->server));
}

static void resume(struct world *world, const char *source, const char *target)
{
    world->request.wishes.bits |= WISH_RESUME;
    assert_int_equal(world_push(world, source, target), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 0);
    world->request.wishes.bits &= ~(uint32_t)WISH_RESUME;
}

static int count_root(const struct world *world)
{
    int fd = openat(world->scratch->fd, "root", O_RDONLY | O_DIRECTORY), count = -2;
    DIR *stream = fdopendir(fd);
    while (readdir(stream) != NULL) {
        count++;
    }
    closedir(stream);
    return count;
}

/* What was left of "f", or its journal. */
static int open_left(const struct world *world, bool journal)
{
    char name[PLACE_TEMPORARY_LENGTH + 1], path[64];
    place_kept_name("f", name);
    snprintf(path, sizeof(path), "root/%s%s", name, journal ? PLACE_JOURNAL_SUFFIX : "");
    int fd = openat(world->scratch->fd, path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void flip_bit(int fd, off_t at)
{
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void expect_whole(struct world *world, uint64_t kept)
{
    assert_true(scratch_same(world->scratch, "here/f", "root/f"));
    assert_int_equal(session_tally(world->client)->kept, kept);
    assert_int_equal(session_tally(world->server)->kept, kept);
    assert_int_equal(count_root(world), 1);
    unlinkat(world->scratch->fd, "root/f", 0);
}

static void what_had_come_is_not_sent_again(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB + 5, 1);
    for (unsigned mib = 0; mib <= 30; mib += 3) {
        break_off(world, "f", mib * MIB);
        assert_int_equal(count_root(world), mib < 4 ? 0 : 2);
        assert_int_equal(session_rest(world->server) == REST_KEPT, mib >= 4);
        resume(world, "f", "/");
        assert_string_equal(world->problems[0], "");
        uint64_t kept = session_tally(world->client)->kept;
        assert_true(kept >= (mib & ~3u) * MIB && kept % (4 * MIB) <= 5 && (mib < 4) == (kept == 0));
        expect_whole(world, kept);
    }
}

static void a_resumed_copy_can_be_resumed(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 60 * MIB, 1);
    world->request.wishes.bits |= WISH_RESUME;
    for (unsigned mib = 5; mib < 60; mib += 6) {
        break_off(world, "f", mib * MIB);
        assert_string_equal(world->problems[0], "");
    }
    assert_true(session_tally(world->server)->kept >= 44 * MIB);
    resume(world, "f", "/");
    expect_whole(world, session_tally(world->client)->kept);
}

static void a_pull_is_resumed_alike(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "root/f", 30 * MIB, 1);
    world_begin_pull(world, "/f", "f");
    while (session_tally(world->client)->bytes < 14 * MIB && world_step(world)) {
    }
    memory_pair_cut(world->pair);
    world_run(world);
    world->request.wishes.bits |= WISH_RESUME;
    assert_int_equal(world_pull(world, "/f", "f"), SESSION_COMPLETE);
    assert_true(session_tally(world->client)->kept >= 12 * MIB);
    assert_true(scratch_same(world->scratch, "root/f", "here/f"));
}

static void a_flipped_bit_in_what_was_left_is_named(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    break_off(world, "f", 17 * MIB);
    flip_bit(open_left(world, false), 5 * MIB);
    resume(world, "f", "/");
    assert_string_equal(world->problems[0], "there target warning\n");
    assert_string_equal(world->problems[1], "here target warning\n");
    assert_true(session_tally(world->client)->kept >= 12 * MIB);
    expect_whole(world, session_tally(world->client)->kept);
}

/* More than all chunks: what is kept is said behind what has been read ahead. */
static void what_is_kept_may_come_late(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 40 * MIB, 1);
    break_off(world, "f", 38 * MIB);
    for (off_t at = 0; at < 24 * (off_t)MIB; at += 4 * (off_t)MIB) {
        flip_bit(open_left(world, false), at);
    }
    resume(world, "f", "/");
    expect_whole(world, 12 * MIB);
}

static void a_flipped_bit_in_the_journal_is_named(void **state)
{
    static const off_t places[] = {
        3, 9, 40, 120, JOURNAL_HEAD_LENGTH + 30, JOURNAL_HEAD_LENGTH + JOURNAL_RECORD_LENGTH + 63};
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        break_off(world, "f", 17 * MIB);
        flip_bit(open_left(world, true), places[i]);
        resume(world, "f", "/");
        assert_string_equal(world->problems[0], "there target warning\n");
        assert_true((session_tally(world->client)->kept > 0) == (places[i] > JOURNAL_HEAD_LENGTH));
        expect_whole(world, session_tally(world->client)->kept);
    }
}

/* A journal whose checksums are right, about bytes that are in the file: it is the source that
 * decides. */
static void what_only_the_receiver_believes_is_sent_again(void **state)
{
    struct world *world = *state;
    struct stat status;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    assert_int_equal(fstatat(world->scratch->fd, "here/f", &status, 0), 0);
    break_off(world, "f", 17 * MIB);
    flip_bit(openat(world->scratch->fd, "here/f", O_RDWR), 9 * MIB); /* as if nothing had changed */
    const struct timespec times[2] = {status.st_atim, status.st_mtim};
    utimensat(world->scratch->fd, "here/f", times, 0);
    resume(world, "f", "/");
    assert_string_equal(world->problems[0], "");
    assert_true(session_tally(world->client)->kept >= 12 * MIB);
    expect_whole(world, session_tally(world->client)->kept);
}

static void touch(struct world *world, unsigned number)
{
    if (number == 6) {
        int fd = openat(world->scratch->fd, "here/f", O_WRONLY);
        assert_int_equal(futimens(fd, NULL), 0);
        close(fd);
    }
}

/* What was kept of the first try is not kept of the second. */
static void a_source_that_changes_meanwhile_comes_whole(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    break_off(world, "f", 17 * MIB);
    world->between = touch;
    resume(world, "f", "/");
    world->between = NULL;
    assert_string_equal(world->problems[0], "here source warning\n");
    assert_string_equal(world->problems[1], "there source warning\n");
    expect_whole(world, 0);
}

static void another_source_begins_anew(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    break_off(world, "f", 17 * MIB);
    scratch_fill(world->scratch, "here/f", 29 * MIB, 1);
    resume(world, "f", "/");
    assert_string_equal(world->problems[0], "there target warning\n");
    expect_whole(world, 0);
}

static void without_the_wish_it_begins_anew_and_says_so(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    break_off(world, "f", 17 * MIB);
    assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], "there target warning\n");
    expect_whole(world, 0);
}

/* Holes of the source, and zeros that become holes, over what an interrupted copy had there. */
static void holes_stay_holes(void **state)
{
    struct world *world = *state;
    for (unsigned sparse = 0; sparse < 2; sparse++) {
        world->request.wishes.preserve = sparse == 1 ? PRESERVE_SPARSE : 0;
        scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
        break_off(world, "f", 21 * MIB);
        int fd = openat(world->scratch->fd, "here/f", O_RDWR);
        struct stat status;
        assert_int_equal(fstat(fd, &status), 0);
        const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        if (sparse == 1) {
            assert_int_equal(fallocate(fd, FALLOC_FL_ZERO_RANGE, 5 * MIB, 9 * MIB), 0);
        } else {
            assert_int_equal(fallocate(fd, punch, 5 * MIB, 9 * MIB), 0);
            assert_int_equal(fallocate(fd, punch, 30 * MIB - 4096, 4096), 0);
        }
        const struct timespec times[2] = {status.st_atim, status.st_mtim};
        futimens(fd, times);
        close(fd);
        resume(world, "f", "/");
        assert_true(session_tally(world->client)->kept >= 4 * MIB);
        expect_whole(world, session_tally(world->client)->kept);
    }
}

static void a_tree_goes_on_where_it_was(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/d");
    scratch_fill(s, "here/t/d/big", 9 * MIB, 1);
    scratch_fill(s, "here/t/d/bigger", 30 * MIB, 2);
    scratch_write(s, "here/t/small", "x");
    world->request.wishes.bits = WISH_RECURSIVE;
    break_off(world, "t", 17 * MIB);
    assert_false(scratch_exists(s, "root/t/d/bigger") && scratch_exists(s, "root/t/d/big"));
    resume(world, "t", "/");
    assert_true(session_tally(world->client)->kept >= 4 * MIB);
    assert_true(scratch_same(s, "here/t/d/big", "root/t/d/big"));
    assert_true(scratch_same(s, "here/t/d/bigger", "root/t/d/bigger"));
    resume(world, "t", "/");
    assert_int_equal(session_tally(world->client)->same, 3);
}

/* Several at a time, so that the ring of claims goes round. */
static void more_pieces_than_are_offered_at_once(void **state)
{
    struct world *world = *state;
    int fd = openat(world->scratch->fd, "here/f", O_CREAT | O_RDWR, 0600);
    static uint8_t bytes[128 << 10];
    memset(bytes, 7, sizeof(bytes));
    for (unsigned i = 0; i < 300; i++) { /* with a hole behind each */
        memcpy(bytes, &i, sizeof(i));
        assert_int_equal(pwrite(fd, bytes, sizeof(bytes), (off_t)i * 2 * (off_t)sizeof(bytes)),
                         sizeof(bytes));
    }
    close(fd);
    break_off(world, "f", 70 * MIB);
    resume(world, "f", "/");
    assert_true(session_tally(world->client)->kept > 2 * CLAIMS_MAX * sizeof(bytes));
    expect_whole(world, session_tally(world->client)->kept);
}

static void holes_and_trees_are_read_back(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    for (unsigned i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof(name), "here/t/f%u", i);
        scratch_fill(s, name, i * 3 * MIB, i);
    }
    int fd = openat(s->fd, "here/t/f4", O_RDWR);
    const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    assert_int_equal(fallocate(fd, punch, 2 * MIB, 5 * MIB), 0);
    assert_int_equal(fallocate(fd, punch, 11 * MIB, MIB), 0);
    close(fd);
    for (unsigned inplace = 0; inplace < 2; inplace++) {
        world->request.wishes.bits =
            WISH_RECURSIVE | WISH_VERIFY | WISH_IGNORE_TIMES | (inplace == 1 ? WISH_INPLACE : 0);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->files, 5);
        assert_int_equal(session_tally(world->client)->failed, 0);
        assert_true(scratch_same(s, "here/t/f4", "root/t/f4"));
    }
}

/* What had come before is read back, too. */
static void a_resumed_file_is_read_back(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    break_off(world, "f", 17 * MIB);
    world->request.wishes.bits = WISH_VERIFY;
    resume(world, "f", "/");
    assert_true(session_tally(world->client)->kept >= 16 * MIB);
    expect_whole(world, session_tally(world->client)->kept);
}

/* One that was there is half new then; it is neither the same nor newer for who comes next. */
static void what_stays_half_new_is_old(void **state)
{
    static const time_t times[] = {1000000000, 0, -5};
    struct world *world = *state;
    struct stat status;
    for (unsigned i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        const struct timespec theirs[2] = {{.tv_sec = times[i]}, {.tv_sec = times[i]}};
        scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
        utimensat(world->scratch->fd, "here/f", theirs, 0);
        scratch_fill(world->scratch, "root/f", 30 * MIB, 2);
        const struct timespec ours[2] = {{.tv_sec = times[i] - 9}, {.tv_sec = times[i] - 9}};
        utimensat(world->scratch->fd, "root/f", ours, 0);
        world->request.wishes.bits = WISH_INPLACE | WISH_UPDATE;
        break_off(world, "f", 17 * MIB);
        assert_int_equal(fstatat(world->scratch->fd, "root/f", &status, 0), 0);
        assert_true(status.st_mtim.tv_sec <= 0 && status.st_mtim.tv_sec < times[i]);
        assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->left, 0);
        assert_int_equal(session_tally(world->client)->files, 1);
        assert_int_equal(fstatat(world->scratch->fd, "root/f", &status, 0), 0);
        assert_int_equal(status.st_mtim.tv_sec, times[i]);
        expect_whole(world, 0);
    }
}

/* Of a writer that was killed it has the mark and the time of its last write. */
static void what_was_left_half_new_by_the_killed_is_sent(void **state)
{
    static const uint32_t ways[] = {WISH_UPDATE, WISH_UPDATE | WISH_INPLACE, WISH_SIZE_ONLY};
    struct world *world = *state;
    const struct timespec theirs[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    scratch_fill(world->scratch, "here/f", 3 * MIB, 1);
    utimensat(world->scratch->fd, "here/f", theirs, 0);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        for (unsigned marked = 0; marked < 2; marked++) {
            scratch_fill(world->scratch, "root/f", 3 * MIB, 2);
            int fd = openat(world->scratch->fd, "root/f", O_RDWR);
            if (marked) {
                half_mark_set(fd);
            }
            close(fd);
            if (marked && !half_mark_is_on(world->scratch->fd, "root/f")) {
                skip(); /* the file system has no such attributes */
            }
            world->request.wishes.bits = ways[i];
            world->request.wishes.preserve = PRESERVE_XATTRS;
            assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
            assert_int_equal(session_tally(world->client)->files, marked);
            assert_false(half_mark_is_on(world->scratch->fd, "root/f"));
        }
        expect_whole(world, 0);
    }
}

/* Who copies it further copies no mark. */
static void a_mark_is_not_copied(void **state)
{
    struct world *world = *state;
    scratch_write(world->scratch, "here/f", "half");
    int fd = openat(world->scratch->fd, "here/f", O_RDWR);
    half_mark_set(fd);
    close(fd);
    world->request.wishes.bits = 0;
    world->request.wishes.preserve = PRESERVE_XATTRS;
    assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->files, 1);
    assert_false(half_mark_is_on(world->scratch->fd, "root/f"));
}

static void lies(struct world *world, const struct message *message)
{
    world->request.wishes.bits |= WISH_RESUME;
    world_begin_lies(world, false);
    world->request.wishes.bits |= WISH_RESUME;
    world_inject(world, message);
    world_expect_broken(world);
}

/* One that is broken off when so much of it has come. */
static void begin_tree(struct world *world, bool pull, const char *source, const char *target,
                       uint64_t bytes)
{
    if (pull) {
        world_begin_pull(world, source, target);
    } else {
        world_begin_push(world, source, target);
    }
    struct session **receiver = pull ? &world->client : &world->server;
    while (session_tally(*receiver)->bytes < bytes && world_step(world)) {
    }
    memory_pair_cut(world->pair);
    world_run(world);
}

/* "t" was to become "new": the same copy goes on there, and no other one. */
static void go_on_under_a_name(struct world *world, const char *from, const char *to)
{
    const struct scratch *s = world->scratch;
    bool pull = strcmp(from, "root") == 0;
    enum session_outcome (*copy)(struct world *, const char *, const char *) =
        pull ? world_pull : world_push;
    char there[32], here[32];
    int fd = openat(s->fd, from, O_PATH | O_DIRECTORY);
    const struct scratch source = {.fd = fd};
    scratch_directory(&source, "t");
    scratch_directory(&source, "u");
    scratch_fill(&source, "t/a", 2 * MIB, 1);
    scratch_fill(&source, "t/b", 2 * MIB, 2);
    fchmodat(fd, "t", 0555, 0);
    world->request.wishes.bits = WISH_RECURSIVE;
    begin_tree(world, pull, "t", "new", 2 * MIB);
    world->request.wishes.bits |= WISH_RESUME;
    assert_int_equal(copy(world, "u", "new"), SESSION_COMPLETE); /* which is another one */
    snprintf(there, sizeof(there), "%s/new/u", to);
    assert_true(scratch_exists(s, there));
    assert_int_equal(copy(world, "t", "new"), SESSION_COMPLETE);
    snprintf(here, sizeof(here), "%s/t/b", from);
    snprintf(there, sizeof(there), "%s/new/b", to);
    assert_true(scratch_same(s, here, there));
    snprintf(there, sizeof(there), "%s/new/t", to);
    assert_false(scratch_exists(s, there));
    assert_int_equal(copy(world, "t", "new"), SESSION_COMPLETE); /* it is through: as scp would */
    assert_true(scratch_exists(s, there));
    fchmodat(s->fd, there, 0755, 0);
    fchmodat(fd, "t", 0755, 0);
    close(fd);
}

static void a_tree_goes_on_under_its_new_name(void **state)
{
    go_on_under_a_name(*state, "here", "root");
}

static void a_pulled_one_does_too(void **state)
{
    go_on_under_a_name(*state, "root", "here");
}

static void nobody_keeps_what_was_not_offered(void **state)
{
    struct world *world = *state;
    struct message keep = {.type = MESSAGE_KEEP, .keep = {.length = MIB}};
    lies(world, &keep); /* outside a file */
    world_begin_lies(world, false);
    world_chunked_entry(world, 8 * MIB);
    world_inject(world, &keep);
    world_expect_broken(world);
}

/* What comes again says what it was told the first time, and what is there then counts apart. */
static void a_copy_that_comes_again_is_counted_once(void **state)
{
    struct world *world = *state;
    scratch_directory(world->scratch, "here/t");
    for (unsigned i = 0; i < 20; i++) {
        char path[64];
        snprintf(path, sizeof(path), "here/t/%u", i);
        scratch_fill(world->scratch, path, i == 10 ? 30 * MIB : 1000, i);
    }
    assert_int_equal(symlinkat("10", world->scratch->fd, "here/t/link"), 0);
    world->request.wishes.bits = WISH_RECURSIVE;
    world_begin_push(world, "t", "/new");
    while (session_tally(world->server)->bytes < 14 * MIB && world_step(world)) {
    }
    const struct tally first = *session_tally(world->server);
    memory_pair_cut(world->pair);
    world_run(world);
    world->request.copy = session_copy(world->client);
    assert_int_equal(world->request.copy.target, TARGET_NAME);
    resume(world, "t", "/new");
    assert_true(scratch_same(world->scratch, "here/t/10", "root/new/10"));
    for (unsigned i = 0; i < 2; i++) {
        const struct tally *tally = session_tally(i == 0 ? world->client : world->server);
        assert_int_equal(tally->again_files, first.files);
        assert_int_equal(tally->again_symlinks, first.symlinks);
        assert_int_equal(tally->again_bytes, 1000 * first.files);
        assert_int_equal(tally->files, 20 - first.files);
        assert_int_equal(tally->symlinks, 1 - first.symlinks);
        assert_int_equal(tally->same, 0);
        assert_true(tally->kept >= 8 * MIB);
    }
    world->request.copy = (struct session_copy){0};
    assert_int_equal(world_push(world, "t/", "/new"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->same, 21);
}

/* A target that was made counts as made, though it is there when the copy comes again; and of what
 * is wished to be deleted no more is than that. */
static void a_target_that_was_made_gets_its_attributes(void **state)
{
    struct world *world = *state;
    struct stat status;
    scratch_directory(world->scratch, "here/t");
    scratch_fill(world->scratch, "here/t/f", 30 * MIB, 1);
    assert_int_equal(fchmodat(world->scratch->fd, "here/t", 0710, 0), 0);
    for (unsigned i = 0; i < 2; i++) { /* the second is there already, and keeps its own */
        world->request.wishes.bits = WISH_RECURSIVE;
        world->request.copy = (struct session_copy){0};
        world_begin_push(world, "t/", "/made/");
        while (session_tally(world->server)->bytes < 14 * MIB && world_step(world)) {
        }
        memory_pair_cut(world->pair);
        world_run(world);
        world->request.copy = session_copy(world->client);
        assert_int_equal(world->request.copy.target, i == 0 ? TARGET_MADE : TARGET_DIRECTORY);
        assert_false(world->request.copy.deleted);
        assert_int_equal(fchmodat(world->scratch->fd, "root/made", 0701, 0), 0);
        resume(world, "t/", "/made/");
        assert_true(session_copy(world->client).deleted);
        assert_int_equal(fstatat(world->scratch->fd, "root/made", &status, 0), 0);
        assert_int_equal(status.st_mode & 07777, i == 0 ? 0710 : 0701);
        unlinkat(world->scratch->fd, "root/made/f", 0);
    }
}

/* A session whose client has come again lets go of what it has, before its line has ended. */
static void a_session_that_yields_lets_go(void **state)
{
    struct world *world = *state;
    scratch_fill(world->scratch, "here/f", 30 * MIB, 1);
    world_begin_push(world, "f", "/");
    while (session_tally(world->server)->bytes < 14 * MIB && world_step(world)) {
    }
    int fd = open_left(world, false);
    assert_int_not_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    session_yield(world->server, "its client has come again");
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
    assert_int_equal(session_rest(world->server), REST_KEPT);
    world_run(world);
    assert_int_equal(session_outcome(world->server), SESSION_LOST);
    assert_int_equal(session_outcome(world->client), SESSION_LOST);
    resume(world, "f", "/");
    assert_true(session_tally(world->client)->kept >= 8 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(what_had_come_is_not_sent_again),
        T(a_resumed_copy_can_be_resumed),
        T(a_pull_is_resumed_alike),
        T(a_flipped_bit_in_what_was_left_is_named),
        T(what_is_kept_may_come_late),
        T(a_flipped_bit_in_the_journal_is_named),
        T(what_only_the_receiver_believes_is_sent_again),
        T(a_source_that_changes_meanwhile_comes_whole),
        T(a_copy_that_comes_again_is_counted_once),
        T(a_target_that_was_made_gets_its_attributes),
        T(a_session_that_yields_lets_go),
        T(another_source_begins_anew),
        T(without_the_wish_it_begins_anew_and_says_so),
        T(holes_stay_holes),
        T(a_tree_goes_on_where_it_was),
        T(more_pieces_than_are_offered_at_once),
        T(holes_and_trees_are_read_back),
        T(a_resumed_file_is_read_back),
        T(what_stays_half_new_is_old),
        T(what_was_left_half_new_by_the_killed_is_sent),
        T(a_mark_is_not_copied),
        T(a_tree_goes_on_under_its_new_name),
        T(a_pulled_one_does_too),
        T(nobody_keeps_what_was_not_offered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
