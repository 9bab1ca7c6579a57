/* A peer that lies about what there is already: to be asked, to be left, to be deleted. */
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

/* The server asks what the client has; the client answers, about its target and nothing else. */
static struct message ask(const char *path, const char *name, uint8_t *ret_bytes)
{
    struct message message = {.type = MESSAGE_ASK};
    const struct question directory = {
        .is_directory = true, .path = {path, strlen(path)}, .name = {"x", 1}};
    const struct question file = {.name = {name, strlen(name)}, .size = 6};
    size_t length = protocol_pack_question(&directory, ret_bytes);
    length += protocol_pack_question(&file, ret_bytes + length);
    message.ask.names = 1;
    message.ask.questions = (struct span){ret_bytes, length};
    return message;
}

static void expect_answer(struct world *world, const char *path, const char *name,
                          enum answer answer)
{
    uint8_t bytes[2 * QUESTION_LENGTH_MAX], digest[DIGEST_LENGTH];
    const struct message message = ask(path, name, bytes);
    struct message heard;
    size_t length;
    world->request.wishes.bits = WISH_SIZE_ONLY | WISH_RECURSIVE;
    world_begin_pull(world, "/x", "");
    while (memory_pair_step(world->pair)) {
    }
    world_inject(world, &message);
    memory_pair_step(world->pair);
    session_pump(world->client);
    const void *last = memory_pair_last_message(world->pair, 0, &length);
    assert_true(protocol_parse(last, length, &heard));
    assert_int_equal(heard.type, MESSAGE_ANSWERS);
    assert_int_equal(protocol_next_answer(&heard.answers.answers, digest), answer);
}

static void questions_stay_in_the_target(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    scratch_directory(s, "here/x");
    scratch_directory(s, "here/x/d");
    scratch_write(s, "here/x/d/f", "secret");
    scratch_write(s, "root/f", "secret");
    symlinkat("../../root", s->fd, "here/x/out");
    expect_answer(world, "d", "f", ANSWER_SAME);
    expect_answer(world, "d", "g", ANSWER_WANTED);
    expect_answer(world, "out", "f", ANSWER_WANTED);
    expect_answer(world, "../../root", "f", ANSWER_WANTED);
    expect_answer(world, "/etc", "passwd", ANSWER_WANTED);
}

/* Nor about what is beside the source, or was left out: what a client has there is its own. */
static void questions_are_about_what_was_asked_for(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct filter *filter = filter_create();
    scratch_directory(s, "here/x");
    scratch_directory(s, "here/x/.ssh");
    scratch_write(s, "here/x/f", "secret");
    scratch_write(s, "here/x/.ssh/f", "secret");
    scratch_write(s, "here/f", "secret");
    assert_true(filter_add(filter, 0, (struct span){"/x/.ssh/f", 9}));
    expect_answer(world, "", "f", ANSWER_SAME);
    expect_answer(world, ".ssh", "f", ANSWER_SAME);
    expect_answer(world, "..", "f", ANSWER_WANTED);
    expect_answer(world, "../x", "f", ANSWER_WANTED);
    world->request.filter = filter;
    expect_answer(world, "", "f", ANSWER_SAME);
    expect_answer(world, ".ssh", "f", ANSWER_WANTED);
    expect_answer(world, "./.ssh", "f", ANSWER_WANTED);
    world->request.filter = NULL;
    filter_destroy(filter);
}

static void questions_are_counted(void **state)
{
    struct world *world = *state;
    uint8_t bytes[2 * QUESTION_LENGTH_MAX];
    const struct message message = ask("", "f", bytes);
    world_begin_lies(world, true);
    for (unsigned i = 0; i <= ASKS_MAX; i++) {
        world_inject(world, &message);
    }
    world_expect_broken(world);
    assert_string_equal(session_reason(world->client),
                        "the peer broke the protocol: more questions than it may ask");
}

