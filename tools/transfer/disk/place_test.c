#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/disk/clear.h"
#include "tools/transfer/disk/half_mark.h"
#include "tools/transfer/disk/place.h"
#include "tools/transfer/disk/scratch.h"

static const struct wishes no_wishes;
static const struct attributes attributes = {.wishes = &no_wishes,
                                             .mode = 06640,
                                             .mtime = {.tv_sec = 1000000000, .tv_nsec = 5},
                                             .fsync = true};

int __real_close(int fd);
int __wrap_close(int fd);

/* As on a network file system with a full disk. */
static bool close_tells;

int __wrap_close(int fd)
{
    int result = __real_close(fd);
    if (close_tells) {
        errno = ENOSPC;
        return -1;
    }
    return result;
}

int __real_fstatat64(int directory, const char *name, struct stat *ret_status, int flags);
int __wrap_fstatat64(int directory, const char *name, struct stat *ret_status, int flags);
int __real_fstat64(int fd, struct stat *ret_status);
int __wrap_fstat64(int fd, struct stat *ret_status);

/* Where somebody waits until "made" has been looked at, to put a link in its place; or -1. */
static int ambush = -1;

static int after_the_look(int result)
{
    if (ambush >= 0) {
        renameat(ambush, "made", ambush, "away");
        symlinkat("victim", ambush, "made");
        ambush = -1;
    }
    return result;
}

int __wrap_fstatat64(int directory, const char *name, struct stat *ret_status, int flags)
{
    return after_the_look(__real_fstatat64(directory, name, ret_status, flags));
}

int __wrap_fstat64(int fd, struct stat *ret_status)
{
    return after_the_look(__real_fstat64(fd, ret_status));
}

static int make_scratch(void **state)
{
    *state = scratch_create();
    return 0;
}

static int remove_scratch(void **state)
{
    place_without_tmpfile = close_tells = false;
    scratch_destroy(*state);
    return 0;
}

static int place_symlink(int directory, const char *name, const char *target,
                         enum replacing replacing)
{
    const struct node node = {.type = S_IFLNK, .target = target};
    return place_node(directory, name, &node, &attributes, replacing, NULL);
}

static int place_text(const struct scratch *scratch, const char *name, const char *text,
                      enum replacing replacing)
{
    struct place place;
    int error = place_begin(&place, scratch->fd, name, replacing);
    if (error == 0) {
        assert_int_equal(place_write(&place, text, strlen(text), 0), 0);
        error = place_commit(&place, strlen(text), &attributes);
    }
    return error;
}

