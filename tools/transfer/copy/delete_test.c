/* What --delete deletes, between two honest ends, where more than the names of both sides decides.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/choice/lookahead.h"
#include "tools/transfer/copy/session_world.h"

int __real_fstatat64(int directory, const char *name, struct stat64 *status, int flags);
int __wrap_fstatat64(int directory, const char *name, struct stat64 *status, int flags);

/* A name in capitals is the same as without them. */
static bool is_caseless;

int __wrap_fstatat64(int directory, const char *name, struct stat64 *status, int flags)
{
    char small[256];
    size_t length = 0;
    for (; name[length] != 0 && length < sizeof(small) - 1; length++) {
        small[length] = (char)tolower((unsigned char)name[length]);
    }
    small[length] = 0;
    int result = __real_fstatat64(directory, name, status, flags);
    return result != 0 && is_caseless ? __real_fstatat64(directory, small, status, flags) : result;
}

struct dirent *__real_readdir64(DIR *stream);
struct dirent *__wrap_readdir64(DIR *stream);

/* The list of this directory breaks off behind so many names. */
static ino_t broken;
static unsigned names_left;

struct dirent *__wrap_readdir64(DIR *stream)
{
    struct stat status;
    assert_int_equal(fstat(dirfd(stream), &status), 0);
    if (broken == 0 || status.st_ino != broken) {
        return __real_readdir64(stream);
    }
    errno = EIO;
    return names_left > 0 && names_left-- > 0 ? __real_readdir64(stream) : NULL;
}

static void expect_done(const struct world *world, uint64_t failed, uint64_t deleted)
{
    const struct tally *tally = session_tally(world->client);
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
    assert_int_equal(tally->failed, failed);
    assert_int_equal(tally->deleted, deleted);
    assert_false(tally->undeleted);
}

static const char *source_of_moves;

/* Behind the last file: one directory moves into another, another is emptied, as if a file system
 * below it had been unmounted. */
static void move_source(struct world *world, unsigned number)
{
    const struct scratch *s = world->scratch;
    const char *from = source_of_moves;
    char old[64], new[64];
    if (session_tally(world->server)->files + session_tally(world->server)->same < 4 ||
        world->replaced) {
        return;
    }
    world->replaced = true;
    snprintf(old, sizeof(old), "%s/t/work", from);
    snprintf(new, sizeof(new), "%s/t/archive/work", from);
    assert_int_equal(renameat(s->fd, old, s->fd, new), 0);
    snprintf(old, sizeof(old), "%s/t/disk", from);
    assert_int_equal(renameat(s->fd, old, s->fd, "elsewhere"), 0);
    scratch_directory(s, old);
}

static void make_tree_that_moves(const struct scratch *s, const char *from, const char *to)
{
    static const char *const directories[] = {"", "/archive", "/work", "/work/deep", "/disk"};
    static const char *const files[] = {"/archive/old", "/work/deep/f", "/disk/a", "/disk/b"};
    char name[64];
    for (unsigned i = 0; i < 5; i++) {
        snprintf(name, sizeof(name), "%s/t%s", from, directories[i]);
        scratch_directory(s, name);
        snprintf(name, sizeof(name), "%s/t%s", to, directories[i]);
        scratch_directory(s, name);
    }
    for (unsigned i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "%s/t%s", from, files[i]);
        scratch_write(s, name, "x");
    }
    snprintf(name, sizeof(name), "%s/t/work/stale", to);
    scratch_write(s, name, "x");
    snprintf(name, sizeof(name), "%s/t/disk/stale", to);
    scratch_write(s, name, "x");
    snprintf(name, sizeof(name), "%s/t/stale", to);
    scratch_write(s, name, "x");
}

static void copy_tree(struct world *world, bool push)
{
    if (push) {
        world_push(world, "t", "/");
    } else {
        world_pull(world, "/t", "");
    }
}

