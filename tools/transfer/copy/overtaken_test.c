/* Answers about a target that is another one by the time they count, between two honest ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/copy/session_world.h"
#include "tools/transfer/disk/half_mark.h"

#define STEPS 24 /* more than such a copy takes */

static void set_time(const struct scratch *s, const char *name, time_t seconds)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(s->fd, name, times, AT_SYMLINK_NOFOLLOW), 0);
}

static time_t time_of(const struct scratch *s, const char *name)
{
    struct stat status;
    assert_int_equal(fstatat(s->fd, name, &status, AT_SYMLINK_NOFOLLOW), 0);
    return status.st_mtim.tv_sec;
}

static unsigned when;

static void write_at_one_step(struct world *world, unsigned step)
{
    if (step == when) {
        scratch_write(world->scratch, "root/t/f", "somebody's");
    }
}

/* What came after its digest was told is not given the source's time. */
static void what_changes_after_its_digest_is_no_more_the_same(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    unsigned refused = 0;
    scratch_directory(s, "here/t");
    scratch_directory(s, "root/t");
    world->between = write_at_one_step;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_CHECKSUM;
    for (when = 0; when < STEPS; when++) {
        scratch_write(s, "here/t/f", "the source");
        scratch_write(s, "root/t/f", "the source");
        set_time(s, "here/t/f", 1000000000);
        set_time(s, "root/t/f", 1000000001);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        if (!scratch_same(s, "here/t/f", "root/t/f")) {
            assert_true(time_of(s, "root/t/f") > 1000000001);
        } else {
            assert_int_equal(time_of(s, "root/t/f"), 1000000000);
        }
        refused += session_tally(world->client)->failed > 0;
    }
    assert_true(refused > 0);
}

static void grow_at_one_step(struct world *world, unsigned step)
{
    if (step == when) {
        int fd = openat(world->scratch->fd, "here/t/f", O_WRONLY | O_APPEND);
        assert_int_equal(write(fd, "more", 4), 4);
        close(fd);
    }
}

/* A source that changes while its digest is taken is sent, as one that changes while it is read. */
static void what_changes_before_its_digest_is_known_comes(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    unsigned came = 0;
    scratch_directory(s, "here/t");
    scratch_directory(s, "root/t");
    world->between = grow_at_one_step;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_CHECKSUM;
    for (when = 0; when < 2 * STEPS; when++) {
        scratch_fill(s, "here/t/f", 12 * MIB, 1);
        scratch_fill(s, "root/t/f", 12 * MIB, 1);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->failed, 0);
        bool warned = strcmp(world->problems[0], "here source warning\n") == 0;
        assert_true(!warned || scratch_same(s, "here/t/f", "root/t/f"));
        came += warned;
    }
    assert_true(came > 0);
}

static void make_two_names(const struct scratch *s, const char *x, const char *y)
{
    scratch_write(s, "here/t/x", x);
    scratch_write(s, "here/t/y", y);
    set_time(s, "here/t/x", 1000000000);
    set_time(s, "here/t/y", 1000000001);
    scratch_write(s, "root/t/x", "old");
    assert_int_equal(linkat(s->fd, "root/t/x", s->fd, "root/t/y", 0), 0);
    set_time(s, "root/t/x", 900000000);
}

/* Written in place it is new under both names, and the other one's digest is over. */
static void names_of_one_file_do_not_vouch_for_each_other(void **state)
{
    static const char *const contents[2][2] = {{"new", "old"}, {"old", "new"}};
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    unsigned refused = 0;
    scratch_directory(s, "here/t");
    scratch_directory(s, "root/t");
    world->request.wishes.bits = WISH_RECURSIVE | WISH_CHECKSUM | WISH_INPLACE;
    for (unsigned i = 0; i < 2; i++) { /* in whatever order they are read */
        make_two_names(s, contents[i][0], contents[i][1]);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        bool failed = session_tally(world->client)->failed > 0;
        bool same =
            scratch_same(s, "here/t/x", "root/t/x") || scratch_same(s, "here/t/y", "root/t/y");
        assert_true(same);
        assert_int_equal(session_tally(world->client)->files, 1);
        refused += failed;
        unlinkat(s->fd, "root/t/x", 0);
        unlinkat(s->fd, "root/t/y", 0);
    }
    assert_int_equal(refused, 1);
}

/* But where only its times are others, by what was done to another name of it, it is the same. */
static void what_got_another_time_is_the_same_still(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/t");
    scratch_directory(s, "root/t");
    make_two_names(s, "old", "old");
    world->request.wishes.bits = WISH_RECURSIVE | WISH_CHECKSUM;
    assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->failed, 0);
    assert_int_equal(session_tally(world->client)->same, 2);
}

static void what_a_digest_proves_is_half_no_more(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_write(s, "here/f", "whole");
    scratch_write(s, "root/f", "whole");
    set_time(s, "here/f", 1000000000);
    int fd = openat(s->fd, "root/f", O_RDWR);
    half_mark_set(fd);
    close(fd);
    world->request.wishes.bits = WISH_CHECKSUM;
    assert_int_equal(world_push(world, "f", "/"), SESSION_COMPLETE);
    assert_int_equal(session_tally(world->client)->same, 1);
    assert_false(half_mark_is_on(s->fd, "root/f"));
}

/* What is in both has the later one's contents, however often it is copied. */
static void of_sources_with_the_same_names_the_later_one_stays(void **state)
{
    static const uint32_t wishes[] = {0, WISH_CHECKSUM, WISH_INPLACE, WISH_CHECKSUM | WISH_INPLACE};
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    char paths[3][128];
    const char *sources[3] = {paths[0], paths[1], paths[2]};
    scratch_directory(s, "here/a");
    scratch_directory(s, "here/b");
    scratch_directory(s, "here/b/x");
    scratch_directory(s, "here/x");
    scratch_write(s, "here/a/f", "first");
    scratch_write(s, "here/b/f", "other");
    scratch_write(s, "here/b/x/f", "first");
    scratch_write(s, "here/x/f", "other");
    scratch_fill(s, "here/a/large", 5 * MIB, 1);
    scratch_fill(s, "here/b/large", 5 * MIB, 2);
    set_time(s, "here/a/f", 1000000000);
    set_time(s, "here/b/f", 1000000001);
    set_time(s, "here/b/x/f", 1000000000);
    for (unsigned i = 0; i < 12; i++) {
        for (unsigned j = 0; j < 3; j++) {
            snprintf(paths[j], sizeof(paths[j]), "%s/here/%s", s->path,
                     (const char *[]){"a/", "b/", "x"}[j]);
        }
        world->request.direction = DIRECTION_PUSH;
        world->request.sources = sources;
        world->request.source_count = 3;
        world->request.target_path = "/";
        world->request.wishes.bits = WISH_RECURSIVE | wishes[i % 4];
        world_connect(world, false);
        world_run(world);
        assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
        assert_int_equal(session_tally(world->client)->failed, 0);
        assert_true(scratch_same(s, "here/b/f", "root/f"));
        assert_true(scratch_same(s, "here/b/large", "root/large"));
        assert_true(scratch_same(s, "here/x/f", "root/x/f"));
        assert_int_equal(time_of(s, "root/f"), 1000000001);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(what_changes_after_its_digest_is_no_more_the_same),
        T(what_changes_before_its_digest_is_known_comes),
        T(names_of_one_file_do_not_vouch_for_each_other),
        T(what_got_another_time_is_the_same_still),
        T(what_a_digest_proves_is_half_no_more),
        T(of_sources_with_the_same_names_the_later_one_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
