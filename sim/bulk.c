/* sim_bulk: streams between two hosts (streams.h) over links of all kinds, one world per seed; see
 * seeds.h.
 *
 * Where sim_swarm posts some requests of every kind in every state, here few kinds go on for so
 * long that windows, rates and the places for early packets bound them. The oracles, besides those
 * of the streams:
 *
 * - "stands": a queue pair with something to do completes nothing for too long. How long that is
 *   depends on what the links do.
 * - "repeats": half of what is sent has been sent before (three quarters, by go-back-N).
 * - "ends": what is outstanding completes soon when nothing more is posted.
 *
 * --lies makes each of the two a liar for the other (liar.h). Then only this is asked: that all
 * completes in its order, if only as failed, that nothing is left, and that the core holds. */
#include <string.h>

#include "sim/liar.h"
#include "sim/seeds.h"
#include "sim/streams.h"

#define MS             UINT64_C(1000000)
#define MBIT           UINT64_C(1000000)
#define POSTED_NS      (200 * MS)
#define POSTED_EVENTS  400000u
#define LIES_EVENTS    150000u /* more than most last for */
#define ENDS_NS        (120000 * MS)
#define ENDS_EVENTS    6000000u
#define STANDS_NS      (10000 * MS)
#define STANDS_SOON_NS (500 * MS) /* where both ends repeat selectively, and lose little */
#define LITTLE_LOSS    10000u
#define REPEATS_OF     1000u /* packets: fewer prove nothing */

enum own_option {
    OPTION_LIES = 128,
};

enum bulk_count {
    BULK_REQUESTS,
    BULK_PACKETS,
    BULK_REPEATED,
    BULK_EARLY,
    BULK_DROPPED, /* gaps told of by who could not keep what came early */
    BULK_REPORTS,
    BULK_PROBES,
    BULK_TIMEOUTS,
    BULK_MARKED,
    BULK_STOOD_MS,
    BULK_LIES,
    BULK_FAILED,
    BULK_COUNT,
};

struct bulk {
    struct simulator simulator;
    struct network network;
    struct dice dice;
    struct streams_config config;
    struct link_config link;
    struct streams *streams;
    bool is_cut;
    struct liar liars[2]; /* to host 0 and 1 */
};

static bool lies;

static void draw_queue(struct bulk *bulk)
{
    struct dice *dice = &bulk->dice;
    struct link_config *link = &bulk->link;
    if (dice_percent(dice, 60)) {
        link->drop_tail = true;
        link->queue_bytes = 16384u << dice_below(dice, 7);
    } else {
        link->queue_limit = 4u << dice_below(dice, 6);
    }
}

static void draw_links(struct bulk *bulk)
{
    static const uint64_t rates[] = {100 * MBIT, 1000 * MBIT, 10000 * MBIT, 40000 * MBIT};
    static const uint32_t losses[] = {0, 0, 300, 2000, LITTLE_LOSS, 50000};
    struct dice *dice = &bulk->dice;
    struct link_config *link = &bulk->link;
    link->bits_per_second = rates[dice_below(dice, sizeof rates / sizeof rates[0])];
    link->delay_ns = UINT64_C(1000) << dice_below(dice, 13);
    link->loss = losses[dice_below(dice, sizeof losses / sizeof losses[0])];
    link->duplicate = dice_percent(dice, 30) ? dice_below(dice, 30000) : 0;
    link->corrupt = dice_percent(dice, 10) ? 1000 : 0;
    link->refuse = dice_percent(dice, 10) ? 20000 : 0;
    if (dice_percent(dice, 30)) {
        link->reorder = dice_below(dice, 200000);
        link->reorder_ns = UINT64_C(1000) << dice_below(dice, 11);
    }
    if (dice_percent(dice, 40)) {
        link->mark = dice_below(dice, dice_percent(dice, 50) ? 3000 : 60000);
        bulk->config.traffic_class = 2;
    }
    if (dice_percent(dice, 10)) {
        link->burst_begin = 300;
        link->burst_end = 50000;
        link->burst_loss = 500000;
    }
    if (dice_percent(dice, 40)) {
        draw_queue(bulk);
    }
    network_set_links(&bulk->network, link);
    if (dice_percent(dice, 25)) {
        struct link_config back = *link;
        back.loss = back.duplicate = back.corrupt = back.reorder = back.burst_begin = 0;
        network_set_link(&bulk->network, 1, 0, &back);
    }
    if (dice_percent(dice, 8)) {
        struct instant from = {dice_below(dice, 20 * MS)};
        network_cut(&bulk->network, 0, 1, from, instant_after(from, dice_below(dice, 300 * MS)));
        bulk->is_cut = true;
    }
}

