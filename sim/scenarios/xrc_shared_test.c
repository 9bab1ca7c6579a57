/* An XRC domain of several processes, at random: whatever is lost on the wire or between processes,
 * every SEND comes out once, every WRITE and READ is right, every atomic counts once; and where a
 * process dies, everything ends. So it is with targets that are reset and connected anew. */
#include "sim/scenarios/xrc_shared.h"

static bool is_reset[LINES];
static uint32_t given_up[LINES]; /* requests of the connection before */

static void post_random(void *context, uint64_t index)
{
    static const enum work_kind kinds[] = {WORK_SEND,  WORK_SEND_IMMEDIATE,
                                           WORK_WRITE, WORK_WRITE_IMMEDIATE,
                                           WORK_READ,  WORK_FETCH_ADD};
    (void)context;
    struct line *line = &w.lines[index];
    uint32_t burst = dice_range(&w.dice, 1, 6);
    unsigned node = 1 + dice_below(&w.dice, NODES - 1);
    while (burst-- > 0 && line->op_count < OPS && !is_reset[index]) {
        struct op op = {.kind = kinds[dice_below(&w.dice, 6)], .node = node};
        uint32_t most = dice_percent(&w.dice, 5) ? LONG : LENGTH;
        op.length = op.kind == WORK_FETCH_ADD ? 8 : dice_range(&w.dice, 4, most);
        if (dice_percent(&w.dice, 40)) {
            op.node = 1 + dice_below(&w.dice, NODES - 1);
        }
        post_op((uint32_t)index, op);
    }
    if (line->op_count < OPS) {
        simulator_after(&w.simulator, dice_below(&w.dice, 300000), post_random, NULL, index);
    }
}

static void begin_random(void)
{
    for (unsigned i = 1; i < NODES; i++) {
        uint32_t count = dice_below(&w.dice, RECEIVES);
        for (uint32_t n = 0; n < RECEIVES; n++) {
            simulator_after(&w.simulator, n < count ? 0 : dice_below(&w.dice, 2000000), post_later,
                            &w.nodes[i], 0);
        }
    }
    for (uint32_t i = 0; i < LINES; i++) {
        simulator_after(&w.simulator, dice_below(&w.dice, 1000), post_random, NULL, i);
    }
}

static void every_message_comes_once(void **state)
{
    (void)state;
    static const struct link_config links[] = {
        {.delay_ns = 1000},
        {.delay_ns = 5000, .reorder = 30000, .reorder_ns = 4000, .duplicate = 30000},
        {.delay_ns = 5000, .loss = 30000, .reorder = 20000, .reorder_ns = 4000, .duplicate = 10000},
        {.delay_ns = 5000, .queue_limit = 4, .bits_per_second = 1000000000},
    };
    uint64_t relayed = 0, lost = 0, not_ready = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        start(seed, &links[seed % 4], TIMEOUT);
        w.neighbours.loss = seed % 3 == 0 ? 50000 : 0;
        w.neighbours.jitter_ns = seed % 5 == 0 ? 20000 : 500;
        begin_random();
        run(RUN_NS);
        judge(seed, true);
        relayed += counter(1, COUNTER_RELAYED_REQUESTS) + counter(2, COUNTER_RELAYED_REQUESTS);
        not_ready += counter(1, COUNTER_RNR_NAK_SENT) + counter(2, COUNTER_RNR_NAK_SENT);
        lost += w.neighbours.lost;
        stop();
    }
    assert_true(relayed > 10000 && not_ready > 100 && lost > 100); /* it was put to the test */
}

static void die(void *context, uint64_t unused)
{
    (void)unused;
    host_die(context);
}

/* A line whose target lives and that named no queue of the dead is not touched by its death. */
static bool is_spared(const struct line *line, unsigned dead)
{
    bool named = false;
    for (uint32_t i = 0; i < line->op_count; i++) {
        named |= line->ops[i].node == dead;
    }
    return line->target_node != dead && !named;
}

static void a_death_ends_what_it_must(void **state)
{
    (void)state;
    static const struct link_config link = {.delay_ns = 5000, .loss = 5000};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        start(seed, &link, TIMEOUT);
        unsigned dead = 1 + (unsigned)(seed % 3);
        w.neighbours.loss = seed % 2 == 0 ? 50000 : 0;
        begin_random();
        simulator_after(&w.simulator, dice_below(&w.dice, 3000000), die, &w.nodes[dead].host, 0);
        run(RUN_NS);
        judge(seed, false);
        for (uint32_t i = 0; i < LINES; i++) {
            const struct line *line = &w.lines[i];
            for (uint32_t n = 0; is_spared(line, dead) && n < line->op_count; n++) {
                assert_int_equal(line->ops[n].status, COMPLETION_SUCCESS);
            }
        }
        stop();
    }
}

static void connect_again(void *context, uint64_t index)
{
    struct line *line = &w.lines[index];
    (void)context;
    w.first_psn = psn_make((uint32_t)(1 + index) << 22); /* nothing of before is near */
    connect_qp(0, line->target_node, line->initiator, line->target);
    connect_qp(line->target_node, 0, line->target, line->initiator);
    is_reset[index] = false;
}

static void reset_initiator(void *context, uint64_t index)
{
    struct line *line = &w.lines[index];
    (void)context;
    modify(&w.nodes[0], line->initiator, (struct qp_attributes){.port = 1}, QP_RESET, 0);
    for (; line->done < line->op_count; line->done++) {
        line->ops[line->done].status = COMPLETION_FLUSHED; /* of which nothing is told */
    }
    is_reset[index] = true;
    given_up[index] = line->op_count;
    simulator_after(&w.simulator, 20000 + dice_below(&w.dice, 50000), connect_again, NULL, index);
}

static void reset_target(void *context, uint64_t index)
{
    struct line *line = &w.lines[index];
    (void)context;
    modify(&w.nodes[line->target_node], line->target, (struct qp_attributes){.port = 1}, QP_RESET,
           0);
}

/* What deputies have heard of the former connection concerns the new one in nothing. */
static void a_target_is_used_again(void **state)
{
    (void)state;
    static const struct link_config link = {
        .delay_ns = 5000, .loss = 5000, .reorder = 20000, .reorder_ns = 4000};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        start(seed, &link, TIMEOUT);
        w.neighbours.loss = seed % 2 == 0 ? 50000 : 0;
        begin_random();
        for (uint32_t i = 0; i < LINES; i++) {
            uint64_t begins_ns = dice_below(&w.dice, 2000000);
            simulator_after(&w.simulator, begins_ns + dice_below(&w.dice, 20000), reset_initiator,
                            NULL, i);
            simulator_after(&w.simulator, begins_ns + dice_below(&w.dice, 20000), reset_target,
                            NULL, i);
        }
        run(RUN_NS);
        judge(seed, false);
        for (uint32_t i = 0; i < LINES; i++) {
            const struct line *line = &w.lines[i];
            for (uint32_t n = given_up[i]; n < line->op_count; n++) {
                assert_int_equal(line->ops[n].status, COMPLETION_SUCCESS);
            }
        }
        stop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_comes_once),
        cmocka_unit_test(a_death_ends_what_it_must),
        cmocka_unit_test(a_target_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
