/* Files of rules in directories: what they decide, and what is refused of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/choice/filter_scope.h"
#include "tools/transfer/disk/scratch.h"

struct world {
    struct scratch *scratch;
    struct filter *filter;
    struct filter_scope *scope;
    char why[SCOPE_WHY_LENGTH];
};

static int setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    world->scratch = scratch_create();
    world->filter = filter_create();
    scratch_directory(world->scratch, "t");
    scratch_directory(world->scratch, "t/d");
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    filter_scope_free_up(world->scope, NULL);
    filter_destroy(world->filter);
    scratch_destroy(world->scratch);
    free(world);
    return 0;
}

static void add(struct world *world, const char *rule)
{
    struct filter_line line;
    char why[FILTER_WHY_LENGTH];
    assert_true(filter_parse_line(rule, 0, &line, why));
    assert_true(filter_add(world->filter, line.bits, (struct span){line.text, strlen(line.text)}));
}

static int enter(struct world *world, const char *name, unsigned depth)
{
    struct filter_scope *scope = NULL;
    int fd = openat(world->scratch->fd, name, O_PATH | O_DIRECTORY);
    assert_true(fd >= 0);
    world->why[0] = 0;
    int error = filter_scope_read(world->filter, world->scope, fd, depth, &scope, world->why);
    close(fd);
    world->scope = error == 0 ? scope : world->scope;
    return error;
}

/* As the scopes of a tree "t" and its "t/d". */
static void enter_both(struct world *world)
{
    filter_scope_free_up(world->scope, NULL);
    world->scope = NULL;
    assert_int_equal(enter(world, "t", 1), 0);
    assert_int_equal(enter(world, "t/d", 2), 0);
}

static bool out(const struct world *world, const char *path)
{
    return filter_excludes(world->filter, world->scope, path, false);
}

static void the_nearest_file_is_asked_first(void **state)
{
    struct world *world = *state;
    add(world, "+ always");
    add(world, ": .rules");
    add(world, "- last");
    scratch_write(world->scratch, "t/.rules", "# idle\n\n- *.o\r\n- always\n+ last\n- x");
    scratch_write(world->scratch, "t/d/.rules", "+ kept.o\n- y\n");
    enter_both(world);
    assert_true(out(world, "t/d/a.o"));
    assert_false(out(world, "t/d/kept.o"));
    assert_true(out(world, "t/d/x"));
    assert_true(out(world, "t/d/y"));
    assert_false(out(world, "t/d/always"));
    assert_false(out(world, "t/d/last"));
    scratch_write(world->scratch, "t/d/.rules", "- y\n!\n- z\n");
    enter_both(world);
    assert_false(out(world, "t/d/a.o")); /* what is above is forgotten, and what was before */
    assert_false(out(world, "t/d/y"));
    assert_true(out(world, "t/d/z"));
    assert_true(out(world, "t/d/last"));
}

static void one_of_its_own_is_not_handed_down(void **state)
{
    struct world *world = *state;
    add(world, ":n .rules");
    scratch_write(world->scratch, "t/.rules", "- *.o\n");
    enter_both(world);
    assert_false(out(world, "t/d/a.o"));
    scratch_write(world->scratch, "t/d/.rules", "- *.o\n");
    enter_both(world);
    assert_true(out(world, "t/d/a.o"));
}

static void a_slash_is_the_directory_of_the_file(void **state)
{
    struct world *world = *state;
    add(world, ": .rules");
    scratch_write(world->scratch, "t/.rules", "- /a\n- /d/b\n- d/c\n");
    enter_both(world);
    assert_false(out(world, "t/d/a"));
    assert_true(out(world, "t/a"));
    assert_true(out(world, "t/d/b"));
    assert_true(out(world, "t/d/c"));
    scratch_write(world->scratch, "t/.rules", "- /*/b\n- /t/d/a\n");
    scratch_write(world->scratch, "t/d/.rules", "- /**/a\n");
    enter_both(world);
    assert_true(out(world, "t/d/b"));
    assert_false(out(world, "t/d/a"));
    assert_true(out(world, "t/d/e/a"));
}

static void lines_may_be_patterns(void **state)
{
    struct world *world = *state;
    add(world, ":-s .leave");
    add(world, "dir-merge,+ .take");
    add(world, "- *");
    scratch_write(world->scratch, "t/.leave", "*.o\n+ x\n");
    scratch_write(world->scratch, "t/.take", "*.c\n");
    enter_both(world);
    assert_true(out(world, "t/d/a.o"));
    assert_false(out(world, "t/d/a.c"));
    assert_true(out(world, "t/d/+ x"));
    const struct filter_loss loss = {.delete_excluded = false};
    assert_true(filter_protects(world->filter, world->scope, "t/d/a.o", false, loss)); /* "- *" */
    filter_clear(world->filter);
    add(world, ":-s .leave");
    enter_both(world);
    assert_true(out(world, "t/d/a.o"));
    assert_false(filter_protects(world->filter, world->scope, "t/d/a.o", false, loss));
}

