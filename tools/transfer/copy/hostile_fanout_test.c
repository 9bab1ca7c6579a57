/* Members of a fan-out that lie, and strangers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/chain/feed.h"
#include "tools/transfer/chain/stream.h"
#include "tools/transfer/copy/fanout_private.h"
#include "tools/transfer/copy/fanout_world.h"
#include "tools/transfer/ends/sender.h"

#define MIB (1u << 20)

/* What a test does once, when the large file is under way. */
static void (*lie)(struct fanout_world *world);
static bool lied;
static uint32_t also; /* wishes */

static void lie_once(struct fanout_world *world, unsigned step)
{
    if (step == 100) {
        lied = true;
        lie(world);
    }
}

static void begin(struct fanout_world *world, void (*how)(struct fanout_world *world))
{
    if (!scratch_exists(world->scratch, "here/t")) {
        scratch_directory(world->scratch, "here/t");
        scratch_fill(world->scratch, "here/t/big", 8 * MIB, 1);
    }
    world->request.wishes.bits = WISH_RECURSIVE | also;
    world->between = lie_once;
    lie = how;
    lied = false;
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    assert_true(lied);
}

static void expect_whole(struct fanout_world *world, unsigned node)
{
    char path[32];
    snprintf(path, sizeof(path), "root%u/t/big", node);
    assert_int_equal(fanout_outcome(world->fanout, node), SESSION_COMPLETE);
    assert_true(scratch_same(world->scratch, "here/t/big", path));
}

static void expect_failed(struct fanout_world *world, unsigned node, const char *why)
{
    assert_int_not_equal(fanout_outcome(world->fanout, node), SESSION_COMPLETE);
    if (strstr(fanout_why(world->fanout, node), why) == NULL) {
        fail_msg("it failed, but: %s", fanout_why(world->fanout, node));
    }
}

static struct wire *wire_of(struct fanout_world *world, unsigned node, bool to_feed)
{
    for (unsigned i = world->wire_count; i > 0; i--) {
        struct wire *wire = &world->wires[i - 1];
        if (wire->to_feed == to_feed && wire->server == &world->nodes[node]) {
            return wire;
        }
    }
    return NULL;
}

static void say(struct wire *wire, unsigned side, const struct hop_message *message)
{
    uint8_t bytes[HOP_LENGTH_MAX];
    size_t length = hop_pack(message, bytes);
    memory_pair_inject(wire->pair, side, bytes, length);
}

/* The one that is fed by the source says that it has more than was sent. */
static void claim_too_much(struct fanout_world *world)
{
    say(wire_of(world, 0, true), 1, &(struct hop_message){.type = HOP_ACK, .acked = 1 << 20});
}

static void take_twice(struct fanout_world *world)
{
    struct hop_message message = {.type = HOP_TAKE};
    message.take.chunk_length = HOP_CHUNK_LENGTH;
    message.take.chunk_count = HOP_CHUNK_COUNT;
    message.take.remote.length = (uint64_t)HOP_CHUNK_LENGTH * HOP_CHUNK_COUNT;
    say(wire_of(world, 1, true), 1, &message);
}

static void put_out_of_turn(struct fanout_world *world)
{
    memory_pair_inject_notice(wire_of(world, 1, true)->pair, 0, 5, HOP_CHUNK_LENGTH);
}

static void announce_nonsense(struct fanout_world *world)
{
    say(wire_of(world, 2, true), 0, &(struct hop_message){.type = HOP_FORWARD});
}

/* A link that misbehaves once is made anew, and all goes on. */
static void a_link_that_lies_is_replaced(void **state)
{
    static void (*const lies[])(struct fanout_world *) = {claim_too_much, take_twice,
                                                          put_out_of_turn, announce_nonsense};
    struct fanout_world *world = *state;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        begin(world, lies[i]);
        unsigned fed = 0;
        for (unsigned j = 0; j < world->wire_count; j++) {
            fed += world->wires[j].to_feed;
        }
        assert_true(fed > 3);
        for (unsigned j = 0; j < 3; j++) {
            expect_whole(world, j);
        }
        unlinkat(world->nodes[0].root, "t/big", 0);
        unlinkat(world->nodes[1].root, "t/big", 0);
        unlinkat(world->nodes[2].root, "t/big", 0);
    }
}

static void inject(struct fanout_world *world, unsigned node, const struct message *message)
{
    uint8_t bytes[MESSAGE_LENGTH_MAX];
    size_t length = protocol_pack(message, bytes);
    memory_pair_inject(wire_of(world, node, false)->pair, 1, bytes, length);
}

