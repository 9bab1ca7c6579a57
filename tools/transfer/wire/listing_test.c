/* Lists of paths: what is in each directory, and what has to do with the list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "tools/transfer/wire/listing.h"

static bool add(struct listing *listing, const char *path)
{
    return listing_add(listing, (struct span){path, strlen(path)});
}

/* All of it as a text: "a" for one on the way, "a!" for one of the list, "(...)" what is below. */
static void print(const struct listing *listing, struct listing_part part, char *text)
{
    char name[256];
    struct listing_part below;
    bool itself;
    while (listing_next(listing, &part, name, &below, &itself)) {
        sprintf(text + strlen(text), "%s%s(", name, itself ? "!" : "");
        print(listing, below, text);
        strcat(text, ")");
    }
}

static void each_name_comes_once_with_what_is_below_it(void **state)
{
    struct listing listing = {0};
    static const char *const paths[] = {"b/y", "a/b/c", "a!",    "./a//b/d/", "/a-b",   "a/b",
                                        "b/x", "b/y/.", "a.b/z", "a/b/c",     "c/c/c/c"};
    char text[500] = "";
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        assert_true(add(&listing, paths[i]));
    }
    listing_sort(&listing);
    assert_int_equal(listing.count, 9);
    print(&listing, listing_all(&listing), text);
    assert_string_equal(text, "a(b!(c!()d!()))a!!()a-b!()a.b(z!())b(x!()y!())c(c(c(c!())))");
    listing_clear(&listing);
    print(&listing, listing_all(&listing), text);
}

static void the_source_itself_is_no_name_in_it(void **state)
{
    struct listing listing = {0};
    char text[100] = "";
    assert_true(add(&listing, "."));
    assert_true(add(&listing, "a"));
    listing_sort(&listing);
    assert_string_equal(listing.paths[0], "");
    print(&listing, listing_all(&listing), text);
    assert_string_equal(text, "a!()");
    assert_true(listing_meets(&listing, "x/y", true));
    assert_false(listing_meets(&listing, "x/y", false));
    listing_clear(&listing);
}

static bool add_open(struct listing *listing, const char *path)
{
    return listing_add_open(listing, (struct span){path, strlen(path)});
}

static bool opens(const struct listing *listing, const char *name)
{
    const struct listing_part all = listing_all(listing);
    const struct listing_part part = listing_find(listing, &all, name);
    return listing_opens(listing, &part);
}