static void draw_hosts(struct bulk *bulk)
{
    struct dice *dice = &bulk->dice;
    struct streams_config *config = &bulk->config;
    bool slow = dice_percent(dice, 15);
    config->host = (struct host_config){
        .qpn_count = 64,
        .max_regions = 8,
        .max_reads_in = STREAM_READS_MAX,
        .budget = slow ? dice_range(dice, 1, 8) : 64,
        .again_ns = slow ? dice_range(dice, 200, 20000) : 0,
        .window_max = 65536u << dice_below(dice, 5),
        .joins = dice_percent(dice, 50),
    };
    uint32_t lot = dice_below(dice, 10);
    config->selective = lot < 7 ? 3 : lot == 7 ? 1 : 0;
    config->selective_packets = dice_percent(dice, 70) ? 4096 : 16u << dice_below(dice, 6);
}

static void draw_streams(struct bulk *bulk)
{
    struct dice *dice = &bulk->dice;
    struct streams_config *config = &bulk->config;
    config->flows = dice_range(dice, 1, STREAMS_MAX);
    config->depth = dice_range(dice, 1, STREAM_DEPTH_MAX);
    bool is_slow = bulk->link.bits_per_second == 100 * MBIT;
    config->message_max = is_slow || dice_percent(dice, 50) ? 16384 : STREAM_MESSAGE_MAX;
    config->reads_percent = dice_percent(dice, 30) ? 90 : dice_percent(dice, 30) ? 0 : 20;
    config->unready_ns = dice_percent(dice, 50) ? 1000 : 1000000;
    config->one_way = dice_percent(dice, 40);
    config->timeout = dice_percent(dice, 20) ? 0 : (uint8_t)dice_range(dice, 14, 18);
    config->lied_to = lies;
    if (lies) {
        config->timeout = (uint8_t)dice_range(dice, 8, 16);
    }
}

static void judge(struct bulk *bulk)
{
    const struct link_config *link = &bulk->link;
    bool is_selective = bulk->config.selective == 3;
    bool is_sound = is_selective && !bulk->is_cut && link->loss <= LITTLE_LOSS &&
                    link->burst_begin == 0 && !link->drop_tail;
    uint64_t stood_ns = streams_stood_ns(bulk->streams);
    uint64_t sent = streams_counter(bulk->streams, COUNTER_PACKETS_SENT);
    uint64_t repeated = streams_counter(bulk->streams, COUNTER_RETRANSMITTED_PACKETS);
    if (stood_ns > (is_sound ? STANDS_SOON_NS : STANDS_NS)) {
        simulator_violate(&bulk->simulator, "stands", "for %llu ms a queue pair completed nothing",
                          (unsigned long long)(stood_ns / MS));
    } else if (sent >= REPEATS_OF && repeated > (is_selective ? sent / 2 : sent / 4 * 3)) {
        simulator_violate(&bulk->simulator, "repeats", "%llu of %llu packets were sent before",
                          (unsigned long long)repeated, (unsigned long long)sent);
    }
}

static void play(struct bulk *bulk)
{
    struct simulator *simulator = &bulk->simulator;
    for (unsigned i = 0; lies && i < 2; i++) {
        liar_start(&bulk->liars[i], &bulk->network, bulk->streams, i, bulk->config.flows);
    }
    (void)simulator_run(simulator, (struct instant){POSTED_NS}, lies ? LIES_EVENTS : POSTED_EVENTS);
    streams_stop(bulk->streams);
    for (unsigned i = 0; i < 2; i++) {
        liar_stop(&bulk->liars[i]);
    }
    struct instant until = instant_after(simulator->now, ENDS_NS);
    if (!simulator_is_violated(simulator) &&
        simulator_run(simulator, until, ENDS_EVENTS) == SIMULATOR_LIMIT) {
        simulator_violate(simulator, "ends", "still busy after %llu events",
                          (unsigned long long)simulator->events_run);
    }
    if (!simulator_is_violated(simulator)) {
        streams_check_ended(bulk->streams);
    }
    if (!simulator_is_violated(simulator) && !lies) {
        judge(bulk);
    }
}