static void and_words_lines(void **state)
{
    struct world *world = *state;
    add(world, ":w .words");
    scratch_write(world->scratch, "t/.words", "-_*.o\t+_x  \r\n#no -_x -_y");
    assert_int_not_equal(enter(world, "t", 1), 0); /* a remark is none */
    assert_non_null(strstr(world->why, "line 2"));
    scratch_write(world->scratch, "t/.words", "-_*.o\t+_x  \r\n\f-_x -_y");
    enter_both(world);
    assert_true(out(world, "t/d/a.o"));
    assert_false(out(world, "t/d/x"));
    assert_true(out(world, "t/d/y"));
    filter_clear(world->filter);
    add(world, ":C"); /* .cvsignore, of each directory for itself, of patterns */
    add(world, "- last");
    scratch_write(world->scratch, "t/.cvsignore", "*.o");
    scratch_write(world->scratch, "t/d/.cvsignore", "a ! +_b #c");
    enter_both(world);
    assert_false(out(world, "t/d/a"));
    assert_false(out(world, "t/d/a.o"));
    assert_true(out(world, "t/d/+_b"));
    assert_true(out(world, "t/d/#c"));
    assert_true(out(world, "t/d/last"));
}

static void expect_refused(struct world *world, const char *text, const char *why)
{
    scratch_write(world->scratch, "t/.rules", text);
    assert_int_not_equal(enter(world, "t", 1), 0);
    if (strstr(world->why, why) == NULL) {
        fail_msg("'%s' is not: %s", why, world->why);
    }
}

static void a_file_that_cannot_be_had_whole_is_refused(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    add(world, ":s .rules");
    expect_refused(world, "- a\nx y\n", ".rules, line 2: a rule begins with");
    expect_refused(world, "P a\n", "the rule that merges its file says the side");
    expect_refused(world, ": .other\n", "cannot name another");
    expect_refused(world, ". /etc/passwd\n", "cannot name another");
    expect_refused(world, "-\n", "nothing behind");
    unlinkat(s->fd, "t/.rules", 0);
    assert_int_equal(symlinkat("/etc/passwd", s->fd, "t/.rules"), 0);
    assert_int_equal(enter(world, "t", 1), ELOOP);
    unlinkat(s->fd, "t/.rules", 0);
    assert_int_equal(mkfifoat(s->fd, "t/.rules", 0600), 0);
    assert_int_equal(enter(world, "t", 1), EINVAL);
    unlinkat(s->fd, "t/.rules", 0);
    assert_int_equal(mknodat(s->fd, "t/.rules", S_IFSOCK | 0600, 0), 0);
    assert_int_equal(enter(world, "t", 1), EINVAL); /* not what opening it says */
    unlinkat(s->fd, "t/.rules", 0);
    scratch_directory(s, "t/.rules");
    assert_int_equal(enter(world, "t", 1), EINVAL);
    unlinkat(s->fd, "t/.rules", AT_REMOVEDIR);
    int fd = openat(s->fd, "t/.rules", O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "- a\n- b\0\n", 9), 9);
    assert_int_equal(enter(world, "t", 1), EINVAL);
    assert_int_equal(ftruncate(fd, SCOPE_LENGTH_MAX + 1), 0);
    assert_int_equal(enter(world, "t", 1), E2BIG);
    close(fd);
}

static int leased;

static void give_back(int number)
{
    (void)number;
    fcntl(leased, F_SETLEASE, F_UNLCK);
}

static void a_lease_is_waited_for(void **state)
{
    struct world *world = *state;
    add(world, ": .rules");
    scratch_write(world->scratch, "t/.rules", "- a\n");
    leased = openat(world->scratch->fd, "t/.rules", O_RDWR);
    signal(SIGIO, give_back);
    if (fcntl(leased, F_SETLEASE, F_WRLCK) != 0) {
        print_message("no leases here\n");
    }
    assert_int_equal(enter(world, "t", 1), 0);
    assert_true(out(world, "t/a"));
    signal(SIGIO, SIG_DFL);
    close(leased);
}

