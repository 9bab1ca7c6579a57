/* Transfers to a target that is there already, between two honest ends. */
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
#include "tools/transfer/copy/session_world.h"

static void set_time(const struct scratch *s, const char *name, time_t seconds, long nanoseconds)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {seconds, nanoseconds}};
    assert_int_equal(utimensat(s->fd, name, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void expect_tally(struct world *world, unsigned files, unsigned same, unsigned left)
{
    for (int i = 0; i < 2; i++) {
        const struct tally *tally = session_tally(i == 0 ? world->client : world->server);
        assert_int_equal(tally->failed, 0);
        assert_int_equal(tally->files, files);
        assert_int_equal(tally->same, same);
        assert_int_equal(tally->left, left);
    }
}

/* Each wish with a file of other contents there: is it sent? Of a size that goes with its entry,
 * and of one that goes by chunks. */
static void what_is_the_same_is_not_sent(void **state)
{
    static const struct {
        uint32_t wishes;
        int age; /* of the one there, in ns more than the source's: */
        bool longer, sent;
        unsigned left;
    } cases[] = {
        {0, 0, false, false, 0},
        {0, 1, false, true, 0},
        {0, -1, false, true, 0},
        {0, 0, true, true, 0},
        {WISH_IGNORE_TIMES, 0, false, true, 0},
        {WISH_SIZE_ONLY, 5, false, false, 0},
        {WISH_SIZE_ONLY, 0, true, true, 0},
        {WISH_CHECKSUM, 0, false, true, 0},
        {WISH_UPDATE, 1, true, false, 1},
        {WISH_UPDATE, -1, true, true, 0},
        {WISH_IGNORE_EXISTING, -1, true, false, 1},
        {WISH_EXISTING, -1, true, true, 0},
        {WISH_WINDOW, 5, false, false, 0},
    };
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        size_t length = i % 2 == 0 ? 1000 : 2 * MIB, number = i / 2;
        scratch_fill(s, "here/f", length, 1);
        scratch_fill(s, "root/f", length + cases[number].longer, 2);
        set_time(s, "here/f", 1000000000, 500);
        set_time(s, "root/f", 1000000000, 500 + cases[number].age);
        world->request.wishes.bits = cases[number].wishes;
        assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
        bool sent = cases[number].sent, left = cases[number].left > 0;
        expect_tally(world, sent ? 1 : 0, sent || left ? 0 : 1, cases[number].left);
        assert_int_equal(scratch_same(s, "here/f", "root/f"), sent);
        assert_int_equal(session_tally(world->client)->bytes, sent ? length : 0);
        if (sent) { /* and now it is, however one looks at it */
            assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
            bool again = cases[number].wishes == WISH_IGNORE_TIMES;
            expect_tally(world, again ? 1 : 0, again ? 0 : 1, 0);
        }
    }
}

static void a_digest_does_not_mind_holes(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_write(s, "here/f", "x");
    scratch_fill(s, "root/f", MIB, 1);
    int fd = openat(s->fd, "here/f", O_RDWR);
    assert_int_equal(ftruncate(fd, MIB), 0);
    char *bytes = calloc(1, MIB);
    bytes[0] = 'x';
    int there = openat(s->fd, "root/f", O_RDWR);
    assert_int_equal(pwrite(there, bytes, MIB, 0), MIB);
    free(bytes);
    close(fd);
    close(there);
    world->request.wishes.bits = WISH_CHECKSUM;
    assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
    expect_tally(world, 0, 1, 0);
}

/* Its attributes come in line all the same, and a directory's. */
static void attributes_follow_what_is_the_same(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct stat status;
    scratch_directory(s, "here/t");
    scratch_write(s, "here/t/f", "same");
    world->request.wishes.bits = WISH_RECURSIVE;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(fchmodat(s->fd, "here/t/f", 0640, 0), 0);
    assert_int_equal(fchmodat(s->fd, "here/t", 0711, 0), 0);
    set_time(s, "here/t", 1000000000, 7);
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    expect_tally(world, 0, 1, 0);
    assert_int_equal(fstatat(s->fd, "root/t/f", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 0640);
    assert_int_equal(fstatat(s->fd, "root/t", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 0711);
    assert_int_equal(status.st_mtim.tv_nsec, 7);
    set_time(s, "here/t/f", 1000000001, 0);
    world->request.wishes.bits |= WISH_SIZE_ONLY;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    expect_tally(world, 0, 1, 0);
    assert_int_equal(fstatat(s->fd, "root/t/f", &status, 0), 0);
    assert_int_equal(status.st_mtim.tv_sec, 1000000001);
}

/* More files than are looked at ahead, in directories of every size, half of them there. */
static void a_large_tree_is_compared_in_order(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_directory(s, "root/t");
    unsigned half = 0, count = 0;
    for (unsigned d = 0; d < 70; d++) {
        char name[64];
        snprintf(name, sizeof(name), "here/t/%u", d);
        scratch_directory(s, name);
        memcpy(name, "root", 4);
        scratch_directory(s, name);
        for (unsigned f = 0; f < d + (d == 30 ? 2500 : 0); f++, count++) {
            snprintf(name, sizeof(name), "here/t/%u/%u", d, f);
            scratch_write(s, name, "x");
            set_time(s, name, 1000000000 + count, 0);
            if (f % 2 == 0) {
                memcpy(name, "root", 4);
                scratch_write(s, name, "y");
                set_time(s, name, 1000000000 + count, 0);
                half++;
            }
        }
    }
    world->request.wishes.bits = WISH_RECURSIVE;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    expect_tally(world, count - half, half, 0);
    scratch_expect(s, "root/t/69/2", "y");
    scratch_expect(s, "root/t/69/3", "x");
    assert_int_equal(world_pull(world, "/t/", "t"), SESSION_COMPLETE);
    expect_tally(world, 0, count, 0);
}

static void a_dry_run_changes_nothing(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct stat before, after;
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/empty");
    scratch_fill(s, "here/t/big", 3 * MIB + 5, 1);
    scratch_write(s, "here/t/a", "x");
    scratch_write(s, "here/t/b", "x");
    symlinkat("/nowhere at all", s->fd, "here/t/link");
    scratch_directory(s, "root/t");
    scratch_write(s, "root/t/big", "other");
    assert_int_equal(fstatat(s->fd, "root/t", &before, 0), 0);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DRY_RUN;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    expect_tally(world, 3, 0, 0);
    assert_int_equal(session_tally(world->client)->symlinks, 1);
    assert_int_equal(fstatat(s->fd, "root/t", &after, 0), 0);
    assert_int_equal(memcmp(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim)), 0);
    assert_int_equal(scratch_count(s), 2);
    scratch_expect(s, "root/t/big", "other");
    assert_false(scratch_exists(s, "root/t/link"));
    assert_int_equal(world_push(world, "t", "/new/"), SESSION_COMPLETE);
    assert_false(scratch_exists(s, "root/new"));
}

/* rsync's rules for what stands in the way. */
static void other_kinds_are_replaced(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_write(s, "here/t/a", "file");
    scratch_write(s, "here/t/b", "file");
    scratch_write(s, "here/t/c", "file");
    scratch_directory(s, "here/t/d");
    symlinkat("x", s->fd, "here/t/e");
    scratch_directory(s, "root/t");
    mkfifoat(s->fd, "root/t/a", 0600);
    scratch_directory(s, "root/t/b");
    scratch_directory(s, "root/t/c");
    scratch_write(s, "root/t/c/kept", "x");
    scratch_write(s, "root/t/d", "file");
    scratch_write(s, "root/t/e", "file");
    world->request.wishes.bits = WISH_RECURSIVE;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 1);
    assert_string_equal(world->problems[0], "there target wrong-kind\n");
    scratch_expect(s, "root/t/a", "file");
    scratch_expect(s, "root/t/b", "file");
    scratch_expect(s, "root/t/c/kept", "x");
    world->request.wishes.bits |= WISH_FORCE;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    expect_tally(world, 1, 3, 0);
    scratch_expect(s, "root/t/c", "file");
    mkfifoat(s->fd, "root/fifo", 0600); /* the target by its own name is left alone */
    assert_int_equal(world_push(world, "t/a", "/fifo"), SESSION_COMPLETE);
    assert_string_equal(world->problems[0], "there target wrong-kind\n");
}

/* It is counted as deleted, as with rsync, and --max-delete counts it; a dry run says the same. */
static void what_makes_way_is_counted(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_write(s, "here/t/a", "file");
    scratch_directory(s, "root/t");
    scratch_directory(s, "root/t/a");
    scratch_write(s, "root/t/a/b", "x");
    scratch_directory(s, "root/t/a/d");
    symlinkat("..", s->fd, "root/t/a/d/link");
    const uint32_t bits = WISH_RECURSIVE | WISH_FORCE;
    world->request.wishes = (struct wishes){.bits = bits | WISH_MAX_DELETE, .deletions_max = 0};
    for (unsigned dry = 0; dry < 2; dry++) {
        world->request.wishes.bits |= dry == 1 ? WISH_DRY_RUN : 0;
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->failed, 1);
        assert_int_equal(session_tally(world->client)->deleted, 0);
        assert_int_equal(session_tally(world->client)->held_back, 2);
    }
    world->request.wishes.bits = bits | WISH_DRY_RUN;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->deleted, 3);
    scratch_expect(s, "root/t/a/b", "x");
    world->request.wishes.bits = bits;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->deleted, 3);
    scratch_expect(s, "root/t/a", "file");
}