static void add_counts(const struct bulk *bulk, uint64_t *counts)
{
    static const enum counter counters[BULK_COUNT] = {
        [BULK_PACKETS] = COUNTER_PACKETS_SENT, [BULK_REPEATED] = COUNTER_RETRANSMITTED_PACKETS,
        [BULK_EARLY] = COUNTER_EARLY_PACKETS,  [BULK_DROPPED] = COUNTER_NAK_SEQUENCE_SENT,
        [BULK_REPORTS] = COUNTER_REPORTS_SENT, [BULK_PROBES] = COUNTER_PROBES,
        [BULK_TIMEOUTS] = COUNTER_TIMEOUTS,    [BULK_MARKED] = COUNTER_CONGESTION_MARKS,
    };
    for (unsigned i = BULK_PACKETS; i <= BULK_MARKED; i++) {
        counts[i] += streams_counter(bulk->streams, counters[i]);
    }
    counts[BULK_REQUESTS] += streams_done(bulk->streams);
    counts[BULK_STOOD_MS] += streams_stood_ns(bulk->streams) / MS;
    counts[BULK_LIES] += bulk->liars[0].told + bulk->liars[1].told;
    counts[BULK_FAILED] += streams_failed(bulk->streams);
}

static void run(uint64_t seed, FILE *trace, uint64_t *counts, struct run_result *ret_result)
{
    struct bulk bulk = {.dice = dice_split(seed, 19)};
    simulator_init(&bulk.simulator, seed, trace);
    bulk.simulator.trace_detail = true;
    network_init(&bulk.network, &bulk.simulator, seed);
    draw_links(&bulk);
    draw_hosts(&bulk);
    draw_streams(&bulk);
    bulk.streams = streams_make(&bulk.simulator, &bulk.network, &bulk.config);
    play(&bulk);
    add_counts(&bulk, counts);
    streams_end(bulk.streams);
    ret_result->ok = !simulator_is_violated(&bulk.simulator);
    ret_result->hash = bulk.simulator.hash;
    ret_result->profile = bulk.config.selective == 3 ? "selective" : "go_back";
    memcpy(ret_result->violation, bulk.simulator.violation, sizeof ret_result->violation);
    simulator_fini(&bulk.simulator);
}

static void print(const uint64_t *counts)
{
    static const char *const names[BULK_COUNT] = {
        [BULK_REQUESTS] = "requests", [BULK_PACKETS] = "packets",   [BULK_REPEATED] = "repeated",
        [BULK_EARLY] = "early",       [BULK_DROPPED] = "dropped",   [BULK_REPORTS] = "reports",
        [BULK_PROBES] = "probes",     [BULK_TIMEOUTS] = "timeouts", [BULK_MARKED] = "marked",
        [BULK_STOOD_MS] = "stood_ms", [BULK_LIES] = "lies",         [BULK_FAILED] = "failed",
    };
    for (unsigned i = 0; i < BULK_COUNT; i++) {
        printf("%s=%llu%c", names[i], (unsigned long long)counts[i],
               i + 1 < BULK_COUNT ? ' ' : '\n');
    }
}

static bool take_option(int choice, const char *argument)
{
    (void)argument;
    lies = choice == OPTION_LIES;
    return lies;
}

int main(int argc, char **argv)
{
    static const struct option own[] = {
        {"lies", no_argument, NULL, OPTION_LIES},
        {NULL, 0, NULL, 0},
    };
    static const struct seeds_program program = {
        .usage = " [--lies]",
        .options = own,
        .take_option = take_option,
        .run = run,
        .counts = BULK_COUNT,
        .print = print,
    };
    return seeds_main(argc, argv, &program);
}
