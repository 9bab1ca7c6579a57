#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/transfer/choice/filter.h"
#include "tools/transfer/choice/walk.h"
#include "tools/transfer/disk/scratch.h"
#include "tools/transfer/wire/listing.h"
#include "tools/transfer/wire/protocol.h"

struct dirent *__real_readdir64(DIR *stream);
struct dirent *__wrap_readdir64(DIR *stream);
int __real_fstatat64(int directory, const char *name, struct stat *status, int flags);
int __wrap_fstatat64(int directory, const char *name, struct stat *status, int flags);

static size_t long_length; /* as long is the name of "long", as some file systems have them */

struct dirent *__wrap_readdir64(DIR *stream)
{
    static union {
        struct dirent entry;
        char bytes[sizeof(struct dirent) + NAME_LENGTH_MAX];
    } other;
    struct dirent *entry = __real_readdir64(stream);
    if (entry == NULL || long_length == 0 || strcmp(entry->d_name, "long") != 0) {
        return entry;
    }
    char *name = other.bytes + offsetof(struct dirent, d_name);
    other.entry.d_type = entry->d_type;
    memset(name, 'x', long_length);
    name[long_length] = 0;
    return &other.entry;
}

int __wrap_fstatat64(int directory, const char *name, struct stat *status, int flags)
{
    bool is_long = long_length > 0 && strlen(name) == long_length;
    return __real_fstatat64(directory, is_long ? "long" : name, status, flags);
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

/* The walk as text, one step a line: "+d path", "f path", "-", "l path>target", "! path errno". */
static void expect_steps(const struct walk_options *options, const char *source,
                         const char *expected)
{
    struct walk *walk = walk_create(options, &source, 1);
    char trace[4096] = "";
    struct walk_step step;
    do {
        char line[600] = "";
        walk_next(walk, &step);
        switch (step.kind) {
        case WALK_FILE:
            snprintf(line, sizeof(line), "f %s\n", step.path);
            break;
        case WALK_DIRECTORY:
            snprintf(line, sizeof(line), "+d %s\n", step.path);
            break;
        case WALK_LEAVE:
            snprintf(line, sizeof(line), "-\n");
            break;
        case WALK_SPECIAL:
            break;
        case WALK_SYMLINK:
            snprintf(line, sizeof(line), "l %s>%s\n", step.path, step.target);
            break;
        case WALK_FAILED:
            snprintf(line, sizeof(line), "! %s %d\n", step.path, step.error);
            break;
        case WALK_EXCLUDED:
        case WALK_END:
            break;
        }
        strcat(trace, line);
    } while (step.kind != WALK_END);
    walk_destroy(walk);
    assert_string_equal(trace, expected);
}

static void expect_walk(const struct scratch *scratch, bool confined, bool recursive,
                        const char *source, const char *expected)
{
    const struct walk_options options = {
        .root = scratch->fd, .confined = confined, .recursive = recursive};
    expect_steps(&options, source, expected);
}

static char *failed(const char *path, int error)
{
    static char text[600];
    snprintf(text, sizeof(text), "! %s %d\n", path, error);
    return text;
}

static void a_tree_is_walked_to_its_leaves(void **state)
{
    const struct scratch *s = *state;
    scratch_directory(s, "t");
    scratch_directory(s, "t/d");
    scratch_write(s, "t/d/f", "x");
    symlinkat("/etc", s->fd, "t/d/f2");
    unlinkat(s->fd, "t/d/f2", 0);
    expect_walk(s, false, true, "t", "+d t\n+d t/d\nf t/d/f\n-\n-\n");
    expect_walk(s, true, true, "/t/", "+d /t\n+d /t/d\nf /t/d/f\n-\n-\n");
    expect_walk(s, true, true, "/", "+d /\n+d /t\n+d /t/d\nf /t/d/f\n-\n-\n-\n");
}

static void directories_want_recursion(void **state)
{
    scratch_directory(*state, "t");
    expect_walk(*state, true, false, "/t", failed("/t", WALK_ERROR_NOT_RECURSIVE));
}

static void links_in_a_tree_are_not_followed(void **state)
{
    const struct scratch *s = *state;
    scratch_directory(s, "t");
    symlinkat("/etc", s->fd, "t/l");
    expect_walk(s, true, true, "/t", "+d /t\nl /t/l>/etc\n-\n");
}

static void a_path_out_of_the_root_is_refused(void **state)
{
    const struct scratch *s = *state;
    symlinkat("/etc/passwd", s->fd, "out");
    symlinkat("..", s->fd, "up");
    scratch_write(s, "f", "x");
    symlinkat("f", s->fd, "in");
    expect_walk(s, true, false, "/out", failed("/out", EXDEV));
    expect_walk(s, true, false, "/up/x", failed("/up/x", EXDEV));
    expect_walk(s, true, false, "/../etc/passwd", failed("/../etc/passwd", WALK_ERROR_PARENT));
    expect_walk(s, true, false, "/a/../f", failed("/a/../f", WALK_ERROR_PARENT));
    expect_walk(s, true, false, "/in", "f /in\n");
    expect_walk(s, true, true, "/out", "l /out>/etc/passwd\n");
    expect_walk(s, false, false, "out", "f out\n"); /* the user's own path is followed */
}

static void what_is_not_there_is_one_failure(void **state)
{
    expect_walk(*state, true, true, "/nope", failed("/nope", ENOENT));
}

/* Those of NTFS and CIFS are counted in characters. The first 255 bytes would be another name. */
static void a_name_that_no_entry_holds_is_a_failure(void **state)
{
    const struct scratch *s = *state;
    char name[NAME_LENGTH_MAX + 2] = "", text[600];
    scratch_directory(s, "t");
    scratch_write(s, "t/long", "x");
    memset(name, 'x', NAME_LENGTH_MAX + 1);
    long_length = NAME_LENGTH_MAX + 1;
    snprintf(text, sizeof(text), "+d t\n! t/%s %d\n-\n", name, ENAMETOOLONG);
    expect_walk(s, false, true, "t", text);
    struct filter *filter = filter_create();
    assert_true(filter_add(filter, 0, (struct span){"xx*", 3}));
    const struct walk_options options = {.root = s->fd, .recursive = true, .filter = filter};
    expect_steps(&options, "t", "+d t\n-\n");
    filter_destroy(filter);
    name[--long_length] = 0;
    snprintf(text, sizeof(text), "+d t\nf t/%s\n-\n", name);
    expect_walk(s, false, true, "t", text);
    long_length = 0;
}

static void special_files_are_left_out(void **state)
{
    const struct scratch *s = *state;
    mkfifoat(s->fd, "fifo", 0600);
    expect_walk(s, true, false, "/fifo", failed("/fifo", WALK_ERROR_SPECIAL_SOURCE));
    scratch_directory(s, "t");
    mkfifoat(s->fd, "t/fifo", 0600);
    char expected[700];
    snprintf(expected, sizeof(expected), "+d /t\n%s-\n", failed("/t/fifo", WALK_ERROR_SPECIAL));
    expect_walk(s, true, true, "/t", expected);
}

static void what_took_a_files_place_is_not_opened(void **state)
{
    const struct scratch *s = *state;
    const char *source = "f";
    const struct walk_options options = {.root = s->fd, .confined = true, .recursive = false};
    struct walk *walk = walk_create(&options, &source, 1);
    struct walk_step step;
    struct stat status;
    char path[128], event[512];
    scratch_write(s, "f", "x");
    walk_next(walk, &step);
    assert_int_equal(step.kind, WALK_FILE);
    unlinkat(s->fd, "f", 0);
    mkfifoat(s->fd, "f", 0600);
    snprintf(path, sizeof(path), "%s/f", s->path);
    int watch = inotify_init1(IN_NONBLOCK);
    assert_true(inotify_add_watch(watch, path, IN_OPEN) >= 0);
    assert_int_equal(walk_open_file(walk, &step, &status), -ESTALE);
    assert_int_equal(read(watch, event, sizeof(event)), -1);
    assert_int_equal(errno, EAGAIN);
    close(watch);
    walk_destroy(walk);
}

/* Nor may anybody put something there that is opened before it is looked at. */
static void only_ours_is_opened_at_once(void **state)
{
    const struct scratch *s = *state;
    const char *source = "t";
    const struct walk_options options = {.root = s->fd, .confined = true, .recursive = true};
    static const mode_t modes[] = {0755, 0775, 0757, 01777};
    struct walk_step step;
    scratch_directory(s, "t");
    scratch_write(s, "t/f", "x");
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        assert_int_equal(fchmodat(s->fd, "t", modes[i], 0), 0);
        struct walk *walk = walk_create(&options, &source, 1);
        walk_next(walk, &step);
        walk_next(walk, &step);
        assert_int_equal(step.kind, WALK_FILE);
        int fd = walk_open_at_once(walk, &step);
        assert_int_equal(fd < 0 ? fd : 0, i == 0 ? 0 : -ESTALE);
        if (fd >= 0) {
            close(fd);
        }
        walk_destroy(walk);
    }
}