static void expect_kept(struct world *world, bool push)
{
    const struct scratch *s = world->scratch;
    const char *from = push ? "here" : "root", *to = push ? "root" : "here";
    char name[64];
    make_tree_that_moves(s, from, to);
    source_of_moves = from;
    world->between = move_source;
    copy_tree(world, push);
    assert_true(world->replaced);
    expect_done(world, 0, 2); /* the stale ones in what was not moved go */
    assert_int_equal(session_tally(world->client)->warnings, 2); /* of "work" and "disk" */
    for (unsigned i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "%s/t/%s", to, i == 0 ? "work/deep/f" : "disk/b");
        scratch_expect(s, name, "x");
    }
    world->between = NULL; /* the next copy has the whole list anew */
    copy_tree(world, push);
    expect_done(world, 0, 6);
    snprintf(name, sizeof(name), "%s/t/archive/work/deep/f", to);
    scratch_expect(s, name, "x");
    snprintf(name, sizeof(name), "%s/t/work", to);
    assert_false(scratch_exists(s, name));
}

/* What this very copy has sent, or found there, may be the only one in the right place. */
static void what_moves_behind_the_walk_is_not_deleted(void **state)
{
    struct world *world = *state;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    expect_kept(world, true);
}

static void what_moves_behind_the_walk_is_not_deleted_by_a_pull(void **state)
{
    struct world *world = *state;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    expect_kept(world, false);
}

static mode_t mode_of(const struct scratch *s, const char *name)
{
    struct stat status;
    assert_int_equal(fstatat(s->fd, name, &status, AT_SYMLINK_NOFOLLOW), 0);
    return status.st_mode & 07777;
}

static void make_read_only_tree(const struct scratch *s)
{
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/d");
    scratch_write(s, "here/t/file", "x");
    scratch_directory(s, "root/t");
    scratch_directory(s, "root/t/d");
    scratch_write(s, "root/t/d/old", "x");
    scratch_directory(s, "root/t/gone");
    scratch_write(s, "root/t/gone/a", "x");
    scratch_write(s, "root/t/gone/b", "x");
    scratch_directory(s, "root/t/file");
    scratch_directory(s, "root/t/file/below");
    scratch_write(s, "root/t/file/below/x", "x");
    assert_int_equal(fchmodat(s->fd, "here/t/d", 0555, 0), 0);
    assert_int_equal(fchmodat(s->fd, "root/t/d", 0555, 0), 0);
    assert_int_equal(fchmodat(s->fd, "root/t/gone", 0555, 0), 0);
    assert_int_equal(fchmodat(s->fd, "root/t/file/below", 0555, 0), 0);
}

/* For one who is not root: what may not be written to is lent that, and has its mode afterwards,
 * where it stays; a dry run changes none. */
static void directories_that_may_not_be_written_to_are_mirrored(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    bool is_root = geteuid() == 0;
    if (is_root) {
        assert_int_equal(fchown(s->fd, 65534, 65534), 0);
        assert_int_equal(fchownat(s->fd, "here", 65534, 65534, 0), 0);
        assert_int_equal(fchownat(s->fd, "root", 65534, 65534, 0), 0);
        assert_int_equal(seteuid(65534), 0);
    }
    make_read_only_tree(s);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_FORCE | WISH_DELETE | WISH_DRY_RUN;
    world_push(world, "t", "/");
    expect_done(world, 0, 6);
    assert_int_equal(mode_of(s, "root/t/gone"), 0555);
    assert_int_equal(mode_of(s, "root/t/d"), 0555);
    world->request.wishes.bits =
        WISH_RECURSIVE | WISH_FORCE | WISH_DELETE | WISH_IGNORE_EXISTING | WISH_MAX_DELETE;
    world->request.wishes.deletions_max = 1;
    world_push(world, "t", "/");
    expect_done(world, 0, 1);
    assert_int_equal(mode_of(s, "root/t/gone"), 0555);
    assert_int_equal(mode_of(s, "root/t/d"), 0555);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_FORCE | WISH_DELETE;
    world_push(world, "t", "/");
    expect_done(world, 0, 5);
    assert_int_equal(mode_of(s, "root/t/d"), 0555);
    assert_false(scratch_exists(s, "root/t/d/old"));
    assert_false(scratch_exists(s, "root/t/gone"));
    scratch_expect(s, "root/t/file", "x");
    if (is_root) {
        assert_int_equal(seteuid(0), 0);
    }
}

