/* A server that sends what it was not asked for: other names than those in the list, than what a
 * pattern stands for, or than what the rules leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/choice/filter.h"
#include "tools/transfer/copy/session_world.h"
#include "tools/transfer/wire/listing.h"

static void add_path(struct listing *listing, const char *path)
{
    assert_true(listing_add(listing, (struct span){path, strlen(path)}));
}

/* The client asks for what is in "x", and nobody says anything yet. */
static void begin(struct world *world, const char *source, uint32_t wishes)
{
    world->request.wishes.bits = wishes;
    world_begin_pull(world, source, "");
    while (memory_pair_step(world->pair)) {
    }
    assert_true(session_is_running(world->client));
}

/* The server says a path of directories, of which the last may be a file. */
static void say(struct world *world, const char *path, enum entry_kind last)
{
    char names[64];
    uint32_t id = 1;
    strcpy(names, path);
    for (char *name = names; name != NULL; id++) {
        char *slash = strchr(name, '/');
        if (slash != NULL) {
            *slash = 0;
        }
        world_inject_entry(world, id, slash != NULL ? ENTRY_DIRECTORY : last, name,
                           slash == NULL && last == ENTRY_FILE ? "data" : "");
        name = slash != NULL ? slash + 1 : NULL;
    }
    while (memory_pair_step(world->pair)) {
    }
    session_pump(world->client);
}

static void expect_refused(struct world *world, const char *path)
{
    char here[64] = "here";
    while (memory_pair_step(world->pair)) {
    }
    assert_int_equal(session_outcome(world->client), SESSION_BROKEN);
    assert_non_null(strstr(session_reason(world->client), "not asked for"));
    assert_false(scratch_exists(world->scratch, strcat(here, path)));
}

static void expect_taken(struct world *world, const char *path)
{
    char here[64] = "here";
    assert_int_equal(session_outcome(world->client), SESSION_RUNNING);
    assert_true(scratch_exists(world->scratch, strcat(here, path)));
}

/* Of a pull of `source` the server says a file; `path` is what would come of it. */
static void check_refused(struct world *world, const char *source, uint32_t wishes,
                          const char *said, const char *path)
{
    begin(world, source, wishes);
    say(world, said, ENTRY_FILE);
    expect_refused(world, path);
}

static void check_taken(struct world *world, const char *source, uint32_t wishes, const char *said,
                        const char *path)
{
    begin(world, source, wishes);
    say(world, said, ENTRY_FILE);
    expect_taken(world, path);
}

static void what_is_not_in_the_list_is_refused(void **state)
{
    struct world *world = *state;
    struct listing listing = {0};
    const uint32_t bits = WISH_LISTED;
    add_path(&listing, "a/b");
    add_path(&listing, "d");
    listing_sort(&listing);
    world->request.listing = &listing;
    check_refused(world, "/x/", bits, "/a", "/a"); /* it is on the way, and so a directory */
    check_refused(world, "/x/", bits, "/.profile", "/.profile");
    check_refused(world, "/x/", bits, "/a/c", "/a/c");
    check_refused(world, "/x/", bits, "/d/e", "/d/e");
    check_taken(world, "/x/", bits, "/a/b", "/a/b");
    check_taken(world, "/x/", bits | WISH_RECURSIVE, "/d/e/f", "/d/e/f");
    world->request.listing = NULL;
    listing_clear(&listing);
}

static void what_no_pattern_stands_for_is_refused(void **state)
{
    struct world *world = *state;
    struct listing listing = {0};
    const uint32_t bits = WISH_LISTED | WISH_EXPAND;
    add_path(&listing, "*.[ch]");
    world->request.listing = &listing;
    check_refused(world, "/x/", bits, "/f.o", "/f.o");
    check_refused(world, "/x/", bits, "/.f.c", "/.f.c");
    check_refused(world, "/x/", bits, "/d.c/e", "/d.c/e");
    check_taken(world, "/x/", bits | WISH_RECURSIVE, "/d.c/e", "/d.c/e");
    check_taken(world, "/x/", bits, "/f.c", "/f.c");
    check_taken(world, "/x/", bits, "/*.[ch]", "/*.[ch]");
    world->request.listing = NULL;
    listing_clear(&listing);
}

static void add_rule(struct filter *filter, unsigned bits, const char *pattern)
{
    assert_true(filter_add(filter, bits, (struct span){pattern, strlen(pattern)}));
}

static void what_the_rules_leave_out_is_refused(void **state)
{
    struct world *world = *state;
    struct filter *filter = filter_create();
    add_rule(filter, RULE_INCLUDE, "/x/keep.o");
    add_rule(filter, 0, "*.o");
    add_rule(filter, 0, ".ssh/");
    add_rule(filter, RULE_PROTECTS, "mine");
    world->request.filter = filter;
    check_refused(world, "/x", WISH_RECURSIVE, "x/f.o", "/x/f.o");
    check_refused(world, "/x", WISH_RECURSIVE, "x/.ssh/keys", "/x/.ssh");
    check_taken(world, "/x", WISH_RECURSIVE, "x/keep.o", "/x/keep.o");
    check_taken(world, "/x", WISH_RECURSIVE, "x/mine", "/x/mine");
    world->request.filter = NULL;
    filter_destroy(filter);
}

/* The rules know the source by its own name, whatever it is called here. */
static void and_by_the_name_that_it_has_there(void **state)
{
    struct world *world = *state;
    struct filter *filter = filter_create();
    add_rule(filter, 0, "/x/f");
    add_rule(filter, 0, "/y/g");
    world->request.filter = filter;
    world->request.wishes.bits = WISH_RECURSIVE;
    world_begin_pull(world, "/x", "y");
    while (memory_pair_step(world->pair)) {
    }
    say(world, "x/g", ENTRY_FILE);
    expect_taken(world, "/y/g");
    world_begin_pull(world, "/x", "z");
    while (memory_pair_step(world->pair)) {
    }
    say(world, "x/f", ENTRY_FILE);
    expect_refused(world, "/z/f");
    world->request.filter = NULL;
    filter_destroy(filter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(what_is_not_in_the_list_is_refused),
        T(what_no_pattern_stands_for_is_refused),
        T(what_the_rules_leave_out_is_refused),
        T(and_by_the_name_that_it_has_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