/* A server that was asked, as a receiver, answers more than it was asked. */
static void answers_to_nothing_are_refused(void **state)
{
    struct world *world = *state;
    struct message message = {.type = MESSAGE_ANSWERS};
    message.answers.count = 2;
    message.answers.answers = (struct span){"\1\1", 2};
    scratch_fill(world->scratch, "here/f", 9 * MIB, 1);
    world_begin_push(world, "f", "/");
    while (session_tally(world->server)->bytes == 0 && world_step(world)) {
    }
    world_inject(world, &message);
    world_expect_broken(world);
}

/* What the client did not say it has does not keep it from failing. */
static void what_was_not_sent_must_be_here(void **state)
{
    struct world *world = *state;
    struct message message = world_entry(1, ENTRY_FILE, "x", "");
    message.entry.content = CONTENT_NOT_SENT;
    message.entry.size = 5;
    world_begin_lies(world, false);
    world_inject(world, &message);
    while (memory_pair_step(world->pair)) {
    }
    assert_string_equal(world->problems[0], "here target changed\n");
    assert_false(scratch_exists(world->scratch, "here/x"));
    world_begin_lies(world, false); /* no dry run */
    message.entry.content = CONTENT_DRY;
    world_inject(world, &message);
    world_expect_broken(world);
    world->request.wishes.bits = WISH_DRY_RUN;
    world_begin_pull(world, "/x", "");
    while (memory_pair_step(world->pair)) {
    }
    world_inject_entry(world, 1, ENTRY_FILE, "x", "data");
    world_expect_broken(world);
    assert_false(scratch_exists(world->scratch, "here/x"));
}

/* A server cannot replace what the client wants kept. */
static void what_is_to_be_left_is_left(void **state)
{
    struct world *world = *state;
    scratch_write(world->scratch, "here/x", "mine");
    world->request.wishes.bits = WISH_IGNORE_EXISTING;
    world_begin_pull(world, "/x", "");
    while (memory_pair_step(world->pair)) {
    }
    world_inject_entry(world, 1, ENTRY_FILE, "x", "theirs");
    while (memory_pair_step(world->pair)) {
    }
    assert_int_equal(session_tally(world->client)->left, 1);
    scratch_expect(world->scratch, "here/x", "mine");
    world_begin_pull(world, "/x", "");
    while (memory_pair_step(world->pair)) {
    }
    world_chunked_entry(world, MIB);
    memory_pair_inject_notice(world->pair, 1, 0, MIB);
    const struct message end_message = {.type = MESSAGE_END};
    world_inject(world, &end_message);
    while (memory_pair_step(world->pair)) {
    }
    scratch_expect(world->scratch, "here/x", "mine");
}

static void step_until_said(struct world *world, enum message_type type, struct message *ret_heard)
{
    size_t length;
    do {
        assert_true(world_step(world) || session_is_closed(world->client));
        const void *last = memory_pair_last_message(world->pair, 0, &length);
        assert_true(protocol_parse(last, length, ret_heard));
    } while (ret_heard->type != type && !session_is_closed(world->client));
}

/* A server that is to delete asks a client what its source has: about the source, and nothing else.
 */
static void expect_gone(struct world *world, const char *path, const char *name, enum answer answer)
{
    uint8_t bytes[2 * QUESTION_LENGTH_MAX], digest[DIGEST_LENGTH];
    const struct message message = ask(path, name, bytes);
    struct message heard;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE | WISH_IGNORE_TIMES;
    world_begin_push(world, "t", "/");
    step_until_said(world, MESSAGE_FINISHED, &heard);
    world_inject(world, &message);
    step_until_said(world, MESSAGE_ANSWERS, &heard);
    assert_int_equal(heard.type, MESSAGE_ANSWERS);
    assert_int_equal(protocol_next_answer(&heard.answers.answers, digest), answer);
}