static void sum_up_too_early(struct fanout_world *world)
{
    inject(world, 1, &(struct message){.type = MESSAGE_SUMMARY});
}

static void answer_unasked(struct fanout_world *world)
{
    uint8_t bytes[MESSAGE_LENGTH_MAX], answer[ANSWER_LENGTH_MAX];
    struct message message = {.type = MESSAGE_ANSWERS, .answers = {.count = 1}};
    size_t length = protocol_pack(&message, bytes);
    size_t more = protocol_pack_answer(ANSWER_SAME, NULL, answer);
    memcpy(bytes + length, answer, more);
    memory_pair_inject(wire_of(world, 1, false)->pair, 1, bytes, length + more);
}

static void welcome_again(struct fanout_world *world)
{
    inject(world, 1, &(struct message){.type = MESSAGE_WELCOME, .welcome = {PROTOCOL_VERSION}});
}

static void forward_to_the_source(struct fanout_world *world)
{
    say(wire_of(world, 1, false), 1, &(struct hop_message){.type = HOP_FORWARD});
}

/* Of the file that is under way, which is the second entry: from the second piece on, so much. */
static void prove(struct fanout_world *world, uint32_t id, uint64_t length)
{
    struct message message = {.type = MESSAGE_PROVEN};
    message.proven.id = id;
    message.proven.offset = 4 * MIB;
    message.proven.length = length;
    inject(world, 1, &message);
}

static void prove_unasked(struct fanout_world *world)
{
    prove(world, 2, 4 * MIB);
}

static void prove_too_much(struct fanout_world *world)
{
    prove(world, 2, 4 * MIB + 1);
}

static void prove_what_was_not_sent(struct fanout_world *world)
{
    prove(world, 3, 4 * MIB);
}

static void prove_twice(struct fanout_world *world)
{
    prove(world, 2, 4 * MIB);
    prove(world, 2, 4 * MIB);
}

static void stammer(struct fanout_world *world)
{
    memory_pair_inject(wire_of(world, 1, false)->pair, 1, "\xe1 ready?", 8);
}

/* A receiver that lies to the source fails, and the others have all. */
static void a_receiver_that_lies_fails_alone(void **state)
{
    static const struct {
        void (*lie)(struct fanout_world *);
        uint32_t also;
    } lies[] = {{sum_up_too_early, 0},
                {answer_unasked, 0},
                {welcome_again, 0},
                {forward_to_the_source, 0},
                {stammer, 0},
                {prove_unasked, 0},
                {prove_too_much, WISH_RESUME},
                {prove_what_was_not_sent, WISH_RESUME},
                {prove_twice, WISH_RESUME}};
    struct fanout_world *world = *state;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        if (also != lies[i].also) { /* so large that it is under way when it is lied about */
            scratch_fill(world->scratch, "here/t/big", 3ull * HOP_CHUNK_COUNT * HOP_CHUNK_LENGTH,
                         1);
        }
        also = lies[i].also;
        begin(world, lies[i].lie);
        expect_whole(world, 0);
        expect_failed(world, 1, "broke the protocol");
        expect_whole(world, 2);
        unlinkat(world->nodes[0].root, "t/big", 0);
        unlinkat(world->nodes[2].root, "t/big", 0);
    }
    also = 0;
}

/* Its numbers add up to all that was asked for, but only by running over. */
static void sum_up_beyond_all(struct fanout_world *world, unsigned step)
{
    const struct fanout *fanout = world->fanout;
    if (step == 0 || lied || !fanout->finished || fanout->members[0].summed) {
        return;
    }
    struct message message = {.type = MESSAGE_SUMMARY};
    message.summary.files = fanout->entries + 1;
    message.summary.again_files = UINT64_MAX;
    lied = true;
    inject(world, 0, &message);
}

/* The first of those that say the same speaks for all. */
static void a_summary_that_runs_over_harms_nobody_else(void **state)
{
    struct fanout_world *world = *state;
    scratch_directory(world->scratch, "here/t");
    scratch_fill(world->scratch, "here/t/big", 8 * MIB, 1);
    world->request.wishes.bits = WISH_RECURSIVE;
    world->between = sum_up_beyond_all;
    lied = false;
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    assert_true(lied);
    expect_whole(world, 1);
    expect_whole(world, 2);
    assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
}

