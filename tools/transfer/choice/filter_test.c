/* Patterns, with what rsync says of each; test/fidelity.py asks rsync itself about random ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/transfer/choice/filter.h"
#include "tools/transfer/choice/pattern.h"

static bool add(struct filter *filter, unsigned bits, const char *pattern)
{
    return filter_add(filter, bits, (struct span){pattern, strlen(pattern)});
}

static bool excludes(const char *pattern, const char *path, bool is_directory)
{
    struct filter *filter = filter_create();
    assert_true(add(filter, false, pattern));
    bool result = filter_excludes(filter, NULL, path, is_directory);
    filter_destroy(filter);
    return result;
}

static const struct {
    const char *pattern, *path;
    bool is_directory, matches;
} cases[] = {
    {"f", "f", false, true},
    {"f", "a/b/f", false, true},
    {"f", "a/f/b", false, false}, /* "a/f" is, and so nobody asks */
    {"f", "ff", false, false},
    {"/f", "f", false, true},
    {"/f", "a/f", false, false},
    {"d/", "d", true, true},
    {"d/", "d", false, false},
    {"a/f", "a/f", false, true},
    {"a/f", "x/a/f", false, true},
    {"a/f", "xa/f", false, false},
    {"/a/f", "x/a/f", false, false},
    {"*.o", "a/b.o", false, true},
    {"*.o", "a/.o", false, true},
    {"*", "a/b", false, true},
    {"a*", "ab/c", false, false},
    {"/a*", "ab/c", false, false},
    {"a/*", "a/b", false, true},
    {"a/*", "a/b/c", false, false},
    {"a/*/c", "x/a/b/c", false, true},
    {"?", "a/bb", false, false},
    {"a?b", "a/b", false, false},
    {"**", "a/b", false, true},
    {"a**b", "a/x/b", false, true},
    {"a**b", "x/a/x/b", false, true},
    {"/a**b", "x/a/x/b", false, false},
    {"a/**c", "xa/b/c", false, false},
    {"a/**c", "xa/a/b/c", false, true},
    {"a/**c", "a/b/a/c/d", false, false},
    {"a/***", "x/a", true, true},
    {"a/***", "x/a", false, false},
    {"**/b", "b", false, true},
    {"**/b", "a/b", false, true},
    {"**b", "a/xb", false, true},
    {"a/**", "a", true, false},
    {"a/**", "a/b/c", false, true},
    {"a/***", "a", true, true},
    {"a/***", "a", false, false},
    {"a/***", "a/b/c", false, true},
    {"/a/***", "x/a", true, false},
    {"[a-c]", "b", false, true},
    {"[a-c]", "d", false, false},
    {"[!a-c]", "d", false, true},
    {"[^a-c]", "d", false, true},
    {"[]x]", "]", false, true},
    {"[a\\]]", "]", false, true},
    {"[[:digit:]_]*", "7up", false, true},
    {"[[:digit:]_]*", "up", false, false},
    {"a[/]b", "a/b", false, false},
    {"[a", "[a", false, false}, /* no end, no match */
    {"\\*", "\\*", false, false},
    {"\\*", "*", false, true},
    {"a\\b", "a\\b", false, true}, /* no wildcard, so no quoting either */
    {"a\\b*", "ab", false, true},
    {"\xff\n*", "\xff\n", false, true},
    {"[[:]x", ":x", false, true}, /* the name of a kind has no end: two bytes */
    {"[[:]x", "[x", false, true},
    {"[[:a]:]", "a:]", false, true},
    {"[[:word:]a]", "a", false, false}, /* no kind */
    {"[![:word:]]", "a", false, false},
    {"[[::]a]", "a", false, false},
    {"[z-a]", "z", false, true}, /* its first byte alone */
    {"[z-a]", "m", false, false},
    {"[z-a]", "a", false, false},
};

static void patterns_match_as_in_rsync(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (excludes(cases[i].pattern, cases[i].path, cases[i].is_directory) != cases[i].matches) {
            fail_msg("%s and %s", cases[i].pattern, cases[i].path);
        }
    }
}

