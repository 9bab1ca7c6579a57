#include "sim/world.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/container.h"
#include "sim/checker.h"
#include "sim/contact.h"
#include "sim/inquiry.h"
#include "sim/plan.h"
#include "sim/provoke.h"
#include "sim/reuse.h"
#include "sim/stranger.h"
#include "sim/takeback.h"
#include "sim/workload.h"

#define RUN_LIMIT_NS  UINT64_C(120000000000) /* a DREQ is repeated for 64 s */
#define RUN_EVENT_MAX UINT64_C(400000)
#define SCRATCH_SIZE  ((size_t)48 << 20)

/* Large and the same for every run: taken once per process. */
static struct {
    uint8_t *scratch;
    uint8_t *spaces;
} reserve;

static void take_reserve(struct world *world)
{
    if (reserve.scratch == NULL) {
        reserve.scratch = malloc(SCRATCH_SIZE);
        reserve.spaces = malloc((size_t)SPACE_SIZE * 4 * HOST_MAX);
        CHECK(reserve.scratch != NULL && reserve.spaces != NULL);
    }
    world->scratch = (struct scratch){.bytes = reserve.scratch, .size = SCRATCH_SIZE};
    for (uint32_t i = 0; i < 2 * HOST_MAX; i++) {
        world->spaces[i].bytes = reserve.spaces + (size_t)SPACE_SIZE * 2 * i;
        world->spaces[i].shadow = world->spaces[i].bytes + SPACE_SIZE;
    }
}

static bool speaks_selective(struct world *world)
{
    return world->options->selective ||
           (world->profile.selective && dice_percent(&world->play, 85));
}

static void start_hosts(struct world *world)
{
    bool slow = world->profile.tiny || dice_percent(&world->play, 20);
    struct dice rows = dice_split(world->simulator.seed, 16);
    struct host_config config = {
        .qpn_count = 64,
        .max_regions = 128,
        .max_reads_in = READS_IN_MAX,
        .budget = slow ? dice_range(&world->play, 1, 4) : 64,
        .again_ns = slow ? dice_range(&world->play, 200, 20000) : 0,
        .with_cm = true,
        .max_connections = 32,
        .joins = dice_percent(&rows, 70),
    };
    for (uint32_t i = 0; i < world->host_count; i++) {
        struct host *host = &world->hosts[i];
        config.selective_qps = speaks_selective(world) ? dice_range(&world->play, 1, 16) : 0;
        config.selective_packets = config.selective_qps > 0 ? dice_range(&world->play, 1, 256) : 0;
        host_init(host, &world->simulator, &world->network, i, &config);
        host->application = &world->application;
        host_start(host);
        plan_space(world, host);
    }
}

static struct host *choose_host(struct world *world)
{
    return &world->hosts[dice_below(&world->plan, world->host_count)];
}

static void start_pairs(struct world *world)
{
    uint32_t count = dice_range(&world->plan, 1, world->profile.pairs_max);
    for (uint32_t i = 0; i < count; i++) {
        struct host *a = choose_host(world);
        struct host *b = choose_host(world);
        if (a == b && !dice_percent(&world->plan, 20)) {
            b = &world->hosts[(a->index + 1) % world->host_count];
        }
        uint32_t lot = dice_below(&world->plan, 100);
        enum service service = lot < 70 ? SERVICE_RC : lot < 80 ? SERVICE_XRC : SERVICE_UC;
        if (service == SERVICE_XRC && (world->profile.tiny || world->profile.death)) {
            service = SERVICE_RC;
        }
        (void)plan_pair(world, a, b, service);
    }
    if (dice_percent(&world->plan, 30)) {
        plan_datagrams(world);
    }
}

static void connect_ends(struct world *world)
{
    for (uint32_t i = 0; i < world->pair_count; i++) {
        struct pair *pair = world->pairs[i];
        bool by_cm = pair->ends[0].service == SERVICE_RC &&
                     (world->profile.by_cm || dice_percent(&world->plan, 10));
        for (unsigned side = 0; side < 2; side++) {
            workload_prepare(world, &pair->ends[side]);
            if (!by_cm) {
                workload_connect(world, &pair->ends[side]);
                workload_start(world, &pair->ends[side]);
            }
        }
        if (by_cm) {
            contact_start(world, pair);
            inquiry_start(world, pair);
        } else {
            reuse_plan(world, pair);
        }
    }
    for (uint32_t i = 0; i < world->single_count; i++) {
        workload_prepare(world, world->singles[i]);
        workload_connect(world, world->singles[i]);
        workload_start(world, world->singles[i]);
    }
}

static void cm_event(struct host_application *application, struct host *host,
                     const struct cm_event *event)
{
    struct world *world = CONTAINER_OF(application, struct world, application);
    if (!inquiry_event(world, host, event)) {
        contact_event(world, host, event);
    }
}

static void device_event(struct host_application *application, struct host *host,
                         const struct event *event)
{
    struct world *world = CONTAINER_OF(application, struct world, application);
    workload_event(world, host, event);
}