static void files_under_way_are_left_out(void **state)
{
    const struct scratch *s = *state;
    scratch_directory(s, "t");
    scratch_write(s, "t/.weir-0123456789abcdef", "half");
    char expected[700];
    snprintf(expected, sizeof(expected), "+d /t\n%s-\n",
             failed("/t/.weir-0123456789abcdef", WALK_ERROR_TEMPORARY));
    expect_walk(s, true, true, "/t", expected);
}

static void pruned_directories_are_still_left(void **state)
{
    const struct scratch *s = *state;
    const char *source = "t";
    struct walk_step step;
    scratch_directory(s, "t");
    scratch_directory(s, "t/d");
    scratch_write(s, "t/d/f", "x");
    const struct walk_options options = {.root = s->fd, .confined = true, .recursive = true};
    struct walk *walk = walk_create(&options, &source, 1);
    walk_next(walk, &step);
    struct walk_folder *top = step.inside;
    walk_next(walk, &step);
    assert_int_equal(step.kind, WALK_DIRECTORY);
    walk_prune(top);
    for (int i = 0; i < 2; i++) {
        walk_next(walk, &step);
        assert_int_equal(step.kind, WALK_LEAVE);
        assert_false(walk_is_unwanted(&step));
    }
    walk_next(walk, &step);
    assert_int_equal(step.kind, WALK_END);
    walk_destroy(walk);
}

