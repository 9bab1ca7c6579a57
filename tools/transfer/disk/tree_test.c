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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/transfer/disk/scratch.h"
#include "tools/transfer/disk/tree.h"

#define LEFT "d/.weir-0123456789abcdef"

static const struct wishes no_wishes;

int __real_unlinkat(int directory, const char *name, int flags);
int __wrap_unlinkat(int directory, const char *name, int flags);
int __real_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags);
int __real_mkdirat(int directory, const char *name, mode_t mode);
int __wrap_mkdirat(int directory, const char *name, mode_t mode);

time_t __real_time(time_t *ret_time);
time_t __wrap_time(time_t *ret_time);

static time_t later_s;
static int exchange_error, unlink_error;
static int full_error; /* there is no room for another name beside "x" */
static bool was_there; /* "x", as a directory, when a file went */

int __wrap_unlinkat(int directory, const char *name, int flags)
{
    struct stat status;
    if (flags == 0) {
        was_there =
            fstatat(directory, "x", &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
        errno = unlink_error;
    }
    return flags == 0 && unlink_error != 0 ? -1 : __real_unlinkat(directory, name, flags);
}

int __wrap_renameat2(int from, const char *old, int to, const char *new, unsigned flags)
{
    errno = exchange_error;
    return exchange_error != 0 ? -1 : __real_renameat2(from, old, to, new, flags);
}

int __wrap_mkdirat(int directory, const char *name, mode_t mode)
{
    struct stat status;
    bool full = full_error != 0 && fstatat(directory, "x", &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                strcmp(name, "x") != 0;
    errno = full_error;
    return full ? -1 : __real_mkdirat(directory, name, mode);
}

static int make_scratch(void **state)
{
    *state = scratch_create();
    return 0;
}

static int remove_scratch(void **state)
{
    scratch_destroy(*state);
    return 0;
}

static void enter_and_leave(struct tree *tree, const char *name)
{
    struct tree_entry entry = {.attributes = {.wishes = &no_wishes, .mode = 0755}};
    uint32_t id;
    tree_name(tree, name);
    assert_int_equal(tree_enter(tree, name, 1, &entry), 0);
    assert_int_equal(tree_leave(tree, &id), 0);
    tree_forget(tree);
}

/* Else a peer that enters a directory of a million names again and again keeps others waiting. */
static void a_directory_is_swept_once(void **state)
{
    const struct scratch *scratch = *state;
    struct tree tree;
    scratch_directory(scratch, "d");
    scratch_directory(scratch, "e");
    for (int session = 0; session < 2; session++) {
        scratch_write(scratch, LEFT, "left by the killed");
        tree_init(&tree, scratch->fd, "");
        enter_and_leave(&tree, "e");
        enter_and_leave(&tree, "d");
        assert_false(scratch_exists(scratch, LEFT));
        scratch_write(scratch, LEFT, "left meanwhile");
        enter_and_leave(&tree, "d");
        assert_true(scratch_exists(scratch, LEFT));
        tree_fini(&tree);
    }
}

time_t __wrap_time(time_t *ret_time)
{
    return __real_time(ret_time) + later_s;
}

/* What a killed copy made, and had not yet exchanged. */
static void an_empty_directory_is_swept_in_an_hour(void **state)
{
    const struct scratch *scratch = *state;
    for (int full = 0; full < 2; full++) {
        if (full == 0) {
            scratch_directory(scratch, "d");
        }
        scratch_directory(scratch, LEFT);
        if (full == 1) {
            scratch_write(scratch, LEFT "/mine", "not ours");
        }
        for (later_s = 0; later_s <= 3601; later_s += 3601) {
            struct tree tree;
            tree_init(&tree, scratch->fd, "");
            enter_and_leave(&tree, "d");
            assert_int_equal(scratch_exists(scratch, LEFT), later_s == 0 || full == 1);
            tree_fini(&tree);
        }
    }
    later_s = 0;
}

/* As much as one directory may have. */
static struct xattrs many_xattrs(void)
{
    static const char value[48 << 10];
    struct xattrs xattrs = {.list = NULL};
    char name[16];
    for (unsigned i = 0; i < 21; i++) {
        snprintf(name, sizeof(name), "user.%u", i);
        assert_int_equal(xattrs_add(&xattrs, (struct span){name, strlen(name)},
                                    (struct span){value, sizeof(value)}, false),
                         0);
    }
    return xattrs;
}

/* Or who sends directories in each other, each with many of them, has a server hold gigabytes. */
static void extended_attributes_of_all_levels_are_bounded(void **state)
{
    const struct scratch *scratch = *state;
    struct tree tree;
    unsigned depth = 0;
    uint32_t id;
    int error = 0;
    tree_init(&tree, scratch->fd, "");
    while (error == 0 && depth < 100) {
        struct tree_entry entry = {.attributes = {.wishes = &no_wishes, .mode = 0755},
                                   .xattrs = many_xattrs()};
        tree_name(&tree, "d");
        error = tree_enter(&tree, "d", 1, &entry);
        depth += error == 0;
    }
    assert_int_equal(error, ENOBUFS);
    assert_in_range(depth, 2, 5);
    tree_forget(&tree);
    enter_and_leave(&tree, "e"); /* without any */
    for (; depth > 0; depth--) {
        assert_int_equal(tree_leave(&tree, &id), 0);
        tree_forget(&tree);
    }
    assert_int_equal(tree.held, 0);
    tree_fini(&tree);
}

/* A copy that is killed at any instant leaves the file or the directory. */
static void a_directory_takes_the_place_of_a_file_at_once(void **state)
{
    const struct scratch *scratch = *state;
    struct tree tree;
    tree_init(&tree, scratch->fd, "");
    for (exchange_error = 0; exchange_error <= EXDEV; exchange_error += EXDEV) {
        scratch_write(scratch, "x", "in the way");
        was_there = false;
        enter_and_leave(&tree, "x");
        assert_int_equal(was_there, exchange_error == 0);
        assert_int_equal(scratch_count(scratch), 1);
        assert_int_equal(unlinkat(scratch->fd, "x", AT_REMOVEDIR), 0);
    }
    exchange_error = 0;
    tree_fini(&tree);
}

/* It is removed first, and gives its room. */
static void a_directory_takes_the_place_of_a_file_on_a_full_disk(void **state)
{
    static const int errors[] = {ENOSPC, EDQUOT};
    const struct scratch *scratch = *state;
    struct tree tree;
    tree_init(&tree, scratch->fd, "");
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        full_error = errors[i];
        scratch_write(scratch, "x", "in the way");
        enter_and_leave(&tree, "x");
        assert_int_equal(unlinkat(scratch->fd, "x", AT_REMOVEDIR), 0);
    }
    full_error = 0;
    tree_fini(&tree);
}

static void a_file_that_cannot_go_stays(void **state)
{
    const struct scratch *scratch = *state;
    struct tree tree;
    tree_init(&tree, scratch->fd, "");
    scratch_write(scratch, "x", "in the way");
    unlink_error = EPERM;
    struct tree_entry entry = {.attributes = {.wishes = &no_wishes, .mode = 0755}};
    tree_name(&tree, "x");
    assert_int_equal(tree_enter(&tree, "x", 1, &entry), EPERM);
    unlink_error = 0;
    tree_forget(&tree);
    scratch_expect(scratch, "x", "in the way");
    assert_int_equal(scratch_count(scratch), 1);
    tree_fini(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(extended_attributes_of_all_levels_are_bounded, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(a_directory_takes_the_place_of_a_file_at_once, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(a_directory_takes_the_place_of_a_file_on_a_full_disk,
                                        make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(a_file_that_cannot_go_stays, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(an_empty_directory_is_swept_in_an_hour, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(a_directory_is_swept_once, make_scratch, remove_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