static void a_sender_tells_of_its_sources_only(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    uint8_t bytes[2 * QUESTION_LENGTH_MAX];
    struct message message = ask("", "f", bytes);
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/d");
    scratch_write(s, "here/t/d/f", "x");
    scratch_write(s, "here/secret", "x");
    symlinkat("..", s->fd, "here/t/up");
    expect_gone(world, "d", "f", ANSWER_SAME);
    expect_gone(world, "d", "g", ANSWER_GONE);
    expect_gone(world, "up", "secret", ANSWER_GONE);
    expect_gone(world, "..", "secret", ANSWER_LEFT);
    expect_gone(world, "d/../..", "secret", ANSWER_LEFT);
    expect_gone(world, "/etc", "passwd", ANSWER_LEFT);
    world->request.wishes.bits = WISH_RECURSIVE; /* who deletes nothing asks nothing */
    world_begin_push(world, "t", "/");
    while (!session_is_running(world->client) && world_step(world)) {
    }
    world_inject(world, &message);
    world_expect_broken(world);
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE; /* nor before the end */
    world_begin_push(world, "t", "/");
    while (!session_is_running(world->client) && world_step(world)) {
    }
    world_inject(world, &message);
    world_expect_broken(world);
}

/* By no other way to it, which no rule is for. */
static void nor_of_what_it_leaves_out(void **state)
{
    static const char *const ways[] = {"d/../out", "./out", "d//../out", "out/", "out/."};
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct filter *filter = filter_create();
    assert_true(filter_add(filter, 0, (struct span){"/t/out", 6}));
    world->request.filter = filter;
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/d");
    scratch_directory(s, "here/t/out");
    scratch_write(s, "here/t/out/f", "x");
    expect_gone(world, "out", "f", ANSWER_GONE);
    expect_gone(world, "out", "g", ANSWER_GONE);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        expect_gone(world, ways[i], "f", ANSWER_LEFT);
        expect_gone(world, ways[i], "g", ANSWER_LEFT);
    }
    world->request.filter = NULL;
    filter_destroy(filter);
}

/* The same where the answer takes the rules of each directory on the way. */
static void nor_with_files_of_rules(void **state)
{
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct filter *filter = filter_create();
    assert_true(filter_add(filter, RULE_MERGES, (struct span){"/.rules", 7}));
    world->request.filter = filter;
    scratch_directory(s, "here/t");
    scratch_directory(s, "here/t/d");
    scratch_directory(s, "here/t/d/e");
    scratch_directory(s, "here/t/out");
    scratch_write(s, "here/t/.rules", "- hidden\n- /out\n");
    scratch_write(s, "here/t/d/.rules", "+ /hidden\n");
    scratch_write(s, "here/t/d/f", "x");
    scratch_write(s, "here/t/d/hidden", "x");
    scratch_write(s, "here/t/d/e/hidden", "x");
    scratch_write(s, "here/t/out/f", "x");
    scratch_write(s, "here/secret", "x");
    symlinkat("..", s->fd, "here/t/up");
    expect_gone(world, "d", "f", ANSWER_SAME);
    expect_gone(world, "d", "g", ANSWER_GONE);
    expect_gone(world, "d", "hidden", ANSWER_SAME);
    expect_gone(world, "d/e", "hidden", ANSWER_GONE); /* whether that is kept there is not ours */
    expect_gone(world, "out", "f", ANSWER_GONE);
    expect_gone(world, "out/of", "f", ANSWER_GONE);
    expect_gone(world, "d/nothing/there", "f", ANSWER_GONE);
    expect_gone(world, "up", "secret", ANSWER_GONE);
    expect_gone(world, "..", "secret", ANSWER_LEFT);
    expect_gone(world, "d/../..", "secret", ANSWER_LEFT);
    expect_gone(world, "/etc", "passwd", ANSWER_LEFT);
    scratch_write(s, "here/t/d/.rules", "nonsense\n");
    expect_gone(world, "d/e", "g", ANSWER_LEFT);
    world->request.filter = NULL;
    filter_destroy(filter);
}

/* Rules are for a server that deletes, before all else, and are what they say they are. */
static void rules_come_when_they_may(void **state)
{
    struct world *world = *state;
    struct message message = {.type = MESSAGE_RULE};
    message.rule.bits = RULE_MERGES;
    message.rule.pattern = (struct span){".rules", 6};
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    world_begin_pull(world, "/x", ""); /* the client has its own */
    while (memory_pair_step(world->pair)) {
    }
    world_inject(world, &message);
    world_expect_broken(world);
}