/* What the target cannot take says nothing of what the source has. */
static void what_cannot_be_placed_does_not_keep_what_is_gone(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_fill(s, "here/t/big", 30 * MIB, 1);
    scratch_directory(s, "root/t");
    scratch_write(s, "root/t/old", "x");
    scratch_directory(s, "root/t/big");
    scratch_write(s, "root/t/big/in the way", "x");
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    world_push(world, "t", "/");
    expect_done(world, 1, 1);
    assert_string_equal(world->problems[0], "there target wrong-kind\n");
    assert_false(scratch_exists(s, "root/t/old"));
    scratch_expect(s, "root/t/big/in the way", "x");
}

/* But what somebody writes stays. */
static void what_a_killed_copy_left_holds_no_directory(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_directory(s, "root/t");
    scratch_directory(s, "root/t/gone");
    scratch_write(s, "root/t/gone/.weir-0123456789abcdef", "half");
    scratch_write(s, "root/t/gone/.weir-0123456789abcdef.journal", "noted");
    scratch_directory(s, "root/t/busy");
    scratch_write(s, "root/t/busy/.weir-0123456789abcdef", "half");
    scratch_write(s, "root/t/busy/.weir-0123456789abcdef.journal", "noted");
    int held = openat(s->fd, "root/t/busy/.weir-0123456789abcdef", O_RDONLY);
    assert_int_equal(flock(held, LOCK_EX), 0);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE | WISH_DRY_RUN;
    world_push(world, "t", "/");
    expect_done(world, 0, 1);
    assert_true(scratch_exists(s, "root/t/gone/.weir-0123456789abcdef"));
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    world_push(world, "t", "/");
    expect_done(world, 0, 1);
    assert_false(scratch_exists(s, "root/t/gone"));
    scratch_expect(s, "root/t/busy/.weir-0123456789abcdef", "half");
    scratch_expect(s, "root/t/busy/.weir-0123456789abcdef.journal", "noted");
    close(held);
    world_push(world, "t", "/");
    expect_done(world, 0, 1);
    assert_false(scratch_exists(s, "root/t/busy"));
}

/* As the copy itself would, which without --force replaces no directory that is not empty. */
static void a_dry_run_tells_what_is_in_the_way(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_write(s, "here/t/full", "x");
    scratch_write(s, "here/t/empty", "x");
    scratch_directory(s, "root/t");
    scratch_directory(s, "root/t/full");
    scratch_directory(s, "root/t/full/below");
    scratch_directory(s, "root/t/empty");
    for (unsigned dry = 0; dry < 2; dry++) {
        world->request.wishes.bits = WISH_RECURSIVE | (dry == 0 ? WISH_DRY_RUN : 0);
        world_push(world, "t", "/");
        expect_done(world, 1, 0);
        assert_string_equal(world->problems[0], "there target wrong-kind\n");
        assert_true(scratch_exists(s, "root/t/full/below"));
    }
    scratch_expect(s, "root/t/empty", "x");
}

/* What has come has the name of before there: it is not in the source, and is not deleted. */
static void what_came_is_not_deleted_under_another_case(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_write(s, "here/t/Foo", "new");
    scratch_directory(s, "here/t/Photos");
    scratch_write(s, "here/t/Photos/One", "1");
    scratch_directory(s, "root/t");
    for (unsigned i = 0; i < 2; i++) {
        is_caseless = i == 0;
        scratch_write(s, "root/t/foo", "old");
        scratch_directory(s, "root/t/photos");
        scratch_write(s, "root/t/photos/one", "1");
        scratch_write(s, "root/t/photos/stale", "s");
        world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
        world_push(world, "t", "/");
        expect_done(world, 0, is_caseless ? 1 : 4);
        assert_int_equal(scratch_exists(s, "root/t/foo"), is_caseless);
        assert_int_equal(scratch_exists(s, "root/t/photos/one"), is_caseless);
        assert_false(scratch_exists(s, "root/t/photos/stale"));
        unlinkat(s->fd, "root/t/photos/one", 0);
        unlinkat(s->fd, "root/t/photos", AT_REMOVEDIR);
    }
    is_caseless = false;
}