static void place_and_look(const struct scratch *scratch)
{
    struct place place;
    assert_int_equal(place_begin(&place, scratch->fd, "file", REPLACE_NOTHING), 0);
    assert_int_equal(place_write(&place, "world", 5, 6), 0);
    assert_int_equal(place_write(&place, "hello ", 6, 0), 0);
    assert_false(scratch_exists(scratch, "file"));
    assert_int_equal(place_commit(&place, 20, &attributes), 0);
    struct stat status;
    assert_int_equal(fstatat(scratch->fd, "file", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 0640); /* the set-ID bits are not carried */
    assert_int_equal(status.st_mtim.tv_sec, 1000000000);
    assert_int_equal(status.st_mtim.tv_nsec, 5);
    assert_int_equal(status.st_size, 20);
    assert_int_equal(scratch_count(scratch), 1);
}

static void a_name_appears_at_once(void **state)
{
    place_and_look(*state);
}

static void a_name_appears_at_once_without_tmpfile(void **state)
{
    place_without_tmpfile = true;
    place_and_look(*state);
}

static void nothing_is_replaced_that_is_not_to_be(void **state)
{
    for (int i = 0; i < 2; i++) {
        place_without_tmpfile = i == 1;
        const char *name = i == 1 ? "a" : "b";
        assert_int_equal(place_text(*state, name, "one", REPLACE_NOTHING), 0);
        assert_int_equal(place_text(*state, name, "two", REPLACE_NOTHING), EEXIST);
        scratch_expect(*state, name, "one");
        assert_int_equal(place_text(*state, name, "two", REPLACE_FILES), 0);
        scratch_expect(*state, name, "two");
        assert_int_equal(scratch_count(*state), i + 1);
    }
}

/* A directory only if it is empty, unless all of it may go; the old name is there until then. */
static void a_directory_is_replaced_when_it_may_go(void **state)
{
    const struct scratch *scratch = *state;
    for (int i = 0; i < 2; i++) {
        place_without_tmpfile = i == 1;
        const char *name = i == 1 ? "a" : "b";
        scratch_directory(scratch, name);
        assert_int_equal(place_text(scratch, name, "x", REPLACE_NOTHING), EEXIST);
        assert_int_equal(place_text(scratch, name, "x", REPLACE_FILES), 0);
        scratch_expect(scratch, name, "x");
        unlinkat(scratch->fd, name, 0);
        struct place place;
        char inside[16];
        assert_int_equal(place_begin(&place, scratch->fd, name, REPLACE_FILES), 0);
        scratch_directory(scratch, name); /* it comes up meanwhile */
        snprintf(inside, sizeof(inside), "%s/d", name);
        scratch_directory(scratch, inside);
        strcat(inside, "/f");
        scratch_write(scratch, inside, "kept");
        assert_int_equal(place_commit(&place, 0, &attributes), EISDIR);
        assert_int_equal(place_text(scratch, name, "x", REPLACE_FILES), EISDIR);
        assert_int_equal(place_symlink(scratch->fd, name, "x", REPLACE_FILES), EISDIR);
        scratch_expect(scratch, inside, "kept");
        assert_int_equal(place_text(scratch, name, "x", REPLACE_TREES), 0);
        scratch_expect(scratch, name, "x");
        assert_int_equal(scratch_count(scratch), i + 1);
    }
}

static void a_fifo_is_replaced(void **state)
{
    const struct scratch *scratch = *state;
    for (int i = 0; i < 2; i++) {
        struct place place;
        place_without_tmpfile = i == 1;
        const char *name = i == 1 ? "a" : "b";
        assert_int_equal(place_begin(&place, scratch->fd, name, REPLACE_FILES), 0);
        assert_int_equal(mkfifoat(scratch->fd, name, 0600), 0); /* it comes up meanwhile */
        assert_int_equal(place_text(scratch, name, "x", REPLACE_NOTHING), EEXIST);
        assert_int_equal(place_commit(&place, 0, &attributes), 0);
        scratch_expect(scratch, name, "");
        assert_int_equal(place_symlink(scratch->fd, name, "x", REPLACE_FILES), 0);
        assert_int_equal(scratch_count(scratch), i + 1);
    }
}

/* What a link leads to is not removed with it. */
static void removal_stays_below(void **state)
{
    const struct scratch *scratch = *state;
    scratch_directory(scratch, "kept");
    scratch_write(scratch, "kept/f", "x");
    scratch_directory(scratch, "d");
    symlinkat("../kept", scratch->fd, "d/link");
    assert_int_equal(clear_away(scratch->fd, "d", NULL), 0);
    assert_false(scratch_exists(scratch, "d"));
    scratch_expect(scratch, "kept/f", "x");
}

static void a_name_that_comes_up_meanwhile_is_kept(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct place place;
        place_without_tmpfile = i == 1;
        const char *name = i == 1 ? "a" : "b";
        assert_int_equal(place_begin(&place, ((struct scratch *)*state)->fd, name, REPLACE_NOTHING),
                         0);
        scratch_write(*state, name, "theirs");
        assert_int_equal(place_commit(&place, 0, &attributes), EEXIST);
        scratch_expect(*state, name, "theirs");
        assert_int_equal(scratch_count(*state), i + 1);
    }
}

static void what_only_close_tells_keeps_the_name_away(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct place place;
        place_without_tmpfile = i == 1;
        assert_int_equal(place_begin(&place, ((struct scratch *)*state)->fd, "x", REPLACE_FILES),
                         0);
        assert_int_equal(place_write(&place, "abc", 3, 0), 0);
        close_tells = true;
        assert_int_equal(place_commit(&place, 3, &attributes), ENOSPC);
        close_tells = false;
        assert_int_equal(scratch_count(*state), 0);
    }
}

