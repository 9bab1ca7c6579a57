/* Packets that the link would join: a window that opens a little waits for the rest of a run, and
 * what is alike leaves as a train. */
#include "rnic/device/pair_test.h"
#include "rnic/transport/qp_private.h"
#include "rnic/transport/selective.h"

#define RUN     7u
#define PACKETS (RUN * 140u)

static struct {
    uint32_t count, packets, room; /* of one */
    uint32_t first, most;          /* under way before one */
} trains;

static uint32_t emit_train(struct packet_sink *sink, const struct train *train)
{
    struct train part = *train;
    part.count = part.count < trains.room ? part.count : trains.room;
    uint32_t taken = train_emit_singly(sink, &part);
    trains.first = trains.count == 0 ? train->under_way : trains.first;
    trains.most = train->under_way > trains.most ? train->under_way : trains.most;
    trains.count++;
    trains.packets += taken;
    return taken;
}

static struct pair *create_with(bool selective)
{
    struct pair_options options = pair_defaults;
    options.selective = selective;
    struct pair *pair = pair_create(&options);
    memset(&trains, 0, sizeof trains);
    trains.room = TRAIN_MAX;
    for (int i = 0; i < 2; i++) {
        pair->sides[i].sink.emit_train = emit_train;
        pair->sides[i].sink.run_packets = 64;
        pair->sides[i].sink.run_bytes = RUN * (1024 + BTH_LENGTH + ICRC_LENGTH) + 100;
    }
    return pair;
}

static struct pair *create(void)
{
    return create_with(false);
}

static struct {
    struct instant turn;
    uint32_t packets; /* in this turn */
    uint32_t turns, broken;
    uint32_t asked; /* for an acknowledgement */
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
        seen.asked += packet->ack_request;
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

/* Each costs both ends a call of the kernel. */
static void two_acknowledgements_are_asked_for_in_a_window(void **state)
{
    (void)state;
    struct pair *pair = create();
    move(pair, PACKETS); /* the window has grown */
    move(pair, PACKETS);
    uint32_t windows = PACKETS * 1024 / pair->sides[0].qp->congestion.window;
    assert_in_range(windows, 2, PACKETS / 64);
    assert_in_range(seen.asked, windows, 2 * windows + 3);
    pair_destroy(pair);
}

/* A loss has them repair from then on; what asks more often is only what knows of a gap. */
static void as_few_are_asked_for_once_a_loss_is_repaired(void **state)
{
    (void)state;
    struct pair *pair = create_with(true);
    pair->knob = 50;
    move(pair, PACKETS);
    pair->knob = 0;
    struct selective *selective = pair->sides[0].qp->selective;
    assert_non_null(selective);
    selective->share.limit = selective->share.window =
        PACKETS / 5 * 1024; /* several in a message */
    move(pair, PACKETS);
    assert_true(selective->repairing);
    assert_false(scoreboard_has_gap(&selective->board));
    uint32_t windows = PACKETS * 1024 / selective->share.window;
    assert_in_range(windows, 2, PACKETS / 64);
    assert_in_range(seen.asked, windows, 2 * windows + 3);
    pair_destroy(pair);
}

/* In pieces, the last of which is not a multiple of a packet. */
static void move_pieces(struct pair *pair, uint32_t length)
{
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    uint32_t first = 100 * 1024 + 300, second = 40 * 1024;
    struct sge sges[3] = {pair_sge(a, 0, first), pair_sge(a, first + 4096, second),
                          pair_sge(a, first + second, length - first - second)};
    struct send_request request = pair_request(a, WORK_WRITE, 1, sges, 0);
    request.sge_count = 3;
    pair_fill(a, 0, length, length);
    pair_post(a, &request);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_SUCCESS);
    assert_memory_equal(a->buffer, b->buffer, first);
    assert_memory_equal(a->buffer + first + 4096, b->buffer + first, second);
    assert_memory_equal(a->buffer + first + second, b->buffer + first + second,
                        length - first - second);
}

static struct pair *trace_of(uint32_t room, uint32_t lose)
{
    struct pair *pair = create();
    trains.room = room;
    pair->script = watch;
    pair->knob = lose;
    move_pieces(pair, 1000000);
    return pair;
}

