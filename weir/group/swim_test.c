/* One member's part of finding out who lives, by hand: what it sends when, and what it makes of
 * what it hears. That thousands of them agree is sim_members' to show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "weir/bytes.h"
#include "weir/group/swim.h"

#define SIZE   5u
#define SECOND UINT64_C(1000000000)

struct sent {
    uint32_t rank;
    uint64_t token;
    struct swim_message message;
    uint8_t bytes[SWIM_MESSAGE_MAX];
};

/* Member 0, and what came out of it. */
struct world {
    struct swim swim;
    struct sent sent[64];
    unsigned sent_count;
    struct sent replied;
    void *request;
    enum swim_state states[SIZE];
    uint64_t now_ns;
};

static void take_message(struct sent *sent, const uint8_t *bytes, size_t length)
{
    memcpy(sent->bytes, bytes, length);
    assert_null(swim_message_parse(sent->bytes, length, SIZE, &sent->message));
}

static void send(void *user, uint32_t rank, uint64_t token, const uint8_t *bytes, size_t length,
                 uint64_t timeout_ns)
{
    struct world *world = user;
    struct sent *sent = &world->sent[world->sent_count++ % 64];
    sent->rank = rank;
    sent->token = token;
    take_message(sent, bytes, length);
}

static void reply(void *user, void *request, const uint8_t *bytes, size_t length)
{
    struct world *world = user;
    world->request = request;
    take_message(&world->replied, bytes, length);
}

static void changed(void *user, uint32_t rank, enum swim_state state)
{
    struct world *world = user;
    world->states[rank] = state;
}

static const struct swim_port port = {send, reply, changed};

static void open_world(struct world *world)
{
    struct swim_options options = {.size = SIZE,
                                   .seed = 1,
                                   .period_ns = SECOND,
                                   .probe_ns = SECOND / 3,
                                   .suspicion_ns = 8 * SECOND,
                                   .indirect = 3};
    memset(world, 0, sizeof(*world));
    world->now_ns = 100 * SECOND;
    assert_true(swim_init(&world->swim, &port, world, &options, world->now_ns));
}

static void advance(struct world *world)
{
    world->now_ns = swim_next_ns(&world->swim);
    swim_advance(&world->swim, world->now_ns);
}

static struct sent *last(struct world *world)
{
    assert_true(world->sent_count > 0);
    return &world->sent[(world->sent_count - 1) % 64];
}

static size_t make(struct swim_message message, const struct swim_item *news, unsigned count,
                   uint8_t *bytes)
{
    message.size = SIZE;
    message.news_count = count;
    swim_header_pack(&message, bytes);
    for (unsigned i = 0; i < count; i++) {
        put_u32(bytes + SWIM_HEADER_LENGTH + 8 * i, news[i].rank);
        put_u32(bytes + SWIM_HEADER_LENGTH + 8 * i + 4, news[i].standing);
    }
    return SWIM_HEADER_LENGTH + 8 * count;
}

static void answer(struct world *world, const struct sent *sent, enum swim_kind kind)
{
    uint8_t bytes[SWIM_MESSAGE_MAX];
    struct swim_message answer = {
        .kind = kind, .from = sent->rank, .subject = sent->message.subject};
    size_t length = make(answer, NULL, 0, bytes);
    swim_answered(&world->swim, world->now_ns, sent->token, bytes, length);
}

static void acknowledge(struct world *world, const struct sent *sent)
{
    answer(world, sent, SWIM_ACK);
}

static bool ping(struct world *world, struct swim_message message, const struct swim_item *news,
                 unsigned count)
{
    static int request;
    uint8_t bytes[SWIM_MESSAGE_MAX];
    message.kind = message.kind != 0 ? message.kind : SWIM_PING;
    message.from = message.from != 0 ? message.from : 1;
    size_t length = make(message, news, count, bytes);
    world->request = NULL;
    return swim_take(&world->swim, world->now_ns, &request, bytes, length);
}

/* Each of the others once, before any of them again. */
static void test_all_in_turn(void **state)
{
    struct world world;
    open_world(&world);
    for (unsigned round = 0; round < 20; round++) {
        unsigned seen = 0;
        for (unsigned i = 1; i < SIZE; i++) {
            unsigned before = world.sent_count;
            while (world.sent_count == before) {
                advance(&world);
            }
            assert_int_equal(last(&world)->message.kind, SWIM_PING);
            seen |= 1u << last(&world)->rank;
            acknowledge(&world, last(&world));
        }
        assert_int_equal(seen, 0x1e);
    }
    swim_fini(&world.swim);
}