static void run_until_quiet(struct world *world, const char *phase)
{
    struct simulator *simulator = &world->simulator;
    struct instant until = instant_after(simulator->now, RUN_LIMIT_NS);
    if (simulator_run(simulator, until, RUN_EVENT_MAX) == SIMULATOR_LIMIT) {
        simulator_violate(simulator, "ends", "still busy %s after %llu events", phase,
                          (unsigned long long)simulator->events_run);
    }
}

/* Some are moved to error while healthy: what waits there must be flushed. */
static void fail_some(struct world *world)
{
    for (uint32_t i = 0; i < world->end_count; i++) {
        if (dice_percent(&world->play, 50)) {
            workload_fail(world, world->ends[i]);
        }
    }
}

static void settle(struct world *world, const char *phase)
{
    run_until_quiet(world, phase);
    if (!simulator_is_violated(&world->simulator)) {
        workload_poll_all(world);
    }
    if (!simulator_is_violated(&world->simulator)) {
        checker_quiescence(world);
        contact_check(world);
        inquiry_check(world);
    }
}

static void add_coverage(struct world *world)
{
    struct coverage *coverage = world->coverage;
    const struct network *network = &world->network;
    coverage->packets += network->sent;
    coverage->events += world->simulator.events_run;
    coverage->lost += network->lost;
    coverage->corrupted += network->corrupted;
    coverage->duplicated += network->duplicated;
    coverage->delayed += network->delayed;
    coverage->refusals += network->refusals;
    coverage->referred += network->referred;
    coverage->shorts += network->shorts;
    coverage->posted += network->posted;
    coverage->held += network->held;
    coverage->unread += network->unread;
    for (uint32_t i = 0; i < world->host_count; i++) {
        coverage->moved += world->hosts[i].direct.moved;
        coverage->batches += world->hosts[i].direct.batches;
        coverage->broken += world->hosts[i].direct.broken;
        coverage->stale += world->hosts[i].direct.stale;
    }
    coverage->taken_back += world->takeback_count;
    for (uint32_t i = 0; i < world->queue_count; i++) {
        coverage->overruns += world->queues[i]->overrun;
    }
    for (uint32_t i = 0; i < world->host_count; i++) {
        if (host_is_alive(&world->hosts[i])) {
            const uint64_t *values = device_counters(world->hosts[i].device)->values;
            coverage->retransmitted += values[COUNTER_RETRANSMITTED_PACKETS];
            coverage->duplicates += values[COUNTER_DUPLICATE_REQUESTS];
            coverage->early += values[COUNTER_EARLY_PACKETS];
            coverage->reports += values[COUNTER_REPORTS_RECEIVED];
            coverage->rnr_naks += values[COUNTER_RNR_NAK_SENT];
        }
    }
}

static void play(struct world *world)
{
    plan_profile(world);
    start_hosts(world);
    start_pairs(world);
    connect_ends(world);
    if (dice_percent(&world->plan, 3)) {
        provoke_no_memory(world, &world->hosts[0]);
    }
    workload_plan_disturbances(world);
    stranger_plan(world);
    settle(world, "at work");
    if (!simulator_is_violated(&world->simulator)) {
        fail_some(world);
        contact_part_all(world);
        settle(world, "after the end of work");
    }
    if (!simulator_is_violated(&world->simulator)) {
        checker_memory(world);
    }
    add_coverage(world);
    if (!simulator_is_violated(&world->simulator)) {
        contact_release_all(world);
        inquiry_release_all(world);
        run_until_quiet(world, "after the last release");
    }
    if (!simulator_is_violated(&world->simulator)) {
        workload_take_down(world);
    }
    if (!simulator_is_violated(&world->simulator)) {
        run_until_quiet(world, "after the last host stopped");
    }
}

void world_run(uint64_t seed, const struct run_options *options, struct coverage *coverage,
               struct run_result *ret_result)
{
    static struct world world;
    memset(&world, 0, sizeof world);
    simulator_init(&world.simulator, seed, options->trace);
    world.options = options;
    world.simulator.trace_detail = true;
    world.coverage = coverage;
    world.plan = dice_split(seed, 2);
    world.play = dice_split(seed, 3);
    world.reuse = dice_split(seed, 17);
    network_init(&world.network, &world.simulator, seed);
    take_reserve(&world);
    monitor_init(&world.monitor, &world);
    workload_init(&world);
    takeback_init(&world);
    world.application.cm_event = cm_event;
    world.application.event = device_event;
    play(&world);
    for (uint32_t i = 0; i < world.host_count; i++) {
        storage_forget(&world.hosts[i].storage);
    }
    ret_result->ok = !simulator_is_violated(&world.simulator);
    ret_result->hash = world.simulator.hash;
    ret_result->profile = world.profile.name;
    memcpy(ret_result->violation, world.simulator.violation, sizeof ret_result->violation);
    simulator_fini(&world.simulator);
}
