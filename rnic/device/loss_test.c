/* Operations through a wire that loses, repeats and reorders: everything completes once, in order,
 * with the right bytes. */
#include "rnic/device/pair_test.h"
#include "rnic/memory/window.h"

#define REMOTE 2097152u

static enum fate lose_number(struct pair *pair, int side, uint32_t number,
                             const struct packet *packet)
{
    uint32_t lost = pair->knob >> 1;
    return (uint32_t)side == (pair->knob & 1) && number == lost ? FATE_LOSE : FATE_DELIVER;
}

/* Loses the n-th packet of one direction, for every n until there is none. */
static void lose_each(enum work_kind kind, uint32_t length)
{
    for (uint32_t side = 0; side < 2; side++) {
        bool lost = true;
        for (uint32_t number = 0; lost; number++) {
            struct pair *pair = pair_create(&pair_defaults);
            struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
            pair->script = lose_number;
            pair->knob = number << 1 | side;
            pair_fill(a, 0, length, 3);
            pair_fill(b, REMOTE, length, 4);
            struct sge sge = pair_sge(a, 0, length);
            for (uint64_t id = 0; id < 3; id++) {
                pair_post_receive(b, id, REMOTE, length);
                struct send_request request = pair_request(a, kind, id, &sge, REMOTE);
                request.swap_or_add = 1;
                pair_post(a, &request);
            }
            uint64_t before;
            memcpy(&before, b->buffer + REMOTE, sizeof before);
            pair_run(pair);
            for (uint64_t id = 0; id < 3; id++) {
                (void)pair_expect(a->sends, id, COMPLETION_SUCCESS);
                if (kind == WORK_SEND || kind == WORK_WRITE_IMMEDIATE) {
                    (void)pair_expect(b->receives, id, COMPLETION_SUCCESS);
                }
            }
            pair_expect_none(a->sends);
            pair_expect_none(b->receives);
            if (kind == WORK_FETCH_ADD) {
                uint64_t after;
                memcpy(&after, b->buffer + REMOTE, sizeof after);
                assert_int_equal(after, before + 3);
            } else {
                assert_memory_equal(a->buffer, b->buffer + REMOTE, length);
            }
            lost = pair->sides[side].sent > number;
            pair_destroy(pair);
        }
    }
}

static void a_lost_packet_of_a_send_is_repeated(void **state)
{
    lose_each(WORK_SEND, 1000);
    lose_each(WORK_SEND, 5000);
}

static void a_lost_packet_of_a_write_is_repeated(void **state)
{
    lose_each(WORK_WRITE, 5000);
    lose_each(WORK_WRITE_IMMEDIATE, 5000);
    lose_each(WORK_WRITE, 0);
}

static void a_lost_packet_of_a_read_is_repeated(void **state)
{
    lose_each(WORK_READ, 500);
    lose_each(WORK_READ, 5000);
    lose_each(WORK_READ, 140000);
}

static void a_lost_packet_of_an_atomic_executes_it_once(void **state)
{
    lose_each(WORK_FETCH_ADD, 8);
}

/* `knob` is the share of packets in 1/1000 that something happens to. */
static enum fate misbehave(struct pair *pair, int side, uint32_t number,
                           const struct packet *packet)
{
    if (random_below(&pair->random, 1000) >= pair->knob) {
        return FATE_DELIVER;
    }
    return (enum fate)(1 + random_below(&pair->random, 3));
}

struct plan {
    uint64_t seed;
    uint32_t knob;
    enum path_mtu mtu;
    uint8_t max_reads;
};

#define PLAN_COUNT    60u
#define PLAN_STRIDE   30000u
#define PLAN_COUNTER  4000000u /* offset of the number that atomics count up */
#define PLAN_RECEIVES 3600000u

static void post_planned(struct pair *pair, struct random *random, uint32_t index,
                         enum work_kind *ret_kind, uint32_t *ret_length)
{
    static const enum work_kind kinds[] = {WORK_SEND, WORK_SEND_IMMEDIATE,  WORK_WRITE,
                                           WORK_READ, WORK_WRITE_IMMEDIATE, WORK_FETCH_ADD};
    struct pair_side *a = &pair->sides[0];
    enum work_kind kind = kinds[random_below(random, 6)];
    uint32_t length = (uint32_t)random_below(random, 4) == 0
                          ? (uint32_t)random_below(random, PLAN_STRIDE)
                          : (uint32_t)random_below(random, 3000);
    bool atomic = kind == WORK_FETCH_ADD;
    length = atomic ? 8 : length;
    uint32_t offset = index * PLAN_STRIDE;
    pair_fill(&pair->sides[kind == WORK_READ], kind == WORK_READ ? offset + 1800000u : offset,
              atomic ? 0 : length, index);
    struct sge sge = pair_sge(a, offset, length);
    struct send_request request =
        pair_request(a, kind, index, &sge, atomic ? PLAN_COUNTER : offset + 1800000u);
    request.swap_or_add = 1;
    request.immediate = index;
    request.fence = random_below(random, 4) == 0;
    pair_post(a, &request);
    *ret_kind = kind;
    *ret_length = length;
}

