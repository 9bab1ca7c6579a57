/* A client that costs a server more than its own transfer: what it lists, and what it asks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/choice/filter.h"
#include "tools/transfer/copy/session.h"
#include "tools/transfer/disk/scratch.h"
#include "tools/transfer/wire/memory_link.h"

/* A server, of whose client the test speaks. */
struct visit {
    struct scratch *scratch;
    int root;
    struct memory_pair *pair;
    struct session *server;
    size_t held, room; /* bytes of names */
};

static void ignore_problem(void *user, const struct problem *problem)
{
}

static const struct report report = {.problem = ignore_problem};

static bool hold(void *user, size_t length)
{
    struct visit *visit = user;
    visit->held += length;
    return visit->held <= visit->room;
}

static int set_up(void **state)
{
    struct visit *visit = calloc(1, sizeof(*visit));
    visit->scratch = scratch_create();
    scratch_directory(visit->scratch, "root");
    visit->root = openat(visit->scratch->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct session_service service = {
        .root = visit->root, .device = "test0", .hold = hold, .user = visit};
    visit->room = 1u << 20;
    visit->pair = memory_pair_create();
    memory_pair_link(visit->pair, 1)->events = &link_unheard;
    visit->server = session_create_server(memory_pair_link(visit->pair, 0), &service, &report);
    memory_pair_open(visit->pair);
    *state = visit;
    return 0;
}

static int tear_down(void **state)
{
    struct visit *visit = *state;
    memory_pair_cut(visit->pair);
    while (memory_pair_step(visit->pair)) {
    }
    assert_true(session_is_closed(visit->server));
    session_destroy(visit->server);
    memory_pair_destroy(visit->pair);
    close(visit->root);
    scratch_destroy(visit->scratch);
    free(visit);
    return 0;
}

static void say(struct visit *visit, const struct message *message)
{
    uint8_t bytes[MESSAGE_LENGTH_MAX];
    size_t length = protocol_pack(message, bytes);
    struct span data = protocol_data(message);
    if (data.length > 0) {
        memcpy(bytes + length, data.bytes, data.length);
    }
    memory_pair_inject(visit->pair, 1, bytes, length + data.length);
    while (memory_pair_step(visit->pair)) {
    }
}

static struct message hello(uint32_t wishes, unsigned sources, unsigned rules, unsigned listed)
{
    struct message message = {.type = MESSAGE_HELLO};
    message.hello.version = PROTOCOL_VERSION;
    message.hello.direction = DIRECTION_PULL;
    message.hello.wishes.bits = wishes;
    message.hello.sources = (uint16_t)sources;
    message.hello.rules = (uint16_t)rules;
    message.hello.listed = listed;
    return message;
}

static void list(struct visit *visit, const char *path)
{
    struct message message = {.type = MESSAGE_LISTED};
    message.listed.path = (struct span){path, strlen(path)};
    say(visit, &message);
}

static void name_source(struct visit *visit, const char *path)
{
    struct message message = {.type = MESSAGE_SOURCE};
    message.source.path = (struct span){path, strlen(path)};
    say(visit, &message);
}

/* The last thing that the server has said. */
static struct message heard(const struct visit *visit)
{
    size_t length;
    struct message message;
    const void *last = memory_pair_last_message(visit->pair, 0, &length);
    assert_non_null(last);
    assert_true(protocol_parse(last, length, &message));
    return message;
}

/* Sorting a million paths would hold up all others. */
static void a_list_comes_in_order(void **state)
{
    struct visit *visit = *state;
    const struct message greeting = hello(WISH_LISTED, 1, 0, 3);
    say(visit, &greeting);
    list(visit, "a");
    list(visit, "b/c");
    assert_int_equal(session_outcome(visit->server), SESSION_RUNNING);
    list(visit, "b");
    assert_int_equal(session_outcome(visit->server), SESSION_BROKEN);
    assert_non_null(strstr(session_reason(visit->server), "out of order"));
}

static void what_it_lists_is_counted(void **state)
{
    struct visit *visit = *state;
    char path[3001];
    unsigned count = 0;
    const struct message greeting = hello(WISH_LISTED, 1, 0, LISTED_MAX);
    for (size_t i = 0; i < 3000; i++) {
        path[i] = i % 100 == 99 ? '/' : 'x';
    }
    path[3000] = 0;
    say(visit, &greeting);
    while (session_outcome(visit->server) == SESSION_RUNNING && count < LISTED_MAX) {
        snprintf(path + 2990, 11, "%010u", count++);
        list(visit, path);
    }
    assert_int_equal(session_outcome(visit->server), SESSION_REFUSED);
    assert_int_equal(heard(visit).refused.code, PROBLEM_BUSY);
    assert_true(count * sizeof(path) > visit->room - (128u << 10) &&
                count * sizeof(path) <= visit->room);
}

static void so_are_its_sources(void **state)
{
    struct visit *visit = *state;
    char path[4001];
    unsigned count = 0;
    const struct message greeting = hello(0, TRANSFER_SOURCES_MAX, 0, 0);
    memset(path, 'x', 4000);
    path[4000] = 0;
    say(visit, &greeting);
    while (session_outcome(visit->server) == SESSION_RUNNING && count < TRANSFER_SOURCES_MAX) {
        name_source(visit, path);
        count++;
    }
    assert_int_equal(session_outcome(visit->server), SESSION_REFUSED);
    assert_in_range(count, 100, 400);
}

static void say_rule(struct visit *visit, const char *pattern)
{
    struct message rule = {.type = MESSAGE_RULE};
    rule.rule.pattern = (struct span){pattern, strlen(pattern)};
    say(visit, &rule);
}

static void assert_refused_for_its_rules(const struct visit *visit)
{
    const struct message message = heard(visit);
    assert_int_equal(message.type, MESSAGE_REFUSED);
    assert_non_null(memmem(message.refused.text.bytes, message.refused.text.length,
                           "at most 32768 rules, of 1 MiB", 29));
    assert_int_equal(session_outcome(visit->server), SESSION_REFUSED);
}

static void its_rules_are_counted(void **state)
{
    struct visit *visit = *state;
    const struct message greeting = hello(0, 1, FILTER_RULES_MAX + 1, 0);
    say(visit, &greeting);
    assert_refused_for_its_rules(visit);
}

/* Some thousand lines, as people have them, are welcome. */
static void so_is_their_length(void **state)
{
    struct visit *visit = *state;
    char pattern[4001];
    unsigned count = 0;
    const struct message greeting = hello(0, 1, FILTER_RULES_MAX, 0);
    visit->room = 64u << 20;
    say(visit, &greeting);
    for (unsigned i = 0; i < 10000; i++) {
        say_rule(visit, "/home/*/projects/a build/*.[oa]");
    }
    memset(pattern, '*', 4000);
    pattern[4000] = 0;
    while (session_outcome(visit->server) == SESSION_RUNNING && count < FILTER_RULES_MAX) {
        say_rule(visit, pattern);
        count++;
    }
    assert_refused_for_its_rules(visit);
    assert_in_range(count, 1, 100);
}

static void and_so_is_the_memory_that_they_take(void **state)
{
    struct visit *visit = *state;
    unsigned count = 0;
    const struct message greeting = hello(0, 1, FILTER_RULES_MAX, 0);
    say(visit, &greeting);
    while (session_outcome(visit->server) == SESSION_RUNNING && count < FILTER_RULES_MAX) {
        say_rule(visit, "*.o");
        count++;
    }
    assert_int_equal(heard(visit).refused.code, PROBLEM_BUSY);
    assert_in_range(count, 1000, 10000);
}

/* To the end of what is sent, where a receiver that deletes may ask; with so many times the
 * pattern, and nothing that is not left out. Returns how many turns that took. */
static unsigned pull_all(struct visit *visit, const char *pattern, unsigned rules)
{
    unsigned turns = 0;
    const struct message greeting = hello(WISH_RECURSIVE | WISH_DELETE, 1, rules + 1, 0);
    say(visit, &greeting);
    for (unsigned i = 0; i < rules; i++) {
        say_rule(visit, pattern);
    }
    say_rule(visit, "*");
    name_source(visit, "/");
    while (session_pump(visit->server) | memory_pair_step(visit->pair)) {
        turns++;
    }
    assert_int_equal(heard(visit).type, MESSAGE_FINISHED);
    return turns;
}

static void what_it_leaves_out_takes_turns(void **state)
{
    struct visit *visit = *state;
    char path[32];
    for (unsigned i = 0; i < 2000; i++) {
        snprintf(path, sizeof(path), "root/%u", i);
        scratch_write(visit->scratch, path, "");
    }
    assert_true(pull_all(visit, "*.o", 1) >= 2000 / 64);
}

/* Of long rules, each name is a turn. */
static void all_the_more_where_it_takes_long(void **state)
{
    struct visit *visit = *state;
    char pattern[4001], path[32];
    for (size_t i = 0; i < 4000; i++) {
        pattern[i] = i % 4 < 2 ? '*' : 'x';
    }
    pattern[4000] = 0;
    for (unsigned i = 0; i < 20; i++) {
        snprintf(path, sizeof(path), "root/%u", i);
        scratch_write(visit->scratch, path, "");
    }
    visit->room = 64u << 20;
    assert_true(pull_all(visit, pattern, 260) >= 10);
}

static struct message ask(const char *path, unsigned names, uint8_t *bytes)
{
    struct message message = {.type = MESSAGE_ASK};
    const struct question directory = {.is_directory = true, .path = {path, strlen(path)}};
    const struct question file = {.name = {"f", 1}};
    size_t length = protocol_pack_question(&directory, bytes);
    for (unsigned i = 0; i < names; i++) {
        length += protocol_pack_question(&file, bytes + length);
    }
    message.ask.names = (uint16_t)names;
    message.ask.questions = (struct span){bytes, length};
    return message;
}

/* The longer paths and rules are, the fewer questions are answered before others have their turn.
 */
static void its_questions_take_turns(void **state)
{
    static uint8_t bytes[ASK_LENGTH_MAX];
    struct visit *visit = *state;
    char pattern[2001], path[1001];
    unsigned turns = 0;
    for (size_t i = 0; i < 2000; i++) {
        pattern[i] = i % 4 < 2 ? '*' : 'x';
    }
    for (size_t i = 0; i < 1000; i++) {
        path[i] = i % 100 == 99 ? '/' : 'x';
    }
    pattern[2000] = path[999] = 0;
    visit->room = 64u << 20;
    pull_all(visit, pattern, 64);
    const struct message message = ask(path, 6, bytes);
    say(visit, &message);
    say(visit, &message);
    for (; heard(visit).type == MESSAGE_FINISHED; turns++) {
        assert_true(session_pump(visit->server));
    }
    assert_true(turns >= 6);
    while (session_pump(visit->server)) {
    }
    assert_int_equal(heard(visit).type, MESSAGE_ANSWERS);
    assert_int_equal(heard(visit).answers.count, 6);
    assert_int_equal(session_outcome(visit->server), SESSION_RUNNING);
}

static void its_questions_are_counted(void **state)
{
    static uint8_t bytes[ASK_LENGTH_MAX];
    struct visit *visit = *state;
    pull_all(visit, "*.o", 1);
    const struct message message = ask("d", 1, bytes);
    for (unsigned i = 0; i <= ASKS_MAX; i++) {
        assert_int_equal(session_outcome(visit->server), SESSION_RUNNING);
        say(visit, &message);
    }
    assert_int_equal(session_outcome(visit->server), SESSION_BROKEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        T(a_list_comes_in_order),
        T(what_it_lists_is_counted),
        T(so_are_its_sources),
        T(its_rules_are_counted),
        T(so_is_their_length),
        T(and_so_is_the_memory_that_they_take),
        T(what_it_leaves_out_takes_turns),
        T(all_the_more_where_it_takes_long),
        T(its_questions_take_turns),
        T(its_questions_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