/* So many questions about this source, and none of whose answers are taken. */
static void ask_and_not_listen(struct fanout_world *world, unsigned node, unsigned count,
                               uint16_t source)
{
    uint8_t questions[2 * QUESTION_LENGTH_MAX];
    const struct question directory = {.is_directory = true, .source = source};
    const struct question name = {.name = {"x", 1}};
    size_t length = protocol_pack_question(&directory, questions);
    length += protocol_pack_question(&name, questions + length);
    struct message message = {.type = MESSAGE_ASK, .ask = {.names = 1}};
    message.ask.questions = (struct span){questions, length};
    for (unsigned i = 0; i < count; i++) {
        uint8_t bytes[MESSAGE_LENGTH_MAX];
        size_t head = protocol_pack(&message, bytes);
        memcpy(bytes + head, questions, length);
        memory_pair_inject(wire_of(world, node, false)->pair, 1, bytes, head + length);
    }
}

/* Whoever is last asks while the line to it holds up the end, when the source has said all. */
static void answers_that_are_not_taken_are_bounded(void **state)
{
    struct fanout_world *world = *state;
    scratch_directory(world->scratch, "here/t");
    scratch_write(world->scratch, "here/t/f", "x");
    world->request.wishes.bits = WISH_RECURSIVE | WISH_DELETE | WISH_IGNORE_TIMES;
    world->nodes[2].lags = true;
    fanout_world_begin(world, "t", 3);
    fanout_world_run(world);
    ask_and_not_listen(world, 2, ANSWERS_BACKLOG_MAX + 1, 0);
    fanout_world_run(world);
    expect_failed(world, 2, "it asks, and does not take the answers");
    assert_true(session_is_closed(world->client));
    assert_int_equal(fanout_outcome(world->fanout, 0), SESSION_COMPLETE);
    assert_int_equal(fanout_outcome(world->fanout, 1), SESSION_COMPLETE);
}

/* The same about what was not sent: all else have what they have, and their summary counts. */
static void a_question_that_may_not_be_asked_harms_nobody_else(void **state)
{
    struct fanout_world *world = *state;
    scratch_directory(world->scratch, "here/t");
    scratch_write(world->scratch, "here/t/f", "x");
    for (unsigned i = 0; i < 2; i++) {
        world->request.wishes.bits =
            WISH_RECURSIVE | WISH_IGNORE_TIMES | (i == 0 ? WISH_DELETE : 0);
        world->nodes[2].lags = true;
        fanout_world_begin(world, "t", 3);
        fanout_world_run(world);
        ask_and_not_listen(world, 2, 1, i == 0 ? 1 : 0);
        fanout_world_run(world);
        expect_failed(world, 2, "a question that it may not ask");
        assert_true(session_is_closed(world->client));
        assert_int_equal(session_outcome(world->client), SESSION_COMPLETE);
        assert_int_equal(fanout_outcome(world->fanout, 0), SESSION_COMPLETE);
        assert_int_equal(fanout_outcome(world->fanout, 1), SESSION_COMPLETE);
    }
}

/* A server's session that nobody has asked for; what it hears, and whether it goes on then. */
static bool goes_on(struct fanout_world *world, const char *hop_name, const void *bytes,
                    size_t length)
{
    struct node *node = &world->nodes[0];
    struct session_service service = {.root = node->root, .device = "x", .relays = &node->host};
    struct memory_pair *pair = memory_pair_create();
    snprintf(service.hop_name, sizeof(service.hop_name), "%s", hop_name);
    struct session *session =
        session_create_server(memory_pair_link(pair, 1), &service, &node->own);
    memory_pair_inject(pair, 0, bytes, length);
    memory_pair_link(pair, 0)->events = memory_pair_link(pair, 1)->events; /* of no use */
    memory_pair_link(pair, 0)->user = session;
    memory_pair_step(pair);
    bool running = session_outcome(session) == SESSION_RUNNING;
    session_destroy(session);
    memory_pair_destroy(pair);
    return running;
}