static void a_slash_at_the_end_is_for_what_is_in_the_directory(void **state)
{
    static const struct {
        const char *path;
        bool held;
    } cases[] = {{"a", true},   {"a/x", true}, {"a/x/y", false}, {"b", true},     {"b/x", false},
                 {"c", true},   {"c/d", true}, {"c/x", true},    {"c/d/e", true}, {"c/d/x", false},
                 {"ab", false}, {"e", true},   {"e/x", true},    {"", false},     {"x", false}};
    struct listing listing = {0};
    char text[100] = "";
    assert_true(add_open(&listing, "c//d/e") && add_open(&listing, "./c/./") &&
                add_open(&listing, "a/.") && add_open(&listing, "b") && add(&listing, "b/") &&
                add_open(&listing, "e/") && add_open(&listing, "e"));
    listing_sort(&listing);
    print(&listing, listing_all(&listing), text);
    assert_string_equal(text, "a!()b!()c!(d(e!()))e!()");
    assert_true(opens(&listing, "a") && opens(&listing, "c") && opens(&listing, "e"));
    assert_false(opens(&listing, "b") || opens(&listing, "d"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (listing_holds(&listing, cases[i].path, false) != cases[i].held) {
            fail_msg("'%s'", cases[i].path);
        }
    }
    listing_clear(&listing);
}

/* "" is the source alone, "/" and "." are what is in it. */
static void the_source_itself_may_be_open(void **state)
{
    static const char *const open[] = {"/", ".", "./", "././"};
    for (unsigned i = 0; i <= sizeof(open) / sizeof(open[0]); i++) {
        struct listing listing = {0};
        char text[100] = "";
        assert_true(add_open(&listing, i > 0 ? open[i - 1] : ""));
        assert_true(listing_add_next(&listing, (struct span){"a/b", 3}));
        const struct listing_part all = listing_all(&listing);
        assert_int_equal(listing_opens(&listing, &all), i > 0);
        assert_true(listing_holds(&listing, "", false));
        assert_int_equal(listing_holds(&listing, "x", false), i > 0);
        assert_false(listing_holds(&listing, "a/x", false));
        assert_true(listing_goes_on(&listing, &all));
        print(&listing, all, text);
        assert_string_equal(text, "a(b!())");
        listing_clear(&listing);
    }
}

static void what_leads_to_the_list_is_above_it(void **state)
{
    struct listing listing = {0};
    assert_true(add_open(&listing, "a/") && add(&listing, "b/c/d") && add(&listing, "b-/x") &&
                add(&listing, "b/c"));
    listing_sort(&listing);
    assert_true(listing_leads(&listing, "") && listing_leads(&listing, "b") &&
                listing_leads(&listing, "b/c") && listing_leads(&listing, "b-"));
    assert_false(listing_leads(&listing, "a") || listing_leads(&listing, "b/c/d") ||
                 listing_leads(&listing, "x"));
    listing_clear(&listing);
    assert_false(listing_leads(&listing, ""));
}

static void what_the_list_has_to_do_with_a_path(void **state)
{
    static const struct {
        const char *path;
        bool recursive, is_held, leads;
        unsigned on_the_way, listed;
    } cases[] = {{"", true, false, true, 0, 0},          {"a", true, false, true, 1, 0},
                 {"a/b", true, true, true, 1, 1},        {"a/b/x/y", true, true, false, 1, 1},
                 {"a/b/c", true, true, true, 1, 1},      {"a/b/c/d", true, true, false, 1, 2},
                 {"a/b/c/d/e", true, true, false, 1, 2}, {"a/x/y", true, false, false, 3, 0},
                 {"a/b/x", false, false, false, 1, 1},   {"a/b/c/d", false, true, false, 1, 2},
                 {"z", true, false, false, 1, 0},        {"/a", true, false, false, 2, 0}};
    struct listing listing = {0};
    assert_true(add(&listing, "a/b") && add(&listing, "a/b/c/d"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct listing_trace trace =
            listing_trace(&listing, cases[i].path, cases[i].recursive);
        if (trace.is_held != cases[i].is_held || trace.leads != cases[i].leads ||
            trace.on_the_way != cases[i].on_the_way || trace.listed != cases[i].listed) {
            fail_msg("'%s': %d %d %u %u", cases[i].path, trace.is_held, trace.leads,
                     trace.on_the_way, trace.listed);
        }
    }
    listing_clear(&listing);
}

/* What is looked up for each directory that a path leads through is not looked up from the begin.
 */
static void a_deep_path_is_gone_down_once(void **state)
{
    struct listing listing = {0};
    char path[PATH_LENGTH_MAX + 1];
    for (size_t i = 0; i < PATH_LENGTH_MAX; i++) {
        path[i] = i % 2 == 0 ? 'a' : '/';
    }
    path[PATH_LENGTH_MAX] = 0;
    assert_true(add(&listing, path));
    for (unsigned i = 0; i < 1000; i++) { /* in seconds each, it had been */
        const struct listing_trace trace = listing_trace(&listing, path, true);
        assert_true(trace.is_held && trace.listed == 1);
        assert_int_equal(trace.on_the_way, PATH_LENGTH_MAX / 2);
    }
    listing_clear(&listing);
}

static void what_leads_out_of_the_source_is_none(void **state)
{
    static const char *const bad[] = {"..", "a/../b", "a/..", "../a"};
    char longest[PATH_LENGTH_MAX + 2], name[300];
    struct listing listing = {0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(add(&listing, bad[i]));
        assert_false(listing_is_path((struct span){bad[i], strlen(bad[i])}));
    }
    assert_false(listing_add(&listing, (struct span){"a\0b", 3}));
    memset(name, 'n', sizeof(name));
    assert_true(listing_add(&listing, (struct span){name, 255}));
    assert_false(listing_add(&listing, (struct span){name, 256}));
    for (size_t i = 0; i < sizeof(longest); i++) {
        longest[i] = i % 2 == 0 ? 'a' : '/';
    }
    assert_true(listing_add(&listing, (struct span){longest, PATH_LENGTH_MAX}));
    assert_false(listing_add(&listing, (struct span){longest, PATH_LENGTH_MAX + 1}));
    listing_clear(&listing);
}

static void what_meets_the_list(void **state)
{
    static const struct {
        const char *path;
        bool alone, with_what_is_below;
    } cases[] = {{"a", true, true},        {"a/b", true, true},   {"a/b/c", false, true},
                 {"a/b/c/d", false, true}, {"a/c", false, false}, {"a/bb", false, false},
                 {"ab", false, false},     {"z", true, true},     {"z/z", false, true},
                 {"a/b-", false, false},   {"a-", true, true},    {"", true, true}};
    struct listing listing = {0};
    assert_false(listing_meets(&listing, "a", true));
    assert_true(add(&listing, "z") && add(&listing, "a/b") && add(&listing, "a-/x"));
    listing_sort(&listing);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (listing_meets(&listing, cases[i].path, false) != cases[i].alone ||
            listing_meets(&listing, cases[i].path, true) != cases[i].with_what_is_below) {
            fail_msg("'%s'", cases[i].path);
        }
    }
    listing_clear(&listing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_comes_once_with_what_is_below_it),
        cmocka_unit_test(the_source_itself_is_no_name_in_it),
        cmocka_unit_test(a_slash_at_the_end_is_for_what_is_in_the_directory),
        cmocka_unit_test(the_source_itself_may_be_open),
        cmocka_unit_test(what_leads_to_the_list_is_above_it),
        cmocka_unit_test(what_the_list_has_to_do_with_a_path),
        cmocka_unit_test(a_deep_path_is_gone_down_once),
        cmocka_unit_test(what_leads_out_of_the_source_is_none),
        cmocka_unit_test(what_meets_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