/* There: t with what the source has, and more of everything. */
static void make_old_tree(const struct scratch *s)
{
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/both");
    scratch_write(s, "here/t/both/f", "x");
    scratch_write(s, "here/t/kept.o", "x");
    scratch_directory(s, "root/t");
    scratch_directory(s, "root/t/both");
    scratch_directory(s, "root/t/both/old");
    scratch_directory(s, "root/t/both/old/deep");
    scratch_write(s, "root/t/both/old/deep/f", "x");
    scratch_write(s, "root/t/both/g", "x");
    scratch_write(s, "root/t/both/old/a.o", "x");
    symlinkat("../..", s->fd, "root/t/link");
    mkfifoat(s->fd, "root/t/fifo", 0600);
    scratch_write(s, "root/beside", "x");
    scratch_directory(s, "root/u");
    scratch_write(s, "root/u/f", "x");
}

static void what_the_source_has_not_is_deleted(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct stat status;
    make_old_tree(s);
    set_time(s, "here/t/both", 1000000000, 1);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE | WISH_DRY_RUN;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->deleted, 7);
    scratch_expect(s, "root/t/both/old/deep/f", "x");
    world->request.wishes.bits &= ~(uint32_t)WISH_DRY_RUN;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    expect_tally(world, 2, 0, 0);
    assert_int_equal(session_tally(world->client)->deleted, 7);
    assert_false(scratch_exists(s, "root/t/both/old"));
    assert_false(scratch_exists(s, "root/t/both/g"));
    assert_false(scratch_exists(s, "root/t/link"));
    assert_false(scratch_exists(s, "root/t/fifo"));
    scratch_expect(s, "root/t/both/f", "x");
    scratch_expect(s, "root/beside", "x");
    scratch_expect(s, "root/u/f", "x");
    assert_int_equal(fstatat(s->fd, "root/t/both", &status, 0), 0);
    assert_int_equal(status.st_mtim.tv_sec, 1000000000); /* and the directory its time */
    assert_int_equal(world_pull(world, "/t/", "t"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->deleted, 0);
    unlinkat(s->fd, "root/t/kept.o", 0);
    assert_int_equal(world_pull(world, "/t/", "t"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->deleted, 1);
    assert_false(scratch_exists(s, "here/t/kept.o"));
}

/* Each side goes by its own files of rules: with the source's, what is sent, with those that the
 * target has then, what stays there. */
static void files_of_rules_are_those_of_each_side(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct filter *filter = filter_create();
    make_old_tree(s);
    assert_true(filter_add(filter, RULE_MERGES, (struct span){".here", 5}));
    assert_true(filter_add(filter, 0, (struct span){".there", 6}));
    assert_true(filter_add(filter, RULE_MERGES, (struct span){".there", 6}));
    scratch_write(s, "here/t/secret", "x");
    scratch_write(s, "here/t/.here", "- secret\n- old/\n");
    scratch_write(s, "root/t/.there", "P /link\n");
    scratch_write(s, "root/t/both/.there", "-r g\n");
    world->request.filter = filter;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_false(scratch_exists(s, "root/t/secret"));
    assert_true(scratch_exists(s, "root/t/.here"));
    assert_true(scratch_exists(s, "root/t/link"));
    assert_true(scratch_exists(s, "root/t/both/g"));
    assert_true(scratch_exists(s, "root/t/both/old/deep/f")); /* the file that says so was copied */
    assert_false(scratch_exists(s, "root/t/fifo"));
    scratch_write(s, "here/t/.here", "- secret\n- old/\nnonsense\n");
    scratch_write(s, "root/t/more", "x");
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 1);
    assert_true(scratch_exists(s, "root/t/more")); /* nothing is deleted for a source not read */
    world->request.filter = NULL;
    filter_destroy(filter);
}