/* What is seen on the wire is the same, whether the sink takes trains or one packet of each. */
static void a_train_is_its_packets(void **state)
{
    (void)state;
    for (uint32_t lose = 0; lose < 300; lose += 37) {
        struct pair *one = trace_of(1, lose);
        assert_int_equal(trains.packets, trains.count);
        struct pair *other = trace_of(TRAIN_MAX, lose);
        assert_true(trains.packets > trains.count);
        assert_string_equal(one->trace, other->trace);
        pair_destroy(one);
        pair_destroy(other);
    }
}

/* What the rate would go by if the network began to complain. */
static uint64_t measured(uint32_t room, uint32_t length)
{
    struct pair *pair = create();
    struct qp *qp = pair->sides[0].qp;
    struct allocator *allocator = qp->environment->allocator;
    qp->rate = allocator->allocate(allocator, sizeof *qp->rate);
    assert_non_null(qp->rate);
    rate_reset(qp->rate);
    trains.room = room;
    move_pieces(pair, length);
    uint64_t bytes = qp->rate->span_bytes;
    pair_destroy(pair);
    return bytes;
}

/* A message's first packet goes by itself. */
static void a_train_tells_what_is_under_way(void **state)
{
    (void)state;
    for (uint32_t selective = 0; selective < 2; selective++) {
        struct pair *pair = create_with(selective);
        move(pair, PACKETS);
        assert_int_equal(trains.first, 1024);
        assert_in_range(trains.most, 32 * 1024, PACKETS * 1024);
        pair_destroy(pair);
    }
}

static void a_train_counts_for_the_rate(void **state)
{
    (void)state;
    assert_int_equal(measured(1, 300000), 300000);
    assert_int_equal(measured(TRAIN_MAX, 300000), 300000);
    assert_true(trains.packets > trains.count);
}

/* The sink becomes full in the middle of trains. */
static void a_train_is_taken_in_parts(void **state)
{
    (void)state;
    struct pair *pair = create();
    for (trains.room = 0; trains.room < 5; trains.room++) {
        move_pieces(pair, 700000 + trains.room);
    }
    pair_destroy(pair);
}

static const uint8_t *missing;

static bool is_mapped(struct memory_probe *probe, uint8_t *bytes, uint64_t length, bool write)
{
    return bytes + length <= missing;
}

/* Pages may be missing of any that a train would bring. */
static void a_train_is_of_pages_that_are_there(void **state)
{
    (void)state;
    struct pair *pair = create();
    struct pair_side *a = &pair->sides[0], *b = &pair->sides[1];
    struct memory_probe probe = {is_mapped};
    struct memory *memory = device_memory(a->device);
    struct region_attributes region = {.domain = a->domain,
                                       .address = PAIR_BUFFER_ADDRESS,
                                       .length = PAIR_BUFFER_LENGTH,
                                       .bytes = a->buffer,
                                       .access = ACCESS_LOCAL_WRITE | ACCESS_ON_DEMAND};
    assert_int_equal(memory_deregister(memory, a->key), STATUS_OK);
    assert_int_equal(memory_register(memory, &region, &a->key), STATUS_OK);
    memory_set_probe(memory, &probe);
    missing = a->buffer + 54 * 1024;
    memset(a->buffer, 1, 100 * 1024);
    memset(b->buffer, 0, 100 * 1024);
    pair_post_simple(a, WORK_WRITE, 1, 0, 0, 100 * 1024);
    pair_run(pair);
    (void)pair_expect(a->sends, 1, COMPLETION_LOCAL_PROTECTION_ERROR);
    assert_true(trains.count > 0);
    assert_int_equal(b->buffer[50 * 1024], 1);
    assert_int_equal(b->buffer[54 * 1024], 0);
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_whole_runs_leave),
        cmocka_unit_test(small_windows_are_used_up),
        cmocka_unit_test(two_acknowledgements_are_asked_for_in_a_window),
        cmocka_unit_test(as_few_are_asked_for_once_a_loss_is_repaired),
        cmocka_unit_test(a_train_is_its_packets),
        cmocka_unit_test(a_train_tells_what_is_under_way),
        cmocka_unit_test(a_train_counts_for_the_rate),
        cmocka_unit_test(a_train_is_taken_in_parts),
        cmocka_unit_test(a_train_is_of_pages_that_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