static void test_silent_is_asked_for_then_suspect_then_dead(void **state)
{
    struct world world;
    open_world(&world);
    advance(&world);
    struct sent first = *last(&world);
    uint64_t probed_ns = world.now_ns;
    advance(&world);
    assert_int_equal(world.now_ns - probed_ns, SECOND / 3);
    assert_in_range(world.sent_count, 2, 4); /* others, chosen at random, each once */
    for (unsigned i = 1; i < world.sent_count; i++) {
        assert_int_equal(world.sent[i].message.kind, SWIM_ASK);
        assert_int_equal(world.sent[i].message.subject, first.rank);
        assert_int_not_equal(world.sent[i].rank, first.rank);
        answer(&world, &world.sent[i], SWIM_NACK); /* they are well, and so are we */
    }
    advance(&world);
    assert_int_equal(world.now_ns - probed_ns, SECOND);
    assert_int_equal(world.states[first.rank], SWIM_SUSPECT);
    unsigned answered = world.sent_count, again = 0;
    while (world.states[first.rank] == SWIM_SUSPECT) {
        for (; answered < world.sent_count; answered++) {
            struct sent *sent = &world.sent[answered % 64];
            again += sent->rank == first.rank;
            if (sent->rank != first.rank) {
                answer(&world, sent, sent->message.subject == first.rank ? SWIM_NACK : SWIM_ACK);
            }
        }
        advance(&world);
    }
    assert_in_range(again, 7, 8); /* once in each period */
    assert_in_range(world.now_ns - probed_ns, 9 * SECOND, 9 * SECOND);
    assert_int_equal(world.states[first.rank], SWIM_DEAD);
    /* Its next is that it lives. */
    struct swim_message alive = {.from = first.rank, .own = swim_standing(1, SWIM_ALIVE)};
    assert_true(ping(&world, alive, NULL, 0));
    assert_int_equal(world.states[first.rank], SWIM_ALIVE);
    swim_fini(&world.swim);
}

static void test_answer_through_another(void **state)
{
    struct world world;
    open_world(&world);
    advance(&world);
    uint32_t subject = last(&world)->rank;
    advance(&world);
    assert_int_equal(last(&world)->message.kind, SWIM_ASK);
    acknowledge(&world, last(&world));
    advance(&world);
    assert_int_equal(world.states[subject], SWIM_ALIVE);
    swim_fini(&world.swim);
}

static void test_it_answers_rumors_of_itself(void **state)
{
    struct world world;
    open_world(&world);
    struct swim_message message = {.held = swim_standing(4, SWIM_DEAD)};
    assert_true(ping(&world, message, NULL, 0));
    assert_non_null(world.request);
    assert_int_equal(world.replied.message.kind, SWIM_ACK);
    assert_int_equal(world.replied.message.own, swim_standing(5, SWIM_ALIVE));
    struct swim_item news[] = {{0, swim_standing(5, SWIM_DEAD)}};
    assert_true(ping(&world, (struct swim_message){0}, news, 1));
    assert_int_equal(world.replied.message.own, swim_standing(6, SWIM_ALIVE));
    /* Also at the end of all numbers. */
    news[0].standing = swim_standing(0x3fffffff, SWIM_DEAD);
    assert_true(ping(&world, (struct swim_message){0}, news, 1));
    assert_int_equal(world.replied.message.own, swim_standing(6, SWIM_ALIVE)); /* that is older */
    news[0].standing = swim_standing(0x1fffffff, SWIM_DEAD);
    assert_true(ping(&world, (struct swim_message){0}, news, 1));
    assert_int_equal(world.replied.message.own, swim_standing(0x20000000, SWIM_ALIVE));
    swim_fini(&world.swim);
}

static void test_newer_wins(void **state)
{
    static const struct {
        uint32_t incarnation;
        enum swim_state says, is;
    } steps[] = {
        {0, SWIM_SUSPECT, SWIM_ALIVE}, /* which is the business of who says so */
        {1, SWIM_ALIVE, SWIM_ALIVE},   {0, SWIM_DEAD, SWIM_ALIVE}, {1, SWIM_DEAD, SWIM_DEAD},
        {1, SWIM_SUSPECT, SWIM_DEAD},  {1, SWIM_LEFT, SWIM_LEFT},  {1, SWIM_DEAD, SWIM_LEFT},
        {2, SWIM_ALIVE, SWIM_ALIVE},
    };
    struct world world;
    open_world(&world);
    for (unsigned i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
        struct swim_item news[] = {{3, swim_standing(steps[i].incarnation, steps[i].says)}};
        assert_true(ping(&world, (struct swim_message){0}, news, 1));
        assert_int_equal(world.states[3], steps[i].is);
    }
    assert_int_equal(world.swim.view.absent, 0);
    swim_fini(&world.swim);
}