static void the_first_rule_that_matches_decides(void **state)
{
    struct filter *filter = filter_create();
    assert_false(filter_excludes(filter, NULL, "a", false));
    assert_true(add(filter, true, "*/"));
    assert_true(add(filter, true, "*.c"));
    assert_true(add(filter, false, "*"));
    assert_false(filter_excludes(filter, NULL, "d/e", true));
    assert_false(filter_excludes(filter, NULL, "d/a.c", false));
    assert_true(filter_excludes(filter, NULL, "d/a.o", false));
    filter_clear(filter);
    assert_false(filter_excludes(filter, NULL, "d/a.o", false));
    assert_true(add(filter, false, "d"));
    assert_true(filter_cuts_off(filter, "a/d/b/c", false, 0));
    assert_false(filter_cuts_off(filter, "a/b/c", false, 0));
    assert_true(filter_cuts_off(filter, "a/d/b/c", false, 1));
    assert_false(filter_cuts_off(filter, "a/d/b/c", false, 3));
    assert_false(filter_excludes(filter, NULL, "a/d/b/c", false));
    filter_destroy(filter);
}

static void a_rule_may_be_for_one_side(void **state)
{
    const struct filter_loss loss = {0}, all = {.delete_excluded = true}, inside = {.inside = true};
    struct filter *filter = filter_create();
    assert_true(add(filter, RULE_HIDES, "hidden"));
    assert_true(add(filter, RULE_PROTECTS, "kept"));
    assert_true(add(filter, RULE_PERISHABLE, "perishable"));
    assert_true(filter_excludes(filter, NULL, "hidden", false));
    assert_false(filter_protects(filter, NULL, "hidden", false, loss));
    assert_false(filter_excludes(filter, NULL, "kept", false));
    assert_true(filter_protects(filter, NULL, "kept", false, loss));
    assert_true(filter_protects(filter, NULL, "kept", false, all));
    assert_true(filter_protects_some(filter, true));
    assert_true(filter_excludes(filter, NULL, "d/perishable", false));
    assert_true(filter_protects(filter, NULL, "d/perishable", false, loss));
    assert_false(filter_protects(filter, NULL, "d/perishable", false, inside));
    assert_false(filter_protects(filter, NULL, "d/perishable", false, all));
    filter_clear(filter);
    assert_true(add(filter, RULE_NEGATED, "*/"));
    assert_true(filter_excludes(filter, NULL, "d", false));
    assert_false(filter_excludes(filter, NULL, "d", true));
    assert_true(filter_protects_some(filter, false));
    assert_false(filter_protects_some(filter, true));
    filter_destroy(filter);
}

/* No rule can be held against it, and so nobody knows that it may go. */
static void what_has_too_long_a_path_stays(void **state)
{
    const struct filter_loss loss = {0};
    struct filter *filter = filter_create();
    char path[PATH_LENGTH_MAX + 2] = "";
    assert_true(add(filter, 0, "*.o"));
    memset(path, 'x', PATH_LENGTH_MAX);
    assert_false(filter_protects(filter, NULL, path, false, loss));
    path[PATH_LENGTH_MAX] = 'x';
    assert_true(filter_protects(filter, NULL, path, false, loss));
    filter_destroy(filter);
}

static void rules_are_bounded(void **state)
{
    char longest[PATH_LENGTH_MAX + 2];
    struct filter *filter = filter_create();
    memset(longest, 'x', sizeof(longest));
    assert_false(filter_add(filter, false, (struct span){"", 0}));
    assert_false(filter_add(filter, false, (struct span){"a\0b", 3}));
    assert_false(filter_add(filter, false, (struct span){longest, PATH_LENGTH_MAX + 1}));
    unsigned count = 0;
    while (filter_add(filter, false, (struct span){longest, PATH_LENGTH_MAX})) {
        count++;
    }
    assert_int_equal(count, FILTER_WEIGHT_MAX / PATH_LENGTH_MAX);
    assert_false(filter_has_room(filter, (struct span){longest, PATH_LENGTH_MAX}));
    filter_clear(filter);
    for (count = 0; add(filter, 0, "[ab]*.[ch]");) {
        count++;
    }
    assert_int_equal(count, FILTER_WEIGHT_MAX / (10 + 2 * (CLASS_WEIGHT - 1)));
    filter_clear(filter);
    for (count = 0; add(filter, 0, "x");) {
        count++;
    }
    assert_int_equal(count, FILTER_RULES_MAX);
    filter_destroy(filter);
}