static void abandoning_leaves_nothing(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct place place;
        place_without_tmpfile = i == 1;
        assert_int_equal(place_begin(&place, ((struct scratch *)*state)->fd, "x", REPLACE_NOTHING),
                         0);
        assert_int_equal(place_write(&place, "abc", 3, 0), 0);
        assert_int_equal(scratch_count(*state), i); /* without O_TMPFILE it has a name */
        place_abandon(&place);
        assert_int_equal(scratch_count(*state), 0);
    }
}

static void the_sweep_takes_the_dead_and_leaves_the_living(void **state)
{
    const struct scratch *scratch = *state;
    struct place living;
    place_without_tmpfile = true;
    assert_int_equal(place_begin(&living, scratch->fd, "x", REPLACE_NOTHING), 0);
    scratch_write(scratch, ".weir-0123456789abcdef", "left over");
    scratch_write(scratch, ".weir-notes", "mine");
    place_sweep(scratch->fd);
    assert_false(scratch_exists(scratch, ".weir-0123456789abcdef"));
    assert_true(scratch_exists(scratch, ".weir-notes"));
    assert_true(scratch_exists(scratch, living.temporary));
    assert_int_equal(place_commit(&living, 0, &attributes), 0);
    assert_true(scratch_exists(scratch, "x"));
}

/* One that was killed after a file got its owner, and before it got its name. */
static void what_root_left_may_be_anybodys(void **state)
{
    const struct scratch *scratch = *state;
    if (geteuid() != 0) {
        skip();
    }
    scratch_write(scratch, ".weir-0123456789abcdef", "left over");
    scratch_write(scratch, ".weir-00000000000000aa", "can be gone on with by its owner");
    scratch_write(scratch, ".weir-00000000000000aa.journal", "");
    for (unsigned i = 0; i < 3; i++) {
        static const char *const names[] = {".weir-0123456789abcdef", ".weir-00000000000000aa",
                                            ".weir-00000000000000aa.journal"};
        assert_int_equal(fchownat(scratch->fd, names[i], 65534, 65534, 0), 0);
    }
    place_sweep(scratch->fd);
    assert_false(scratch_exists(scratch, ".weir-0123456789abcdef"));
    assert_true(scratch_exists(scratch, ".weir-00000000000000aa"));
    assert_true(scratch_exists(scratch, ".weir-00000000000000aa.journal"));
}

static void our_own_names_are_not_for_files(void **state)
{
    assert_int_equal(place_text(*state, ".weir-0123456789abcdef", "x", REPLACE_FILES), EILSEQ);
    assert_int_equal(place_text(*state, ".weir-0123456789abcdeg", "x", REPLACE_FILES), 0);
}

static void links_are_placed_alike(void **state)
{
    const struct scratch *scratch = *state;
    char target[16] = {0};
    assert_int_equal(place_symlink(scratch->fd, "l", "to/a", REPLACE_NOTHING), 0);
    assert_int_equal(place_symlink(scratch->fd, "l", "to/b", REPLACE_NOTHING), EEXIST);
    assert_int_equal(place_symlink(scratch->fd, "l", "to/b", REPLACE_FILES), 0);
    assert_int_equal(readlinkat(scratch->fd, "l", target, sizeof(target)), 4);
    assert_string_equal(target, "to/b");
    assert_int_equal(scratch_count(scratch), 1);
}