static bool takes_receive(enum work_kind kind)
{
    return kind == WORK_SEND || kind == WORK_SEND_IMMEDIATE || kind == WORK_WRITE_IMMEDIATE;
}

static void run_plan(const struct plan *plan)
{
    struct pair_options options = pair_defaults;
    options.mtu = plan->mtu;
    options.max_reads = plan->max_reads;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct random random;
    random_seed(&random, plan->seed);
    random_seed(&pair->random, plan->seed + 1);
    pair->script = misbehave;
    pair->knob = plan->knob;

    enum work_kind kinds[PLAN_COUNT];
    uint32_t lengths[PLAN_COUNT];
    uint32_t places[PLAN_COUNT];
    uint32_t receives = 0;
    for (uint32_t i = 0; i < PLAN_COUNT; i++) {
        post_planned(pair, &random, i, &kinds[i], &lengths[i]);
        places[i] = i * PLAN_STRIDE + 1800000u;
        if (takes_receive(kinds[i])) {
            pair_post_receive(b, i, places[i], lengths[i]);
            receives++;
        }
    }
    pair_run(pair);
    uint64_t atomics = 0;
    for (uint32_t i = 0; i < PLAN_COUNT; i++) {
        (void)pair_expect(a->sends, i, COMPLETION_SUCCESS);
        if (takes_receive(kinds[i])) {
            struct completion completion = pair_expect(b->receives, i, COMPLETION_SUCCESS);
            assert_int_equal(completion.byte_length, lengths[i]);
            assert_int_equal(completion.has_immediate, kinds[i] != WORK_SEND);
        }
        if (kinds[i] == WORK_FETCH_ADD) {
            uint64_t seen;
            memcpy(&seen, a->buffer + i * PLAN_STRIDE, sizeof seen);
            assert_int_equal(seen, atomics);
            atomics++;
        } else {
            assert_memory_equal(a->buffer + i * PLAN_STRIDE, b->buffer + places[i], lengths[i]);
        }
    }
    pair_expect_none(a->sends);
    pair_expect_none(b->receives);
    pair_destroy(pair);
}

static void random_work_survives_a_bad_wire(void **state)
{
    static const uint32_t knobs[] = {5, 30, 100, 250};
    for (uint64_t seed = 0; seed < 80; seed++) {
        struct plan plan = {
            .seed = seed,
            .knob = knobs[seed % 4],
            .mtu = (enum path_mtu)(PATH_MTU_256 + seed % 5),
            .max_reads = (uint8_t)(1 + seed % 3),
        };
        run_plan(&plan);
    }
}

#define TURN 16u /* packets of a queue pair before others have their turn */

/* What is on the way of one side arrives, and the other answers. */
static void cross(struct pair_side *from)
{
    struct pair *pair = from->pair;
    pair->now = instant_after(pair->now, PAIR_DELAY_NS);
    pair_deliver(from);
    (void)device_advance(pair->sides[1 - from->index].device, pair->now, TURN);
}

/* A bind is done, but waits behind WRITEs of which the first was lost. Their repetition fills a
 * turn, and the answer to it comes before the next: so all have left the queue while the cursor
 * still stands before the bind. */
static void a_bind_behind_what_is_repeated(void **state)
{
    struct pair_options options = pair_defaults;
    options.mtu = PATH_MTU_256;
    struct pair *pair = pair_create(&options);
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct memory *memory = device_memory(a->device);
    struct memory_key window;
    assert_int_equal(window_allocate(memory, a->domain, WINDOW_TYPE_2, &window), STATUS_OK);
    struct window_bind bind = {window, window, a->key, PAIR_BUFFER_ADDRESS, 8, ACCESS_REMOTE_READ};
    pair->script = lose_number; /* A's number 0 */
    for (uint64_t id = 0; id < TURN; id++) {
        pair_post_simple(a, WORK_WRITE, id, 0, REMOTE, 8);
    }
    struct send_request request = {
        .id = TURN, .kind = WORK_BIND_WINDOW, .signaled = true, .bind = &bind};
    pair_post(a, &request);

    (void)device_advance(a->device, pair->now, 2 * TURN);
    cross(a);
    cross(b);
    assert_int_equal(a->sent, 2 * TURN);
    cross(a);
    pair->now = instant_after(pair->now, PAIR_DELAY_NS);
    pair_deliver(b);
    for (uint64_t id = 0; id <= TURN; id++) {
        (void)pair_expect(a->sends, id, COMPLETION_SUCCESS);
    }
    pair_post_simple(a, WORK_WRITE, TURN + 1, 0, REMOTE, 8);
    pair_run(pair);
    (void)pair_expect(a->sends, TURN + 1, COMPLETION_SUCCESS);
    assert_int_equal(window_free(memory, window), STATUS_OK);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_packet_of_a_send_is_repeated),
        cmocka_unit_test(a_lost_packet_of_a_write_is_repeated),
        cmocka_unit_test(a_lost_packet_of_a_read_is_repeated),
        cmocka_unit_test(a_lost_packet_of_an_atomic_executes_it_once),
        cmocka_unit_test(a_bind_behind_what_is_repeated),
        cmocka_unit_test(random_work_survives_a_bad_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