/* The kind of pattern that takes others until the end of the world. */
static void no_pattern_takes_long(void **state)
{
    char pattern[PATH_LENGTH_MAX + 1], path[PATH_LENGTH_MAX + 1];
    for (size_t i = 0; i + 4 < sizeof(pattern); i += 4) {
        memcpy(pattern + i, i % 8 == 0 ? "**a*" : "[a]*", 4);
    }
    pattern[sizeof(pattern) - 4] = 0;
    memset(path, 'a', sizeof(path));
    path[200] = '/';
    path[sizeof(path) - 1] = 0;
    path[sizeof(path) - 2] = 'b';
    clock_t began = clock();
    excludes(pattern, path, false);
    assert_true(clock() - began < 5 * CLOCKS_PER_SEC);
}

/* Nor many, nor a path of many components, behind each of which a pattern may begin: work for the
 * path's length times the patterns', and not once more for each component. */
static void no_number_of_components_takes_long(void **state)
{
    char pattern[PATH_LENGTH_MAX + 1] = "", path[PATH_LENGTH_MAX + 1] = "";
    struct filter *filter = filter_create();
    for (size_t i = 0; i + 4 < sizeof(pattern); i += 3) {
        memcpy(pattern + i, "a**", 3);
    }
    pattern[strlen(pattern) - 1] = 'b';
    for (size_t i = 0; i < PATH_LENGTH_MAX; i++) {
        path[i] = i % 2 == 0 ? 'a' : '/';
    }
    while (add(filter, 0, pattern)) {
    }
    assert_true(filter_count(filter) >= FILTER_WEIGHT_MAX / sizeof(pattern));
    assert_false(filter_excludes(filter, NULL, path, false));
    assert_false(filter_cuts_off(filter, path, false, 0)); /* with all that lead there */
    filter_destroy(filter);
}

/* As if each were asked for. */
static bool cuts_off_one_by_one(const struct filter *filter, const char *path, bool is_directory)
{
    char prefix[64];
    for (size_t i = 0; path[i] != 0; i++) {
        snprintf(prefix, sizeof(prefix), "%.*s", (int)i, path);
        if (path[i] == '/' && filter_excludes(filter, NULL, prefix, true)) {
            return true;
        }
    }
    return filter_excludes(filter, NULL, path, is_directory);
}

static unsigned choose(unsigned *seed, unsigned count)
{
    *seed = *seed * 1103515245 + 12345;
    return (*seed >> 16) % count;
}

/* Of random pieces, that often match. */
static void compose(unsigned *seed, const char *const *pieces, unsigned count, char text[64])
{
    text[0] = 0;
    for (unsigned left = 1 + choose(seed, 6); left > 0; left--) {
        strcat(text, pieces[choose(seed, count)]);
    }
}

static void a_path_is_cut_off_where_a_directory_above_it_is_left_out(void **state)
{
    static const char *const parts[] = {"a", "b", "/",   "*",    "**",    "?",   "[ab]",
                                        "/", "a", "***", "[!a]", "[a/]b", "\\*", "[/"};
    static const char *const names[] = {"a", "b", "ab", "a/", "b/", "ab/"};
    unsigned seed = 1, cut_off = 0;
    for (unsigned i = 0; i < 20000; i++) {
        struct filter *filter = filter_create();
        char pattern[64], path[64];
        for (unsigned rules = 1 + choose(&seed, 3); rules > 0; rules--) {
            static const unsigned bits[] = {0, 0, 0, RULE_INCLUDE, RULE_NEGATED, RULE_PROTECTS};
            compose(&seed, parts, sizeof(parts) / sizeof(parts[0]), pattern);
            add(filter, bits[choose(&seed, 6)], pattern);
        }
        compose(&seed, names, sizeof(names) / sizeof(names[0]), path);
        strcat(path, "a");
        bool is_directory = choose(&seed, 2) == 0;
        bool found = filter_cuts_off(filter, path, is_directory, 0);
        if (found != cuts_off_one_by_one(filter, path, is_directory)) {
            fail_msg("'%s', the last rule '%s'", path, pattern);
        }
        cut_off += found;
        filter_destroy(filter);
    }
    assert_in_range(cut_off, 4000, 16000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_as_in_rsync),
        cmocka_unit_test(the_first_rule_that_matches_decides),
        cmocka_unit_test(a_rule_may_be_for_one_side),
        cmocka_unit_test(what_has_too_long_a_path_stays),
        cmocka_unit_test(rules_are_bounded),
        cmocka_unit_test(no_pattern_takes_long),
        cmocka_unit_test(no_number_of_components_takes_long),
        cmocka_unit_test(a_path_is_cut_off_where_a_directory_above_it_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
