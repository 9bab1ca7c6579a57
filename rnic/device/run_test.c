/* Packets that the link would join: a window that opens a little waits for the rest of a run. */
#include "rnic/device/pair_test.h"

#define RUN     7u
#define PACKETS (RUN * 140u)

static struct pair *create(void)
{
    struct pair *pair = pair_create(&pair_defaults);
    for (int i = 0; i < 2; i++) {
        pair->sides[i].sink.run_packets = 64;
        pair->sides[i].sink.run_bytes = RUN * (1024 + BTH_LENGTH + ICRC_LENGTH) + 100;
    }
    return pair;
}

static struct {
    struct instant turn;
    uint32_t packets; /* in this turn */
    uint32_t turns, broken;
} seen;

static enum fate watch(struct pair *pair, int side, uint32_t number, const struct packet *packet)
{
    if (side == 0 && packet->info->operation == OPERATION_WRITE) {
        if (seen.turn.ns != pair->now.ns) {
            seen.turns++;
            seen.broken += seen.packets % RUN != 0;
            seen.packets = 0;
            seen.turn = pair->now;
        }
        seen.packets++;
    }
    return pair->knob != 0 && number % pair->knob == pair->knob - 1 ? FATE_LOSE : FATE_DELIVER;
}

static void move(struct pair *pair, uint32_t packets)
{
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    memset(&seen, 0, sizeof seen);
    pair->script = watch;
    pair_fill(a, 0, packets * 1024, packets);
    pair_post_simple(a, WORK_WRITE, 1, 0, 0, packets * 1024);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    assert_memory_equal(a->buffer, b->buffer, packets * 1024);
}

static void only_whole_runs_leave(void **state)
{
    (void)state;
    struct pair *pair = create();
    move(pair, PACKETS);
    assert_in_range(seen.turns, 4, PACKETS / RUN);
    assert_int_equal(seen.broken, 0);
    move(pair, PACKETS + 3); /* its end leaves, too */
    assert_int_equal(seen.broken, 0);
    pair_destroy(pair);
}

/* One that has shrunk below some runs is used to the last packet, or it would never grow. */
static void small_windows_are_used_up(void **state)
{
    (void)state;
    struct pair *pair = create();
    pair->knob = 20;
    move(pair, PACKETS);
    assert_in_range(seen.broken, 1, seen.turns);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_runs_leave),
        cmocka_unit_test(small_windows_are_used_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
