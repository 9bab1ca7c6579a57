/* Small files are opened, looked at and made with few calls of the system: what must not be lost
 * by that. */
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

#define STEPS 24 /* more than such a copy takes */

static unsigned when; /* `between` changes something before this step */
static void (*change)(const struct scratch *scratch);

static void at_one_step(struct world *world, unsigned step)
{
    if (step == when) {
        change(world->scratch);
    }
}

static void grow(const struct scratch *s)
{
    scratch_write(s, "here/t/f", "something new, and longer than what was there before");
}

static void become_large(const struct scratch *s)
{
    scratch_fill(s, "here/t/f", EAGER_LENGTH_MAX + 5, 7);
}

static void shrink(const struct scratch *s)
{
    scratch_write(s, "here/t/f", "new");
}

/* As long, and of the same time: nothing but the inode tells. */
static void be_replaced(const struct scratch *s)
{
    struct stat status;
    assert_int_equal(fstatat(s->fd, "here/t/f", &status, 0), 0);
    scratch_write(s, "here/other", "NEW");
    const struct timespec times[2] = {status.st_mtim, status.st_mtim};
    assert_int_equal(utimensat(s->fd, "here/other", times, 0), 0);
    assert_int_equal(renameat(s->fd, "here/other", s->fd, "here/t/f"), 0);
}

static void become_a_fifo(const struct scratch *s)
{
    assert_int_equal(unlinkat(s->fd, "here/t/f", 0), 0);
    assert_int_equal(mkfifoat(s->fd, "here/t/f", 0600), 0);
}

static void vanish(const struct scratch *s)
{
    assert_int_equal(unlinkat(s->fd, "here/t/f", 0), 0);
}

static void begin_anew(struct world *world)
{
    const struct scratch *s = world->scratch;
    if (!scratch_exists(s, "here/t")) {
        scratch_directory(s, "here/t");
    }
    unlinkat(s->fd, "here/t/f", 0);
    unlinkat(s->fd, "here/t/g", 0);
    unlinkat(s->fd, "root/t/f", 0);
    unlinkat(s->fd, "root/t/g", 0);
    unlinkat(s->fd, "root/t", AT_REMOVEDIR);
    scratch_write(s, "here/t/f", "old");
    scratch_write(s, "here/t/g", "beside it");
    world->request.wishes.bits |= WISH_RECURSIVE;
}

/* Before or after the change, and nothing in between; `is_file`: there is something afterwards. */
static void expect_one_or_the_other(struct world *world, bool is_file)
{
    const struct scratch *s = world->scratch;
    unsigned olds = 0, others = 0;
    world->between = at_one_step;
    for (when = 0; when < STEPS; when++) {
        begin_anew(world);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        scratch_expect(s, "root/t/g", "beside it");
        bool failed = session_tally(world->client)->failed > 0;
        bool warned = session_tally(world->client)->warnings > 0;
        assert_true(!failed || !is_file);
        struct stat status;
        bool there = fstatat(s->fd, "root/t/f", &status, 0) == 0;
        if (there && status.st_size == 3 && !(is_file && scratch_same(s, "here/t/f", "root/t/f"))) {
            scratch_expect(s, "root/t/f", "old");
            olds++;
        } else {
            assert_int_equal(there, is_file);
            assert_true(there ? scratch_same(s, "here/t/f", "root/t/f") : true);
            others++;
        }
        assert_true(!(there && (failed || (warned && !is_file)))); /* of what is read again */
        if (failed && change == become_a_fifo) { /* and not that it cannot be read */
            assert_string_equal(world->problems[0], "here source changed\n");
        }
    }
    assert_true(olds > 0 && others > 0);
}

static void what_changes_before_it_is_read_comes_whole(void **state)
{
    void (*const changes[])(const struct scratch *) = {grow, become_large, shrink, be_replaced};
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        change = changes[i];
        expect_one_or_the_other(*state, true);
    }
}

static void what_is_no_file_any_more_is_not_read(void **state)
{
    void (*const changes[])(const struct scratch *) = {become_a_fifo, vanish};
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        change = changes[i];
        expect_one_or_the_other(*state, false);
    }
}

static void modes_do_not_depend_on_the_umask(void **state)
{
    static const mode_t modes[] = {0, 0400, 0444, 0600, 0640, 0644, 0666, 0755, 0777, 01644};
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    char here[40], there[40];
    struct stat status;
    const mode_t before = umask(0);
    for (mode_t mask = 0; mask <= 0777; mask += 077) {
        begin_anew(world);
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
            snprintf(here, sizeof(here), "here/t/%o", modes[i]);
            scratch_write(s, here, "x");
            assert_int_equal(fchmodat(s->fd, here, modes[i] | 0400, 0), 0);
        }
        umask(mask);
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        umask(0);
        assert_int_equal(session_tally(world->client)->failed, 0);
        for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
            snprintf(here, sizeof(here), "here/t/%o", modes[i]);
            snprintf(there, sizeof(there), "root/t/%o", modes[i]);
            assert_int_equal(fstatat(s->fd, there, &status, 0), 0);
            assert_int_equal(status.st_mode & 07777, modes[i] | 0400);
            unlinkat(s->fd, here, 0);
            unlinkat(s->fd, there, 0);
        }
    }
    umask(before);
}

/* Somebody makes the file in a directory that the copy has made. */
static void be_first(struct world *world, unsigned step)
{
    if (scratch_exists(world->scratch, "root/t") && !world->replaced) {
        world->replaced = true;
        scratch_write(world->scratch, "root/t/f", "theirs");
    }
}

static void who_comes_between_is_met(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    for (int spare = 0; spare < 2; spare++) {
        begin_anew(world);
        scratch_fill(s, "here/t/a", 4 * MIB, 1); /* so that there are steps between */
        world->request.wishes.bits |= spare ? WISH_IGNORE_EXISTING : 0;
        world->between = be_first;
        world->replaced = false;
        assert_int_equal(world_push(world, "t", "/"), SESSION_COMPLETE);
        assert_true(world->replaced);
        assert_int_equal(session_tally(world->client)->failed, 0);
        assert_true(scratch_exists(s, "root/t/f"));
        unlinkat(s->fd, "root/t/a", 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(what_changes_before_it_is_read_comes_whole),
        T(what_is_no_file_any_more_is_not_read),
        T(modes_do_not_depend_on_the_umask),
        T(who_comes_between_is_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