/* Steps that were kept stay good when the walk has gone on, and know whether they are wanted. */
static void steps_are_kept(void **state)
{
    const struct scratch *s = *state;
    const char *source = "t";
    struct walk_step step, steps[5];
    struct stat status;
    scratch_directory(s, "t");
    scratch_directory(s, "t/d");
    scratch_write(s, "t/d/f", "x");
    const struct walk_options options = {.root = s->fd, .confined = true, .recursive = true};
    struct walk *walk = walk_create(&options, &source, 1);
    for (int i = 0; i < 5; i++) {
        walk_next(walk, &step);
        assert_true(walk_keep(&step, &steps[i]));
    }
    walk_next(walk, &step);
    assert_int_equal(step.kind, WALK_END);
    assert_int_equal(walk_folders(walk), 2);
    assert_string_equal(steps[2].path, "t/d/f");
    assert_string_equal(steps[2].relative, "t/d/f");
    assert_string_equal(steps[2].below, "d/f");
    int fd = walk_open_file(walk, &steps[2], &status);
    assert_true(fd >= 0);
    close(fd);
    assert_false(walk_is_unwanted(&steps[2]));
    walk_prune(steps[0].inside);
    assert_true(walk_is_unwanted(&steps[1])); /* and so its end does not come either */
    assert_true(walk_is_unwanted(&steps[2]));
    assert_true(walk_is_unwanted(&steps[3]));
    assert_false(walk_is_unwanted(&steps[4]));
    for (int i = 0; i < 5; i++) {
        walk_drop(&steps[i]);
    }
    assert_int_equal(walk_folders(walk), 0);
    walk_destroy(walk);
}

static void base_names(void **state)
{
    static const char *const cases[][2] = {{"a", "a"}, {"/a/b", "b"}, {"a/b//", ""},
                                           {"/", ""},  {".", ""},     {"a/..", ""},
                                           {"./", ""}, {"...", "..."}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[256];
        assert_true(walk_base_name(cases[i][0], name));
        assert_string_equal(name, cases[i][1]);
    }
    char longest[300];
    char name[256];
    memset(longest, 'x', sizeof(longest));
    longest[255] = 0;
    assert_true(walk_base_name(longest, name));
    longest[255] = 'x';
    longest[256] = 0;
    assert_false(walk_base_name(longest, name));
}

static void make_listed(const struct scratch *s)
{
    static const char *const folders[] = {"t", "t/a", "t/a/b", "t/a/b/c", "t/d"};
    static const char *const files[] = {"t/a/1", "t/a/b/2", "t/a/b/c/3", "t/d/4"};
    for (unsigned i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        scratch_directory(s, folders[i]);
    }
    for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        scratch_write(s, files[i], "");
    }
}