/* Whoever writes in place may be killed at any moment. */
static void what_is_written_in_place_is_marked_until_it_is_whole(void **state)
{
    const struct scratch *scratch = *state;
    struct place place;
    struct stat status;
    scratch_write(scratch, "probe", "");
    int fd = openat(scratch->fd, "probe", O_RDWR);
    half_mark_set(fd);
    if (!half_mark_is_on(scratch->fd, "probe")) {
        close(fd);
        skip(); /* the file system has no such attributes */
    }
    half_mark_clear(fd);
    assert_false(half_mark_is_on(scratch->fd, "probe"));
    close(fd);
    for (unsigned there = 0; there < 2; there++) {
        assert_int_equal(place_begin_inplace(&place, scratch->fd, "f", REPLACE_FILES, 1000), 0);
        assert_int_equal(half_mark_is_on(scratch->fd, "f"), there == 0); /* a new one at once */
        assert_int_equal(place_write(&place, "new", 3, 0), 0);
        assert_true(half_mark_is_on(scratch->fd, "f"));
        assert_int_equal(place_commit(&place, 3, &attributes), 0);
        assert_false(half_mark_is_on(scratch->fd, "f"));
    }
    assert_int_equal(place_begin_inplace(&place, scratch->fd, "f", REPLACE_FILES, 1000), 0);
    assert_int_equal(place_hole(&place, 0, 2), 0);
    assert_true(half_mark_is_on(scratch->fd, "f"));
    place_abandon(&place); /* it is old now, which says the same to who looks at times */
    assert_true(half_mark_is_on(scratch->fd, "f"));
    assert_int_equal(fstatat(scratch->fd, "f", &status, 0), 0);
    assert_int_equal(status.st_mtim.tv_sec, 0);
}

/* Whatever time its source has: a peer may say any. */
static void what_stays_half_has_an_old_time(void **state)
{
    static const time_t times[] = {1000, 0, -5, INT64_MIN + 5, INT64_MIN};
    const struct scratch *scratch = *state;
    struct place place;
    struct stat status;
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        assert_int_equal(place_begin_inplace(&place, scratch->fd, "f", REPLACE_FILES, times[i]), 0);
        assert_int_equal(place_write(&place, "new", 3, 0), 0);
        place_abandon(&place);
        assert_int_equal(fstatat(scratch->fd, "f", &status, 0), 0);
        assert_true(status.st_mtim.tv_sec <= 0);
    }
}

/* Root needs no permission: whoever that is, the test goes on as a user who owns the directory. */
static void become_a_user(const struct scratch *scratch)
{
    if (geteuid() == 0) {
        assert_int_equal(fchown(scratch->fd, 65534, 65534), 0);
        assert_int_equal(seteuid(65534), 0);
        prctl(PR_SET_DUMPABLE, 1); /* else /proc/self is root's */
    }
}

static int become_root_again(void **state)
{
    assert_int_equal(seteuid(getuid()), 0);
    return remove_scratch(state);
}