/* One file may have as many as there can be, but no more on the whole way. */
static void rules_are_bounded_on_the_whole_way(void **state)
{
    struct world *world = *state;
    static char text[SCOPE_LENGTH_MAX];
    char *at = text;
    add(world, ": .rules");
    for (unsigned i = 0; i < FILTER_RULES_MAX; i++) {
        at = stpcpy(at, "- x\n");
    }
    scratch_write(world->scratch, "t/.rules", text);
    scratch_write(world->scratch, "t/d/.rules", "- one\n");
    assert_int_equal(enter(world, "t", 1), 0);
    assert_int_equal(enter(world, "t/d", 2), EINVAL);
    assert_non_null(strstr(world->why, "too many rules"));
    memset(text, '#', sizeof(text) - 1); /* what says nothing is read, too */
    scratch_write(world->scratch, "t/d/.rules", text);
    assert_int_equal(enter(world, "t/d", 2), E2BIG);
    memset(text, '[', sizeof(text) - 1);
    for (size_t i = 0; i + 4000 < sizeof(text); i += 4000) {
        memcpy(text + i, "\n- ", 3);
    }
    scratch_write(world->scratch, "t/.rules", text);
    filter_scope_free_up(world->scope, NULL);
    world->scope = NULL;
    assert_int_equal(enter(world, "t", 1), EINVAL);
    assert_non_null(strstr(world->why, "too many rules"));
    for (unsigned i = 0; i < FILTER_MERGES_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), ".%u", i);
        bool added = filter_add(world->filter, RULE_MERGES, (struct span){name, strlen(name)});
        assert_int_equal(added, i < FILTER_MERGES_MAX - 1); /* there is one already */
    }
}

struct expected {
    const char *name;
    bool out;
};

/* In the directory t/d, with the rules above it, whose paths begin with its name, "d/a", or do not,
 * "a". */
static void expect_inside(struct world *world, int root, int directory,
                          const struct expected *cases, unsigned count)
{
    for (unsigned named = 0; named < 2; named++) {
        const char *prefix = named == 1 ? "d/" : "";
        assert_int_equal(filter_scope_read_outside(world->filter, root, directory, named == 1,
                                                   &world->scope, world->why),
                         0);
        assert_int_equal(enter(world, "t/d", named), 0);
        for (unsigned i = 0; i < count; i++) {
            char path[32];
            snprintf(path, sizeof(path), "%s%s", prefix, cases[i].name);
            assert_int_equal(out(world, path), cases[i].out);
        }
        filter_scope_free_up(world->scope, NULL);
        world->scope = NULL;
    }
}

/* With a slash behind its kind a rule is held against the path from the root on, as in rsync. */
static void some_rules_know_where_the_tree_is(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    int root = openat(s->fd, "t", O_PATH | O_DIRECTORY);
    int fd = openat(s->fd, "t/d", O_PATH | O_DIRECTORY);
    add(world, "-/ /d/a");
    add(world, "-/ d/x/b");
    add(world, "-/ /a");
    add(world, "-/ *.o");
    add(world, ": .rules");
    scratch_write(s, "t/d/.rules", "-/ /d/c\n-/ /e\n- /f\n");
    assert_true(filter_is_of_place(world->filter));
    static const struct expected cases[] = {
        {"a", true}, {"x/a", false}, {"x/b", true}, {"b", false}, {"x.o", true},
        {"c", true}, {"x/c", false}, {"e", false},  {"f", true},  {"d/a", false}};
    expect_inside(world, root, fd, cases, sizeof(cases) / sizeof(cases[0]));
    close(fd);
    close(root);
}

/* -0 is for these files, too. */
static void lines_may_end_with_zeros(void **state)
{
    struct world *world = *state;
    add(world, ": .rules");
    filter_end_with_zeros(world->filter);
    int fd = openat(world->scratch->fd, "t/.rules", O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "- a\n\0# b\0- c", 13), 13);
    close(fd);
    assert_int_equal(enter(world, "t", 1), 0);
    assert_true(out(world, "t/a\n") && out(world, "t/c"));
    assert_false(out(world, "t/a") || out(world, "t/b"));
}