/* `paths` and what is left out end with NULL. */
static void expect_listed(const struct scratch *s, bool recursive, const char *const *paths,
                          const char *const *left_out, const char *expected)
{
    struct listing listing = {0};
    struct filter *filter = filter_create();
    struct walk_options options = {
        .root = s->fd, .recursive = recursive, .listing = &listing, .filter = filter};
    for (; *paths != NULL; paths++) {
        assert_true(listing_add_open(&listing, (struct span){*paths, strlen(*paths)}));
    }
    for (; *left_out != NULL; left_out++) {
        assert_true(filter_add(filter, RULE_HIDES, (struct span){*left_out, strlen(*left_out)}));
    }
    listing_sort(&listing);
    expect_steps(&options, "t/", expected);
    listing_clear(&listing);
    filter_destroy(filter);
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define NO_RULES  ((const char *const[]){NULL})

/* As for rsync. */
static void what_is_on_the_way_comes_with_what_it_leads_to(void **state)
{
    const struct scratch *s = *state;
    char text[200];
    make_listed(s);
    expect_listed(s, false, LIST("a/b/c/3", "d/4"), NO_RULES,
                  "+d t\n+d t/a\n+d t/a/b\n+d t/a/b/c\nf t/a/b/c/3\n-\n-\n-\n+d t/d\nf "
                  "t/d/4\n-\n-\n");
    expect_listed(s, false, LIST("a/b/c/3", "a/b/2", "d/4"), LIST("3", "4"),
                  "+d t\n+d t/a\n+d t/a/b\nf t/a/b/2\n-\n-\n-\n");
    expect_listed(s, false, LIST("a", "a/b/2"), LIST("a"),
                  "+d t\n+d t/a\n+d t/a/b\nf t/a/b/2\n-\n-\n-\n");
    expect_listed(s, true, LIST("a/b", "a/b/c/3"), LIST("c"),
                  "+d t\n+d t/a\n+d t/a/b\nf t/a/b/2\n+d t/a/b/c\nf t/a/b/c/3\n-\n-\n-\n-\n");
    snprintf(text, sizeof(text), "+d t\n! t/a/b/0 %d\n-\n", ENOENT);
    expect_listed(s, false, LIST("a/b/0"), NO_RULES, text);
}

/* As for -R: of one that is listed only what is listed below it. */
static void a_directory_that_is_refused_is_on_the_way(void **state)
{
    const struct scratch *s = *state;
    struct listing listing = {0};
    char text[200];
    const struct walk_options options = {.root = s->fd, .no_folders = true, .listing = &listing};
    make_listed(s);
    assert_true(listing_add(&listing, (struct span){"a", 1}) &&
                listing_add(&listing, (struct span){"a/b", 3}) &&
                listing_add(&listing, (struct span){"d", 1}) &&
                listing_add(&listing, (struct span){"d/4", 3}));
    listing_sort(&listing);
    snprintf(text, sizeof(text), "+d t\n! t/a/b %d\n+d t/d\nf t/d/4\n-\n-\n",
             WALK_ERROR_NOT_RECURSIVE);
    expect_steps(&options, "t/", text);
    listing_clear(&listing);
}

static void what_is_not_there_is_told_once(void **state)
{
    const struct scratch *s = *state;
    char text[200];
    make_listed(s);
    snprintf(text, sizeof(text), "+d t\n+d t/d\n! t/d/0 %d\n! t/d/4/5 %d\nf t/d/4\n-\n-\n", ENOENT,
             ENOTDIR);
    expect_listed(s, true, LIST("d", "d/0", "d/4/5"), NO_RULES, text);
    expect_listed(s, false, LIST("d/", "d/0", "d/4/5"), NO_RULES, text);
    snprintf(text, sizeof(text), "+d t\n+d t/d\nf t/d/4\n! t/d/4/5 %d\n-\n-\n", ENOTDIR);
    expect_listed(s, false, LIST("d/4", "d/4/5"), NO_RULES, text);
    snprintf(text, sizeof(text), "+d t\n+d t/a\n! t/a/b/0 %d\nf t/a/1\n-\n-\n", ENOENT);
    expect_listed(s, true, LIST("a", "a/b/0"), LIST("b"), text);
}

static void a_slash_is_for_one_level(void **state)
{
    const struct scratch *s = *state;
    make_listed(s);
    expect_listed(s, false, LIST("d"), NO_RULES, "+d t\n+d t/d\n-\n-\n");
    expect_listed(s, false, LIST("d/"), NO_RULES, "+d t\n+d t/d\nf t/d/4\n-\n-\n");
    expect_listed(s, false, LIST("d/", "d/4"), LIST("4"), "+d t\n+d t/d\n-\n-\n");
    expect_listed(s, false, LIST("a/b/."), NO_RULES,
                  "+d t\n+d t/a\n+d t/a/b\nf t/a/b/2\n+d t/a/b/c\n-\n-\n-\n-\n");
    expect_listed(s, false, LIST("d/", "/"), LIST("a"), "+d t\n+d t/d\nf t/d/4\n-\n-\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, make_scratch, remove_scratch)
        T(a_tree_is_walked_to_its_leaves),
        T(directories_want_recursion),
        T(links_in_a_tree_are_not_followed),
        T(a_path_out_of_the_root_is_refused),
        T(what_is_not_there_is_one_failure),
        T(a_name_that_no_entry_holds_is_a_failure),
        T(special_files_are_left_out),
        T(files_under_way_are_left_out),
        T(pruned_directories_are_still_left),
        T(what_is_on_the_way_comes_with_what_it_leads_to),
        T(a_directory_that_is_refused_is_on_the_way),
        T(what_is_not_there_is_told_once),
        T(a_slash_is_for_one_level),
        T(steps_are_kept),
        T(what_took_a_files_place_is_not_opened),
        T(only_ours_is_opened_at_once),
        cmocka_unit_test(base_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