/* What a directory's broken rules would keep does not matter where all of it stays anyway. */
static void of_what_stays_anyway_no_rules_are_wanted(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct filter *filter = filter_create();
    make_old_tree(s);
    assert_true(filter_add(filter, RULE_MERGES, (struct span){".there", 6}));
    scratch_write(s, "root/t/.there", "P kept/\nP .there\n");
    scratch_directory(s, "root/t/kept");
    scratch_write(s, "root/t/kept/.there", "nonsense\n");
    scratch_write(s, "root/t/kept/g", "x");
    world->request.filter = filter;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 0);
    assert_true(scratch_exists(s, "root/t/kept/g"));
    assert_false(scratch_exists(s, "root/t/link"));
    scratch_directory(s, "root/t/other"); /* this one would go, */
    scratch_write(s, "root/t/other/.there", "nonsense\n");
    scratch_directory(s, "here/t/kept"); /* and in that one something may */
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 2);
    assert_true(scratch_exists(s, "root/t/other/.there"));
    assert_true(scratch_exists(s, "root/t/kept/g"));
    world->request.filter = NULL;
    filter_destroy(filter);
}

static void what_is_left_out_is_not_deleted(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct filter *filter = filter_create();
    make_old_tree(s);
    assert_true(filter_add(filter, false, (struct span){"*.o", 3}));
    assert_true(filter_add(filter, false, (struct span){"/t/link", 7}));
    world->request.filter = filter;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    expect_tally(world, 1, 0, 0);
    assert_int_equal(session_tally(world->client)->deleted, 4);
    scratch_expect(s, "root/t/both/old/a.o", "x");
    assert_false(scratch_exists(s, "root/t/both/old/deep"));
    assert_true(scratch_exists(s, "root/t/link"));
    world->request.wishes.bits |= WISH_DELETE_EXCLUDED;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->deleted, 3);
    assert_false(scratch_exists(s, "root/t/both/old"));
    world->request.filter = NULL;
    filter_destroy(filter);
}