/* It was stopped; what came meanwhile is read before it accuses anybody. */
static void test_stopped(void **state)
{
    struct world world;
    open_world(&world);
    advance(&world);
    struct sent first = *last(&world);
    world.now_ns += 1000 * SECOND;
    unsigned before = world.sent_count;
    swim_advance(&world.swim, world.now_ns);
    assert_int_equal(world.sent_count, before);
    acknowledge(&world, &first);
    advance(&world);
    for (uint32_t rank = 0; rank < SIZE; rank++) {
        assert_int_equal(world.states[rank], SWIM_ALIVE);
    }
    swim_fini(&world.swim);
}

static void test_what_is_not_understood(void **state)
{
    static const struct swim_message wrong[] = {
        {.kind = SWIM_ACK},        {.subject = 1}, /* a ping of another */
        {.subject = SIZE},         {.from = SIZE},
        {.kind = SWIM_KIND_END},   {.digest_count = 2},
        {.entry_count = SIZE + 1}, {.entry_count = 1, .block = 1},
    };
    struct world world;
    uint8_t bytes[SWIM_MESSAGE_MAX];
    open_world(&world);
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_false(ping(&world, wrong[i], NULL, 0));
    }
    struct swim_item news[] = {{SIZE, 0}};
    assert_false(ping(&world, (struct swim_message){0}, news, 1));
    struct swim_message own = {.kind = SWIM_PING, .size = SIZE}; /* from our own rank */
    swim_header_pack(&own, bytes);
    assert_false(swim_take(&world.swim, world.now_ns, bytes, bytes, SWIM_HEADER_LENGTH));
    own.from = 1;
    own.size = SIZE + 1;
    swim_header_pack(&own, bytes);
    assert_false(swim_take(&world.swim, world.now_ns, bytes, bytes, SWIM_HEADER_LENGTH));
    own.size = SIZE;
    swim_header_pack(&own, bytes);
    for (size_t length = 0; length < SWIM_HEADER_LENGTH; length++) {
        assert_false(swim_take(&world.swim, world.now_ns, bytes, bytes, length));
    }
    assert_false(swim_take(&world.swim, world.now_ns, bytes, bytes, SWIM_HEADER_LENGTH + 1));
    swim_fini(&world.swim);
}

/* Probes for others are bounded; who asks beyond that hears so at once. */
static void test_relays(void **state)
{
    struct world world;
    open_world(&world);
    struct swim_message ask = {.kind = SWIM_ASK, .subject = 2};
    for (unsigned i = 0; i < SWIM_RELAYS; i++) {
        assert_true(ping(&world, ask, NULL, 0));
        assert_null(world.request);
        assert_int_equal(last(&world)->rank, 2);
    }
    assert_true(ping(&world, ask, NULL, 0));
    assert_non_null(world.request);
    assert_int_equal(world.replied.message.kind, SWIM_NACK);
    world.request = NULL;
    acknowledge(&world, last(&world));
    assert_non_null(world.request);
    assert_int_equal(world.replied.message.kind, SWIM_ACK);
    for (unsigned i = 0; i < 10; i++) {
        advance(&world);
    }
    assert_int_equal(world.replied.message.kind, SWIM_NACK); /* the others' time is over */
    swim_fini(&world.swim);
}

/* The worst of rumors, to it alone: who has heard none of them, and it, agree on what is newer. */
static void test_no_rumor_divides(void **state)
{
    struct world world;
    open_world(&world);
    for (unsigned says = SWIM_ALIVE; says <= SWIM_LEFT; says++) {
        uint32_t own = world.swim.view.standings[0];
        uint32_t most = swim_standing(swim_incarnation_of(own + INT32_MAX), says);
        struct swim_item news[] = {{0, most}};
        assert_true(ping(&world, (struct swim_message){.subject = 0}, news, 1));
        uint32_t says_now = world.swim.view.standings[0];
        assert_int_equal(swim_state_of(says_now), SWIM_ALIVE);
        assert_true(says_now == own ||
                    swim_is_newer(says_now, own) != swim_is_newer(own, says_now));
    }
    swim_fini(&world.swim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_in_turn),
        cmocka_unit_test(test_silent_is_asked_for_then_suspect_then_dead),
        cmocka_unit_test(test_answer_through_another),
        cmocka_unit_test(test_it_answers_rumors_of_itself),
        cmocka_unit_test(test_no_rumor_divides),
        cmocka_unit_test(test_newer_wins),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_what_is_not_understood),
        cmocka_unit_test(test_relays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