static void expect_read_only(const struct scratch *scratch, const char *name, bool half)
{
    struct stat status;
    assert_int_equal(fstatat(scratch->fd, name, &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 0444);
    assert_int_equal(half_mark_is_on(scratch->fd, name), half);
}

static void who_takes_the_name_of_a_whole_tree_gains_nothing(void **state)
{
    const struct scratch *scratch = *state;
    struct stat status;
    become_a_user(scratch);
    scratch_write(scratch, "victim", "for its owner alone");
    scratch_directory(scratch, "made");
    assert_int_equal(fchmodat(scratch->fd, "victim", 0600, 0), 0);
    int made = openat(scratch->fd, "made", O_RDONLY | O_DIRECTORY);
    half_mark_name(made, "source");
    if (!half_mark_is_named(made, "source")) {
        close(made);
        skip();
    }
    assert_int_equal(fchmod(made, 0555), 0);
    ambush = scratch->fd;
    half_mark_unname(scratch->fd, "made");
    assert_int_equal(ambush, -1);
    assert_int_equal(fstatat(scratch->fd, "victim", &status, 0), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    assert_false(half_mark_is_named(made, "source"));
    assert_int_equal(fstat(made, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0555);
    close(made);
}

/* One that was read-only before, or is to be; and it is marked all the while. */
static void what_is_read_only_is_written_in_place(void **state)
{
    const struct scratch *scratch = *state;
    struct attributes read_only = attributes;
    struct place place;
    become_a_user(scratch);
    scratch_write(scratch, "probe", "");
    int fd = openat(scratch->fd, "probe", O_RDWR);
    half_mark_set(fd);
    bool marks = half_mark_is_on(scratch->fd, "probe");
    close(fd);
    read_only.mode = 0444;
    for (unsigned there = 0; there < 2; there++) {
        assert_int_equal(place_begin_inplace(&place, scratch->fd, "f", REPLACE_FILES, 1000), 0);
        assert_int_equal(place_write(&place, "new", 3, 0), 0);
        assert_int_equal(half_mark_is_on(scratch->fd, "f"), marks);
        assert_int_equal(place_commit(&place, 3, &read_only), 0);
        expect_read_only(scratch, "f", false);
    }
    assert_int_equal(place_begin_inplace(&place, scratch->fd, "f", REPLACE_FILES, 1000), 0);
    place_abandon(&place);
    expect_read_only(scratch, "f", false);
    assert_int_equal(place_begin_inplace(&place, scratch->fd, "f", REPLACE_FILES, 1000), 0);
    assert_int_equal(place_write(&place, "n", 1, 0), 0);
    place_abandon(&place);
    expect_read_only(scratch, "f", marks);
}

/* The name leads to something else by now, which is not what was copied. */
static void what_has_lost_its_name_is_not_placed(void **state)
{
    const struct scratch *scratch = *state;
    struct place place;
    for (unsigned gone = 0; gone < 2; gone++) {
        scratch_write(scratch, "f", "old");
        scratch_write(scratch, "theirs", "other");
        assert_int_equal(place_begin_inplace(&place, scratch->fd, "f", REPLACE_FILES, 1000), 0);
        assert_int_equal(place_write(&place, "new", 3, 0), 0);
        if (gone == 1) {
            assert_int_equal(unlinkat(scratch->fd, "f", 0), 0);
        } else {
            assert_int_equal(renameat(scratch->fd, "theirs", scratch->fd, "f"), 0);
        }
        assert_int_equal(place_commit(&place, 3, &attributes), ESTALE);
        assert_int_equal(scratch_exists(scratch, "f"), gone == 0);
    }
    scratch_write(scratch, "f", "old");
    assert_int_equal(place_begin_inplace(&place, scratch->fd, "f", REPLACE_FILES, 1000), 0);
    assert_int_equal(place_write(&place, "new", 3, 0), 0);
    assert_int_equal(place_commit(&place, 3, &attributes), 0);
    scratch_expect(scratch, "f", "new");
}

static void names_of_255_bytes_fit(void **state)
{
    char name[257];
    memset(name, 'n', sizeof(name));
    name[256] = 0;
    assert_int_equal(place_text(*state, name, "x", REPLACE_NOTHING), ENAMETOOLONG);
    name[255] = 0;
    assert_int_equal(place_text(*state, name, "x", REPLACE_NOTHING), 0);
    assert_true(scratch_exists(*state, name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, make_scratch, remove_scratch)
        T(a_name_appears_at_once),
        T(a_name_appears_at_once_without_tmpfile),
        T(nothing_is_replaced_that_is_not_to_be),
        T(a_directory_is_replaced_when_it_may_go),
        T(a_fifo_is_replaced),
        T(removal_stays_below),
        T(a_name_that_comes_up_meanwhile_is_kept),
        T(what_only_close_tells_keeps_the_name_away),
        T(abandoning_leaves_nothing),
        T(the_sweep_takes_the_dead_and_leaves_the_living),
        T(what_root_left_may_be_anybodys),
        T(our_own_names_are_not_for_files),
        T(links_are_placed_alike),
        T(what_is_written_in_place_is_marked_until_it_is_whole),
        T(what_stays_half_has_an_old_time),
        cmocka_unit_test_setup_teardown(what_is_read_only_is_written_in_place, make_scratch,
                                        become_root_again),
        cmocka_unit_test_setup_teardown(who_takes_the_name_of_a_whole_tree_gains_nothing,
                                        make_scratch, become_root_again),
        T(what_has_lost_its_name_is_not_placed),
        T(names_of_255_bytes_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