static void strangers_feed_nobody(void **state)
{
    struct fanout_world *world = *state;
    uint8_t bytes[HOP_LENGTH_MAX], greeting[MESSAGE_HEAD_MAX];
    char name[HOP_NAME_LENGTH];
    scratch_directory(world->scratch, "here/t");
    fanout_world_begin(world, "t", 1);
    size_t length =
        hop_pack(&(struct hop_message){.type = HOP_JOIN, .version = HOP_VERSION}, bytes);
    struct memory_pair *pair = memory_pair_create();
    struct node *node = &world->nodes[0];
    const struct session_service service = {
        .root = node->root, .device = "x", .relays = &node->host};
    struct session *awaiting =
        session_create_server(memory_pair_link(pair, 1), &service, &node->own);
    memory_pair_inject(pair, 0, bytes, length);
    memory_pair_step(pair);
    size_t said_length;
    struct hop_message ready;
    const void *said = memory_pair_last_message(pair, 1, &said_length);
    assert_true(hop_parse(said, said_length, &ready) && ready.type == HOP_READY);
    hop_name(ready.ready.id, name);
    assert_non_null(relay_secret(&node->host, name));

    struct hop_message attach = {.type = HOP_ATTACH, .ready = ready.ready};
    length = hop_pack(&attach, bytes);
    assert_false(goes_on(world, "", bytes, length)); /* by another key than the one for this */
    assert_false(goes_on(world, "hop-00000000000000000000000000000000", bytes, length));
    attach.ready.id[0] ^= 1;
    length = hop_pack(&attach, bytes);
    assert_false(goes_on(world, name, bytes, length));
    /* with the secret for feeding it no copy of one's own is to be had, nor another fan-out */
    length = hop_pack(&(struct hop_message){.type = HOP_JOIN, .version = HOP_VERSION}, bytes);
    assert_false(goes_on(world, name, bytes, length));
    struct message hello = {.type = MESSAGE_HELLO};
    hello.hello.version = PROTOCOL_VERSION;
    hello.hello.direction = DIRECTION_PULL;
    hello.hello.sources = 1;
    assert_false(goes_on(world, name, greeting, protocol_pack(&hello, greeting)));
    assert_true(goes_on(world, "", greeting, protocol_pack(&hello, greeting)));

    session_destroy(awaiting);
    assert_null(relay_secret(&node->host, name));
    memory_pair_destroy(pair);
}

static void hear_nothing(void *user)
{
}

static void receive_nothing(void *user, const void *bytes, size_t length)
{
}

static void end_no_put(void *user, size_t offset)
{
}

static void close_nothing(void *user, const struct weir_error *reason)
{
}

/* One who says what the test injects, and hears nothing. */
static const struct link_events deaf = {.opened = hear_nothing,
                                        .received = receive_nothing,
                                        .put_done = end_no_put,
                                        .closed = close_nothing};

static void say_raw(struct memory_pair *pair, const void *bytes, size_t length)
{
    memory_pair_link(pair, 0)->events = &deaf;
    memory_pair_inject(pair, 0, bytes, length);
    while (memory_pair_step(pair)) {
    }
}

/* A server's session that awaits who is to feed it, as a client with one key alone can have it. */
struct own_feed {
    struct memory_pair *source, *inlet;
    struct session *session, *fed;
    struct hop_message ready;
};

static void join(struct own_feed *own, struct fanout_world *world)
{
    struct node *node = &world->nodes[0];
    const struct session_service service = {
        .root = node->root, .device = "x", .relays = &node->host};
    const struct hop_message join = {.type = HOP_JOIN, .version = HOP_VERSION};
    uint8_t bytes[HOP_LENGTH_MAX];
    size_t length;
    own->source = memory_pair_create();
    own->session = session_create_server(memory_pair_link(own->source, 1), &service, &node->own);
    say_raw(own->source, bytes, hop_pack(&join, bytes));
    const void *said = memory_pair_last_message(own->source, 1, &length);
    assert_true(hop_parse(said, length, &own->ready) && own->ready.type == HOP_READY);
}

static void greet(struct own_feed *own)
{
    uint8_t bytes[MESSAGE_HEAD_MAX];
    struct message hello = {.type = MESSAGE_HELLO};
    hello.hello.version = PROTOCOL_VERSION;
    hello.hello.direction = DIRECTION_PUSH;
    hello.hello.sources = 1;
    hello.hello.wishes.bits = WISH_RECURSIVE;
    hello.hello.path = (struct span){"/", 1};
    say_raw(own->source, bytes, protocol_pack(&hello, bytes));
    assert_int_equal(session_outcome(own->session), SESSION_RUNNING);
}

static void attach(struct own_feed *own, struct fanout_world *world)
{
    struct node *node = &world->nodes[0];
    struct session_service service = {.root = node->root, .device = "x", .relays = &node->host};
    const struct hop_message attach = {.type = HOP_ATTACH, .ready = own->ready.ready};
    uint8_t bytes[HOP_LENGTH_MAX];
    hop_name(own->ready.ready.id, service.hop_name);
    own->inlet = memory_pair_create();
    own->fed = session_create_server(memory_pair_link(own->inlet, 1), &service, &node->own);
    say_raw(own->inlet, bytes, hop_pack(&attach, bytes));
}