/* Above the transfer: files whose names begin with a slash, down from the root that is given. */
static void directories_above_are_looked_at(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    int root = openat(s->fd, "t", O_PATH | O_DIRECTORY);
    int fd = openat(s->fd, "t/d", O_PATH | O_DIRECTORY);
    add(world, ": /.rules");
    add(world, ": .below");
    scratch_write(s, ".rules", "- everything\n");
    scratch_write(s, "t/.rules", "- /d/a\n- b\n");
    scratch_write(s, "t/.below", "- c\n");
    static const struct expected cases[] = {
        {"a", true}, {"b", true}, {"c", false}, {"everything", false}, {"x/a", false}};
    expect_inside(world, root, fd, cases, sizeof(cases) / sizeof(cases[0]));
    assert_int_equal(
        filter_scope_read_outside(world->filter, root, root, true, &world->scope, world->why), 0);
    assert_ptr_equal(filter_scope_outermost(world->scope), world->scope); /* the root itself */
    filter_scope_free_up(world->scope, NULL);
    world->scope = NULL;
    assert_int_equal(
        filter_scope_read_outside(world->filter, fd, root, true, &world->scope, world->why), EXDEV);
    assert_null(world->scope);
    assert_int_equal(
        filter_scope_read_outside(world->filter, s->fd, fd, true, &world->scope, world->why), 0);
    assert_true(out(world, "d/everything") && out(world, "d/b") && !out(world, "d/c"));
    filter_scope_free_up(world->scope, NULL);
    world->scope = NULL;
    assert_int_equal(
        filter_scope_read_outside(world->filter, AT_FDCWD, fd, true, &world->scope, world->why), 0);
    assert_true(out(world, "d/everything"));
    scratch_write(s, "t/.rules", "nothing\n");
    struct filter_scope *scope = NULL;
    assert_int_equal(filter_scope_read_outside(world->filter, root, fd, true, &scope, world->why),
                     EINVAL);
    assert_null(scope);
    close(fd);
    close(root);
}

/* The system names no path that is too long: what the rules above say is not known. */
static void a_directory_without_a_path_is_refused(void **state)
{
    struct world *world = *state;
    char name[NAME_MAX + 1];
    int root = openat(world->scratch->fd, "t", O_PATH | O_DIRECTORY);
    int fds[PATH_MAX / NAME_MAX + 2];
    unsigned count = sizeof(fds) / sizeof(fds[0]);
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = 0;
    fds[0] = dup(root);
    for (unsigned i = 1; i < count; i++) {
        assert_int_equal(mkdirat(fds[i - 1], name, 0700), 0);
        fds[i] = openat(fds[i - 1], name, O_PATH | O_DIRECTORY);
        assert_true(fds[i] >= 0);
    }
    int last = fds[count - 1];
    add(world, ": .below");
    for (unsigned i = 0; i < 2; i++) { /* first nobody looks above */
        int error =
            filter_scope_read_outside(world->filter, root, last, true, &world->scope, world->why);
        assert_int_equal(error, i == 0 ? 0 : ENOENT);
        error = filter_scope_read_outside(world->filter, AT_FDCWD, last, true, &world->scope,
                                          world->why);
        assert_int_equal(error, i == 0 ? 0 : ENOENT);
        error =
            filter_scope_read_outside(world->filter, last, root, true, &world->scope, world->why);
        assert_int_equal(error, i == 0 ? 0 : ENOENT);
        assert_null(world->scope);
        add(world, ": /.rules");
    }
    for (unsigned i = count; i-- > 0;) {
        close(fds[i]);
        assert_true(i == 0 || unlinkat(fds[i - 1], name, AT_REMOVEDIR) == 0);
    }
    close(root);
}

/* Any bytes are rules or are refused. */
static void any_bytes_are_survived(void **state)
{
    struct world *world = *state;
    static const char letters[] = "-+HSPR.:!ensrp,_ \n\r#;*?[]\\/ab\xff";
    uint32_t random = 1;
    unsigned taken = 0;
    add(world, ": .rules");
    for (unsigned i = 0; i < 800; i++) {
        char text[64];
        size_t length = 0;
        for (; length < i % 60; length++) {
            random = random * 1103515245u + 12345;
            text[length] = letters[(random >> 16) % (sizeof(letters) - 1)];
        }
        text[length] = 0;
        scratch_write(world->scratch, "t/.rules", text);
        if (enter(world, "t", 1) == 0) {
            taken++;
            out(world, "t/a/b");
            filter_scope_free_up(world->scope, NULL);
            world->scope = NULL;
        }
    }
    assert_true(taken > 10 && taken < 790);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(the_nearest_file_is_asked_first),
        T(one_of_its_own_is_not_handed_down),
        T(a_slash_is_the_directory_of_the_file),
        T(lines_may_be_patterns),
        T(and_words_lines),
        T(a_file_that_cannot_be_had_whole_is_refused),
        T(a_lease_is_waited_for),
        T(rules_are_bounded_on_the_whole_way),
        T(some_rules_know_where_the_tree_is),
        T(lines_may_end_with_zeros),
        T(directories_above_are_looked_at),
        T(a_directory_without_a_path_is_refused),
        T(any_bytes_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