/* One where the source has a file, and which is not to be replaced, is no copy of anything. */
static void a_directory_that_is_none_at_the_source_is_left(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_write(s, "here/t/x", "file");
    scratch_directory(s, "root/t");
    scratch_directory(s, "root/t/x");
    scratch_write(s, "root/t/x/mine", "x");
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE | WISH_IGNORE_EXISTING;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    expect_tally(world, 0, 0, 1);
    scratch_expect(s, "root/t/x/mine", "x");
}

static void remove_big(struct world *world, unsigned number)
{
    if (session_tally(world->server)->bytes > MIB && !world->replaced) {
        unlinkat(world->scratch->fd, "here/t/big", 0);
        world->replaced = true;
    }
}

/* A source that could not be read in full, for it vanished while it was, is no reason to delete. */
static void nothing_is_deleted_where_the_source_failed(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    make_old_tree(s);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    scratch_fill(s, "here/t/big", 30 * MIB, 1);
    world->between = remove_big;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    world->between = NULL;
    assert_int_equal(session_tally(world->client)->failed, 1);
    assert_int_equal(session_tally(world->client)->deleted, 0);
    assert_true(session_tally(world->client)->undeleted);
    scratch_expect(s, "root/t/both/old/deep/f", "x");
}

/* As when its file system is unmounted between the two looks. */
static void replace_source(struct world *world, unsigned number)
{
    if (session_tally(world->server)->files == 2 && !world->replaced) {
        world->replaced = true;
        assert_int_equal(renameat(world->scratch->fd, "here/t", world->scratch->fd, "here/u"), 0);
        scratch_directory(world->scratch, "here/t");
    }
}

static void nothing_is_deleted_for_another_source(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    make_old_tree(s);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    world->between = replace_source;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_true(world->replaced);
    assert_int_equal(session_tally(world->client)->deleted, 0);
    scratch_expect(s, "root/t/both/f", "x");
}

/* The same between two connections, which know the source by what the first has noted. */
static void expect_nothing_deleted(struct world *world, bool push)
{
    const struct scratch *s = world->scratch;
    const char *folder = push ? "here" : "root";
    char path[2][32];
    static uint64_t identity;
    identity = 0;
    world->request.copy = (struct session_copy){.identities = &identity};
    for (unsigned i = 0; i < 3; i++) {
        if (push) {
            world_begin_push(world, "t/", "/");
        } else {
            world_begin_pull(world, "/t/", "");
        }
        if (i == 0) { /* it breaks off behind the first file */
            while (session_tally(world->server)->files == 0 && world_step(world)) {
            }
            memory_pair_cut(world->pair);
        }
        world_run(world);
        uint64_t failed = session_tally(world->client)->failed;
        assert_int_equal(session_outcome(world->client), i == 0 ? SESSION_LOST : SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->deleted, i == 2);
        assert_int_equal(failed, i == 1);
        snprintf(path[0], sizeof(path[0]), "%s/%s", folder, i == 0 ? "t" : "gone");
        snprintf(path[1], sizeof(path[1]), "%s/%s", folder, i == 0 ? "gone" : "t");
        if (i == 0) {
            assert_int_equal(renameat(s->fd, path[0], s->fd, path[1]), 0);
            scratch_directory(s, path[0]);
        } else if (i == 1) {
            assert_int_equal(unlinkat(s->fd, path[1], AT_REMOVEDIR), 0);
            assert_int_equal(renameat(s->fd, path[0], s->fd, path[1]), 0);
        }
        assert_true(identity != 0);
    }
}