/* What was read of it comes, and nothing is deleted for want of the rest. */
static void a_directory_that_cannot_be_read_to_its_end_is_told(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct stat status;
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/sub");
    scratch_write(s, "here/t/sub/f1", "x");
    scratch_write(s, "here/t/sub/f2", "x");
    scratch_directory(s, "root/t");
    scratch_write(s, "root/t/stale", "x");
    for (unsigned there = 0; there < 2;
         there++) { /* of the source; of the target, while it deletes */
        assert_int_equal(fstatat(s->fd, there ? "root/t/sub" : "here/t/sub", &status, 0), 0);
        broken = status.st_ino;
        names_left = 3; /* "." and "..", too */
        world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
        world_push(world, "t", "/");
        const struct tally *tally = session_tally(world->client);
        assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
        assert_int_equal(tally->failed, 1);
        assert_int_equal(tally->files, 1);
        assert_int_equal(tally->deleted, there);
        assert_int_equal(scratch_exists(s, "root/t/stale"), !there);
        if (there) {
            scratch_expect(s, "root/t/sub/f1", "x");
            scratch_expect(s, "root/t/sub/f2", "x");
        }
    }
    broken = 0;
}

/* Where the file system gives a new directory the inode's number of one that has gone, too. */
static void nothing_is_deleted_for_a_source_that_was_made_anew(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    uint64_t identity = 0;
    scratch_directory(s, "here/t");
    scratch_fill(s, "here/t/0", 1 << 20, 0);
    scratch_fill(s, "here/t/1", 1 << 20, 1);
    scratch_write(s, "root/old", "x");
    world->request.copy = (struct session_copy){.identities = &identity};
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE | WISH_IGNORE_ERRORS;
    world_begin_push(world, "t/", "/");
    while (session_tally(world->server)->files == 0 && world_step(world)) {
    }
    memory_pair_cut(world->pair);
    world_run(world);
    assert_int_equal(session_outcome(world->client), SESSION_LOST);
    assert_true(identity != 0);
    world_push(world, "gone", "/"); /* nothing of the first is open any more */
    assert_int_equal(unlinkat(s->fd, "here/t/0", 0), 0);
    assert_int_equal(unlinkat(s->fd, "here/t/1", 0), 0);
    assert_int_equal(unlinkat(s->fd, "here/t", AT_REMOVEDIR), 0);
    scratch_directory(s, "here/t");
    world_push(world, "t/", "/");
    expect_done(world, 1, 0);
    scratch_expect(s, "root/old", "x");
}

/* Where as many directories are open as are looked ahead in, one name is asked about at a time.
 * When it is dealt with, there is more to do, for which no event will come. */
static void what_lies_deep_is_looked_through_without_a_pause(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    char name[16 + 2 * LOOKAHEAD_FOLDERS + 8] = "here/t";
    for (unsigned i = 0; i < LOOKAHEAD_FOLDERS + 2; i++) {
        scratch_directory(s, name);
        strcat(name, "/d");
    }
    scratch_write(s, name, "x");
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    assert_int_equal(world_push(world, "t/", "/"), SESSION_COMPLETE);
    assert_int_equal(world_push(world, "t/", "/"), SESSION_COMPLETE);
    expect_done(world, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(what_moves_behind_the_walk_is_not_deleted),
        T(what_moves_behind_the_walk_is_not_deleted_by_a_pull),
        T(directories_that_may_not_be_written_to_are_mirrored),
        T(what_cannot_be_placed_does_not_keep_what_is_gone),
        T(what_a_killed_copy_left_holds_no_directory),
        T(a_dry_run_tells_what_is_in_the_way),
        T(what_came_is_not_deleted_under_another_case),
        T(a_directory_that_cannot_be_read_to_its_end_is_told),
        T(nothing_is_deleted_for_a_source_that_was_made_anew),
        T(what_lies_deep_is_looked_through_without_a_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