static void end_own_feed(struct own_feed *own)
{
    session_destroy(own->session);
    memory_pair_destroy(own->source);
    if (own->inlet != NULL) {
        session_destroy(own->fed);
        memory_pair_destroy(own->inlet);
    }
}

/* What nobody behind takes is held, but not without bound. */
static void who_sends_more_than_a_copy_has_is_ended(void **state)
{
    static const uint8_t alive = MESSAGE_ALIVE;
    struct fanout_world *world = *state;
    struct own_feed own = {0};
    scratch_directory(world->scratch, "here/t");
    fanout_world_begin(world, "t", 1);
    join(&own, world);
    greet(&own);
    attach(&own, world);
    for (unsigned i = 0; i < 300000 && memory_pair_last_abort(own.source)[0] == 0; i++) {
        say_raw(own.inlet, &alive, 1);
    }
    if (strstr(memory_pair_last_abort(own.source), "more is under way") == NULL) {
        fail_msg("ended, but: %s", memory_pair_last_abort(own.source));
    }
    end_own_feed(&own);
}

/* Neither a name nor an address is looked for before the source may push to here. */
static void who_is_not_welcome_has_nobody_fed(void **state)
{
    struct fanout_world *world = *state;
    struct own_feed own = {0};
    struct hop_message forward = {.type = HOP_FORWARD, .forward = {.address_count = 1}};
    uint8_t bytes[HOP_LENGTH_MAX];
    snprintf(forward.forward.addresses[0], HOP_ADDRESS_LENGTH, "0");
    scratch_directory(world->scratch, "here/t");
    for (unsigned greeted = 0; greeted < 2; greeted++) {
        fanout_world_begin(world, "t", 1);
        join(&own, world);
        if (greeted) {
            greet(&own);
        }
        unsigned wires = world->wire_count;
        forward.forward.token = own.ready.ready; /* it would feed itself */
        say_raw(own.source, bytes, hop_pack(&forward, bytes));
        assert_int_equal(world->wire_count - wires, greeted);
        end_own_feed(&own);
        own = (struct own_feed){0};
    }
}

/* One who is fed says from where on it lacks something: what was, and not what will be. */
static void who_takes_from_beyond_the_end_is_not_fed(void **state)
{
    static const struct {
        uint64_t position;
        const char *why;
    } cases[] = {
        {1, "it is too far behind"},
        {2, ""},
        {4, ""},
        {5, "it says that it has what it was not given"},
        {UINT64_MAX, "it says that it has what it was not given"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        static const uint8_t id[HOP_ID_LENGTH], alive = MESSAGE_ALIVE;
        struct memory_pair *pair = memory_pair_create();
        struct hop_message message = {.type = HOP_TAKE};
        struct stream stream = {0};
        uint8_t bytes[HOP_LENGTH_MAX];
        memory_pair_link(pair, 1)->events = &link_unheard;
        struct feed *feed = feed_create(memory_pair_link(pair, 0), &stream, id);
        for (unsigned j = 0; j < 4; j++) {
            assert_true(stream_add_message(&stream, &alive, 1));
        }
        stream_drop(&stream);
        stream_drop(&stream);
        message.take.position = cases[i].position;
        message.take.chunk_length = HOP_CHUNK_LENGTH;
        message.take.chunk_count = HOP_CHUNK_COUNT;
        message.take.remote.length = (uint64_t)HOP_CHUNK_LENGTH * HOP_CHUNK_COUNT;
        memory_pair_inject(pair, 1, bytes, hop_pack(&message, bytes));
        while (memory_pair_step(pair)) {
        }
        feed_pump(feed);
        assert_string_equal(feed_why(feed), cases[i].why);
        assert_int_equal(feed_has_begun(feed), cases[i].why[0] == 0);
        feed_destroy(feed);
        stream_clear(&stream);
        memory_pair_destroy(pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fanout_world_setup, fanout_world_teardown)
        T(a_link_that_lies_is_replaced),
        T(a_receiver_that_lies_fails_alone),
        T(a_summary_that_runs_over_harms_nobody_else),
        T(answers_that_are_not_taken_are_bounded),
        T(a_question_that_may_not_be_asked_harms_nobody_else),
        T(strangers_feed_nobody),
        cmocka_unit_test(who_takes_from_beyond_the_end_is_not_fed),
        T(who_sends_more_than_a_copy_has_is_ended),
        T(who_is_not_welcome_has_nobody_fed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