/* A server says that all is gone, before anybody asked. */
static void nothing_is_deleted_unasked(void **state)
{
    struct world *world = *state;
    struct message message = {.type = MESSAGE_ANSWERS};
    scratch_directory(world->scratch, "here/x");
    scratch_write(world->scratch, "here/x/mine", "x");
    scratch_write(world->scratch, "here/mine", "x");
    message.answers.count = 2;
    message.answers.answers = (struct span){"\4\4", 2};
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    world_begin_pull(world, "/x", "");
    while (memory_pair_step(world->pair)) {
    }
    world_inject_entry(world, 1, ENTRY_DIRECTORY, "x", "");
    world_inject(world, &message);
    world_expect_broken(world);
    scratch_expect(world->scratch, "here/x/mine", "x");
    scratch_expect(world->scratch, "here/mine", "x");
}

/* The client pulls "/x", of which the server sends nothing but itself, and says of all that is here
 * that it is gone. */
static void expect_deleted(struct world *world, const char *said, const struct message *gone)
{
    struct message message = {.type = MESSAGE_FINISHED};
    message.finished.sources = 1;
    world_begin_pull(world, "/x", "");
    while (memory_pair_step(world->pair)) {
    }
    memory_pair_link(world->pair, 1)->events = &link_unheard; /* the server says no word itself */
    world_inject_entry(world, 1, ENTRY_DIRECTORY, said, "");
    world_inject(world, &(struct message){.type = MESSAGE_LEAVE});
    world_inject(world, &message);
    while (memory_pair_step(world->pair)) {
    }
    while (session_pump(world->client)) {
    }
    world_inject(world, gone);
    while (memory_pair_step(world->pair) || session_pump(world->client)) {
    }
}

/* What the client's rules protect, and what is beside its list, is not the server's to delete. */
static void what_is_protected_stays(void **state)
{
    static const struct answers {
        uint16_t count;
        const char *bytes;
    } all_gone = {3, "\4\4\4"};
    struct world *world = *state;
    const struct scratch *s = world->scratch;
    struct filter *filter = filter_create();
    struct listing listing = {0};
    struct message message = {.type = MESSAGE_ANSWERS};
    message.answers.count = all_gone.count;
    message.answers.answers = (struct span){all_gone.bytes, all_gone.count};
    scratch_directory(s, "here/x");
    scratch_directory(s, "here/x/d");
    scratch_write(s, "here/x/d/mine", "x");
    scratch_write(s, "here/x/old", "x");
    assert_true(filter_add(filter, 0, (struct span){"/x/d/mine", 9}));
    world->request.filter = filter;
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE;
    expect_deleted(world, "y", &message); /* it has another name for the source */
    scratch_expect(s, "here/x/d/mine", "x");
    assert_false(scratch_exists(s, "here/x/old"));
    world->request.filter = NULL;
    filter_destroy(filter);

    scratch_write(s, "here/x/old", "x");
    assert_true(listing_add(&listing, (struct span){"d", 1}));
    world->request.listing = &listing;
    world->request.wishes.bits |= WISH_LISTED;
    expect_deleted(world, "x", &message);
    scratch_expect(s, "here/x/old", "x");
    assert_false(scratch_exists(s, "here/x/d"));
    world->request.listing = NULL;
    listing_clear(&listing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
        T(questions_stay_in_the_target),
        T(questions_are_counted),
        T(questions_are_about_what_was_asked_for),
        T(answers_to_nothing_are_refused),
        T(what_was_not_sent_must_be_here),
        T(what_is_to_be_left_is_left),
        T(a_sender_tells_of_its_sources_only),
        T(nor_of_what_it_leaves_out),
        T(nor_with_files_of_rules),
        T(rules_come_when_they_may),
        T(nothing_is_deleted_unasked),
        T(what_is_protected_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