static void begin_again_elsewhere(struct world *world, bool push)
{
    const struct scratch *s = world->scratch;
    const char *from = push ? "here" : "root", *to = push ? "root" : "here";
    char path[32];
    snprintf(path, sizeof(path), "%s/t", from);
    scratch_directory(s, path);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/t/%u", from, i);
        scratch_fill(s, path, 2 * MIB, i);
    }
    snprintf(path, sizeof(path), "%s/old", to);
    scratch_write(s, path, "x");
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE | WISH_IGNORE_ERRORS;
    expect_nothing_deleted(world, push);
    assert_false(scratch_exists(s, path));
    snprintf(path, sizeof(path), "%s/3", to);
    assert_true(scratch_exists(s, path));
}

static void nothing_is_deleted_for_another_source_that_is_pushed_later(void **state)
{
    begin_again_elsewhere(*state, true);
}

static void nothing_is_deleted_for_another_source_that_is_pulled_later(void **state)
{
    begin_again_elsewhere(*state, false);
}

/* Its contents come under the name that can be. */
static void the_first_name_may_be_where_nothing_is_made(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/d");
    scratch_directory(s, "here/t/l");
    scratch_directory(s, "here/t/z");
    scratch_write(s, "here/t/d/f", "one");
    scratch_write(s, "here/t/l/f", "other");
    assert_int_equal(linkat(s->fd, "here/t/d/f", s->fd, "here/t/z/one", 0), 0);
    assert_int_equal(linkat(s->fd, "here/t/l/f", s->fd, "here/t/z/other", 0), 0);
    scratch_directory(s, "root/t");
    scratch_directory(s, "root/elsewhere");
    scratch_write(s, "root/t/d", "a file that stays");
    assert_int_equal(symlinkat("../elsewhere", s->fd, "root/t/l"), 0);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_IGNORE_EXISTING;
    world->request.wishes.preserve = PRESERVE_HARD_LINKS;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    const struct tally *tally = session_tally(world->client);
    assert_int_equal(tally->failed, 0);
    assert_int_equal(tally->files, 2);
    assert_int_equal(tally->left, 2);
    scratch_expect(s, "root/t/z/one", "one");
    scratch_expect(s, "root/t/z/other", "other");
    scratch_expect(s, "root/t/d", "a file that stays");
    assert_false(scratch_exists(s, "root/elsewhere/f"));
}

static void a_newer_file_makes_no_way_for_a_name(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_directory(s, "root/t");
    scratch_write(s, "here/t/a", "old");
    set_time(s, "here/t/a", 1000, 0);
    assert_int_equal(linkat(s->fd, "here/t/a", s->fd, "here/t/b", 0), 0);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_UPDATE;
    world->request.wishes.preserve = PRESERVE_HARD_LINKS;
    for (int i = 0; i < 2; i++) { /* whichever comes first */
        scratch_write(s, i == 0 ? "root/t/a" : "root/t/b", "newer");
        unlinkat(s->fd, i == 0 ? "root/t/b" : "root/t/a", 0);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        scratch_expect(s, i == 0 ? "root/t/a" : "root/t/b", "newer");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(what_is_the_same_is_not_sent),
        T(a_digest_does_not_mind_holes),
        T(attributes_follow_what_is_the_same),
        T(a_large_tree_is_compared_in_order),
        T(a_dry_run_changes_nothing),
        T(other_kinds_are_replaced),
        T(what_makes_way_is_counted),
        T(the_first_name_may_be_where_nothing_is_made),
        T(a_newer_file_makes_no_way_for_a_name),
        T(what_the_source_has_not_is_deleted),
        T(files_of_rules_are_those_of_each_side),
        T(of_what_stays_anyway_no_rules_are_wanted),
        T(what_is_left_out_is_not_deleted),
        T(a_directory_that_is_none_at_the_source_is_left),
        T(nothing_is_deleted_where_the_source_failed),
        T(nothing_is_deleted_for_another_source),
        T(nothing_is_deleted_for_another_source_that_is_pushed_later),
        T(nothing_is_deleted_for_another_source_that_is_pulled_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
