#include "sim/plan.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/wire/psn.h"
#include "sim/program.h"
#include "sim/workload.h"

#define SHARED_QUOTA  16u
#define NEAR_PSNS     65536
#define ACCESS_REMOTE (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC)

static const struct profile profiles[] = {
    {.name = "lossless",
     .strict = true,
     .pairs_max = 3,
     .ops_max = 16,
     .illegal_percent = 0,
     .late_percent = 40,
     .link = {.mark = 100000}},
    {.name = "illegal",
     .strict = true,
     .pairs_max = 3,
     .ops_max = 10,
     .illegal_percent = 40,
     .late_percent = 40,
     .disturb_percent = 10},
    {.name = "lossy",
     .pairs_max = 3,
     .ops_max = 16,
     .illegal_percent = 10,
     .late_percent = 40,
     .disturb_percent = 5,
     .link = {.loss = 20000}},
    {.name = "bursty",
     .pairs_max = 2,
     .ops_max = 16,
     .illegal_percent = 5,
     .late_percent = 30,
     .link = {.burst_begin = 5000, .burst_end = 200000, .burst_loss = 700000}},
    {.name = "reorder",
     .pairs_max = 3,
     .ops_max = 16,
     .illegal_percent = 5,
     .late_percent = 40,
     .link = {.reorder = 40000, .reorder_ns = 30000, .duplicate = 30000, .loss = 2000}},
    {.name = "corrupt",
     .pairs_max = 3,
     .ops_max = 12,
     .illegal_percent = 10,
     .late_percent = 40,
     .link = {.corrupt = 30000, .duplicate = 5000}},
    {.name = "partition",
     .pairs_max = 3,
     .ops_max = 12,
     .illegal_percent = 5,
     .late_percent = 40,
     .partition = true,
     .disturb_percent = 10},
    {.name = "death",
     .pairs_max = 4,
     .ops_max = 12,
     .illegal_percent = 10,
     .late_percent = 40,
     .death = true,
     .disturb_percent = 20,
     .link = {.loss = 3000}},
    {.name = "tiny",
     .strict = true,
     .pairs_max = 3,
     .ops_max = 12,
     .illegal_percent = 5,
     .late_percent = 60,
     .tiny = true,
     .disturb_percent = 10,
     .link = {.refuse = 100000}},
    {.name = "impatient", .pairs_max = 3, .ops_max = 12, .late_percent = 40, .impatient = true},
    {.name = "cm",
     .pairs_max = 4,
     .ops_max = 8,
     .illegal_percent = 5,
     .late_percent = 40,
     .by_cm = true,
     .disturb_percent = 10,
     .link = {.loss = 20000, .duplicate = 10000}},
    {.name = "reference", /* payloads lie where they are until somebody reads them */
     .strict = true,
     .pairs_max = 3,
     .ops_max = 16,
     .illegal_percent = 10,
     .late_percent = 40,
     .link = {.reach = REFERENCE_MAX, .carries = true, .refuse = 20000}},
    {.name = "unreadable",
     .pairs_max = 4,
     .ops_max = 16,
     .illegal_percent = 10,
     .late_percent = 40,
     .death = true,
     .disturb_percent = 20,
     .link = {.reach = 2048,
              .carries = true,
              .unreadable = 100000,
              .direct = true,
              .breaks = 300000,
              .taken_back = 3000,
              .loss = 5000,
              .duplicate = 20000,
              .reorder = 20000,
              .reorder_ns = 30000}},
    {.name = "direct", /* processes of one host, that touch each other's memory */
     .pairs_max = 3,
     .ops_max = 16,
     .illegal_percent = 10,
     .late_percent = 40,
     .disturb_percent = 15,
     .link = {.direct = true, .breaks = 50000, .taken_back = 5000, .loss = 5000, .refuse = 20000}},
    {.name = "selective",
     .selective = true,
     .pairs_max = 3,
     .ops_max = 20,
     .illegal_percent = 5,
     .late_percent = 40,
     .disturb_percent = 5,
     .link =
         {.loss = 30000, .reorder = 30000, .reorder_ns = 20000, .duplicate = 10000, .hold = 20000}},
    {.name = "chaos",
     .pairs_max = 4,
     .ops_max = 12,
     .illegal_percent = 15,
     .late_percent = 50,
     .tiny = true,
     .death = true,
     .partition = true,
     .disturb_percent = 25,
     .link = {.loss = 10000,
              .reorder = 10000,
              .reorder_ns = 20000,
              .duplicate = 10000,
              .corrupt = 10000,
              .mark = 20000,
              .refuse = 30000}},
};

#define PROFILE_COUNT (sizeof profiles / sizeof profiles[0])

static uint32_t vary(struct dice *dice, uint32_t chance)
{
    return chance == 0 ? 0 : chance / 4 + dice_below(dice, chance * 2);
}

/* The trouble is on one link, in one direction. */
static void spare_all_but_one(struct world *world)
{
    struct link_config bad = world->profile.link;
    struct link_config good = bad;
    good.loss = good.burst_begin = good.duplicate = good.reorder = good.corrupt = 0;
    network_set_links(&world->network, &good);
    unsigned from = dice_below(&world->plan, world->host_count);
    network_set_link(&world->network, from, (from + 1) % world->host_count, &bad);
}

/* Nothing is lost or late, and so nobody has a timeout to wait for. Nor is anything
 * illegal: who has failed answers no READ again. */
static void make_unreadable(struct world *world)
{
    struct link_config *link = &world->profile.link;
    if (world->profile.strict && link->reach > 0 &&
        world->simulator.seed / PROFILE_COUNT % 4 == 1) {
        world->profile.rereads = true;
        world->profile.illegal_percent = 0;
        link->unreadable = dice_range(&world->plan, 20000, 300000);
    }
}

static const struct profile *find_profile(const char *name)
{
    for (size_t i = 0; i < PROFILE_COUNT; i++) {
        if (strcmp(profiles[i].name, name) == 0) {
            return &profiles[i];
        }
    }
    return NULL;
}

bool world_has_profile(const char *name)
{
    return find_profile(name) != NULL;
}

static void choose_lossy_link(struct world *world)
{
    const struct run_options *options = world->options;
    struct link_config bad = world->profile.link;
    bad.loss = options->loss;
    world->profile.strict = world->profile.rereads = false;
    network_set_link(&world->network, options->lossy_from, options->lossy_to, &bad);
}

void plan_profile(struct world *world)
{
    struct dice *dice = &world->plan;
    const char *name = world->options->profile;
    world->profile =
        name != NULL ? *find_profile(name) : profiles[world->simulator.seed % PROFILE_COUNT];
    world->ipv6 = dice_percent(dice, 30);
    world->host_count = dice_range(dice, 2, 3);
    struct link_config *link = &world->profile.link;
    static const uint64_t rates[] = {0, UINT64_C(25000000000), UINT64_C(100000000000)};
    link->bits_per_second = rates[dice_below(dice, 3)];
    link->delay_ns = dice_range(dice, 500, 20000);
    link->loss = vary(dice, link->loss);
    link->duplicate = vary(dice, link->duplicate);
    link->corrupt = vary(dice, link->corrupt);
    link->reorder = vary(dice, link->reorder);
    link->refuse = vary(dice, link->refuse);
    link->unreadable = vary(dice, link->unreadable);
    link->carried = link->reach > 0 && world->simulator.seed / PROFILE_COUNT % 2 == 0;
    make_unreadable(world);
    struct dice talk = dice_split(world->simulator.seed, 19);
    world->profile.talks = link->carries && dice_percent(&talk, 50);
    if (link->reach == 0 && dice_percent(&world->reuse, 20)) {
        link->mark = dice_range(&world->reuse, 20000, 500000);
    }
    if (world->profile.tiny) {
        link->queue_limit = dice_range(dice, 1, 4);
    } else if (dice_percent(dice, 50)) {
        link->queue_limit = dice_range(dice, 8, 128);
        link->drop_tail = !world->profile.strict && dice_percent(dice, 30);
    }
    network_set_links(&world->network, link);
    if (dice_percent(dice, 20)) {
        spare_all_but_one(world);
    }
    if (world->options->loss > 0) {
        choose_lossy_link(world);
    }
}

void plan_space(struct world *world, struct host *host)
{
    struct space *space = &world->spaces[host->index + (host->life > 1 ? HOST_MAX : 0)];
    space->host = host;
    space->life = host->life;
    space->used = 0;
    space->territory_count = 0;
    space->frozen_count = 0;
    space->opening_count = 0;
    struct memory *memory = device_memory(host->device);
    CHECK(memory_allocate_domain(memory, &space->domain) == STATUS_OK);
    CHECK(memory_allocate_domain(memory, &space->foreign_domain) == STATUS_OK);
    space->xrc_domain = device_allocate_xrc_domain(host->device);
    space->foreign_xrc_domain = device_allocate_xrc_domain(host->device);
    world->space_of[host->index] = space;
    struct territory *territory = model_claim(&world->scratch, space, &world->plan, 128,
                                              ACCESS_REMOTE | ACCESS_LOCAL_WRITE, false);
    for (uint32_t i = 0; i < 2 && world->cell_count < CELL_MAX; i++) {
        struct cell *cell = &world->cells[world->cell_count];
        if (territory != NULL && model_take(territory, 8, 8, &cell->span)) {
            memcpy(&cell->initial, model_bytes(&cell->span), 8);
            world->cell_count++;
        }
    }
}

static void choose_limits(struct world *world, struct end *end)
{
    struct dice *dice = &world->plan;
    bool tiny = world->profile.tiny;
    end->limits = (struct send_queue_limits){
        .capacity = tiny ? dice_range(dice, 1, 2) : dice_range(dice, 2, 20),
        .max_sge = tiny ? dice_range(dice, 1, 2) : dice_range(dice, 1, SGE_MAX),
        .max_inline = dice_percent(dice, 50) ? dice_range(dice, 8, 256) : 0,
    };
    end->signal_all = dice_percent(dice, 20);
    end->send_quota = tiny ? dice_range(dice, 1, 3) : dice_range(dice, 4, 30);
}

static void choose_attributes(struct world *world, struct end *end)
{
    struct dice *dice = &world->plan;
    bool strict = world->profile.strict;
    end->mtu = (enum path_mtu)dice_range(dice, PATH_MTU_256, PATH_MTU_4096);
    if (end->mtu > PATH_MTU_1024 && dice_percent(dice, 50)) {
        end->mtu = PATH_MTU_256;
    }
    end->attributes = (struct qp_attributes){
        .access = ACCESS_REMOTE,
        .send_psn = psn_make(dice_percent(dice, 50) ? 0xffffff - dice_below(dice, 20)
                                                    : (uint32_t)dice_next(dice)),
        .max_reads_out = (uint8_t)dice_range(dice, 1, 4),
        .min_rnr_timer = (uint8_t)dice_range(dice, 1, 9),
        .timeout = (uint8_t)(strict                     ? 14
                             : world->profile.impatient ? dice_range(dice, 1, 4)
                                                        : dice_range(dice, 8, 10)),
        .retry_count = (uint8_t)(dice_percent(dice, 60) ? 7 : dice_below(dice, 7)),
        .rnr_retry_count = (uint8_t)(dice_percent(dice, 60) ? 7 : dice_below(dice, 7)),
        .port = 1,
    };
}

/* A set of receives for several queue pairs. NULL: there is no room. */
static struct intakes *make_shared(struct world *world, struct end *end)
{
    struct intakes *shared = scratch_take(&world->scratch, sizeof *shared);
    program_intakes_init(world, shared, end, SHARED_QUOTA);
    shared->users = 1;
    uint32_t length = dice_range(&world->plan, 1, 3000);
    for (uint32_t i = 0; i < 40; i++) {
        (void)program_add_intake(world, shared, end->space, 2, length);
    }
    if (shared->count == 0 || receive_queue_create(&end->host->storage.allocator, SHARED_QUOTA, 2,
                                                   &shared->shared) != STATUS_OK) {
        return NULL;
    }
    world->shared[world->shared_count++] = shared;
    return shared;
}

/* One that there is, of targets or of others. */
static struct intakes *find_shared(struct world *world, const struct end *end)
{
    for (uint32_t i = 0; i < world->shared_count; i++) {
        struct intakes *shared = world->shared[i];
        if (shared->owner->host == end->host && (shared->queue != NULL) == end->is_target &&
            shared->users < 2 && dice_percent(&world->plan, 70)) {
            shared->users++;
            return shared;
        }
    }
    return NULL;
}

static struct intakes *choose_intakes(struct world *world, struct end *end, uint32_t capacity)
{
    program_intakes_init(world, &end->own, end, capacity);
    if (end->service != SERVICE_RC || world->profile.tiny || world->profile.death) {
        return &end->own;
    }
    struct intakes *shared = find_shared(world, end);
    if (shared != NULL) {
        return shared;
    }
    if (world->shared_count == SHARED_MAX || !dice_percent(&world->plan, 10)) {
        return &end->own;
    }
    shared = make_shared(world, end);
    return shared != NULL ? shared : &end->own;
}

/* What targets of a host take receives from. NULL: there is no room. */
static struct intakes *choose_target_intakes(struct world *world, struct end *end)
{
    struct intakes *shared = find_shared(world, end);
    if (shared != NULL || world->shared_count == SHARED_MAX) {
        return shared;
    }
    struct application_queue *queue = workload_queue(world, end->host, SHARED_QUOTA + 4, true);
    shared = queue == NULL ? NULL : make_shared(world, end);
    if (shared == NULL) {
        return NULL;
    }
    shared->queue = queue;
    shared->xrc = (struct xrc_queue){
        .domain = end->space->xrc_domain,
        .memory_domain = end->space->domain,
        .receives = shared->shared,
        .completions = queue->queue,
    };
    shared->elsewhere = shared->xrc;
    shared->elsewhere.domain = end->space->foreign_xrc_domain;
    CHECK(device_add_xrc_queue(end->host->device, &shared->xrc) == STATUS_OK);
    CHECK(device_add_xrc_queue(end->host->device, &shared->elsewhere) == STATUS_OK);
    return shared;
}

/* Its completion queues and its place for receives. False: there is no room. */
static bool choose_queues(struct world *world, struct end *end, uint32_t capacity)
{
    if (end->is_target) {
        end->intakes = choose_target_intakes(world, end);
        end->receive_cq = end->intakes == NULL ? NULL : end->intakes->queue;
        return end->intakes != NULL;
    }
    end->intakes = choose_intakes(world, end, capacity);
    uint32_t taken = end->intakes->shared != NULL ? SHARED_QUOTA + 4 : capacity;
    end->send_cq = workload_queue(world, end->host, end->send_quota, true);
    if (end->service == SERVICE_XRC) {
        return end->send_cq != NULL;
    }
    end->receive_cq = workload_queue(world, end->host, taken, true);
    return end->send_cq != NULL && end->receive_cq != NULL;
}

static struct completion_queue *core_queue(const struct application_queue *queue)
{
    return queue == NULL ? NULL : queue->queue;
}

static void number_end(const struct world *world, struct end *end, struct host *host,
                       enum service service)
{
    end->number = world->end_count;
    end->host = host;
    end->space = world->space_of[host->index];
    end->life = host->life;
    end->service = service;
    end->qkey.value = 0x1000 + (uint32_t)end->number;
}

/* The queue pair, its completion queues and its place for receives. */
static bool make_end(struct world *world, struct end *end, struct host *host, enum service service)
{
    struct dice *dice = &world->plan;
    if (world->end_count == END_MAX) {
        return false;
    }
    number_end(world, end, host, service);
    choose_limits(world, end);
    choose_attributes(world, end);
    uint32_t capacity = world->profile.tiny ? dice_range(dice, 1, 2) : dice_range(dice, 2, 24);
    if (!choose_queues(world, end, capacity)) {
        return false;
    }
    struct qp_init init = {
        .service = service,
        .xrc_domain = end->is_target ? end->space->xrc_domain : (struct xrc_domain){0},
        .domain = end->space->domain,
        .send_completions = core_queue(end->send_cq),
        .receive_completions = core_queue(end->receive_cq),
        .shared_receives = end->is_target ? NULL : end->intakes->shared,
        .send = end->limits,
        .max_receive = end->intakes->shared != NULL ? 0 : capacity,
        .max_receive_sge = end->limits.max_sge,
        .signal_all = end->signal_all,
        .context = end,
    };
    if (device_create_qp(host->device, &init, &end->qp) != STATUS_OK) {
        simulator_violate(&world->simulator, "create", "%c: no queue pair", host->name);
        return false;
    }
    end->qpn = qp_number(end->qp);
    world->ends[world->end_count++] = end;
    return true;
}

static void join(struct world *world, struct end *end, struct end *peer)
{
    uint16_t port = (uint16_t)(49152 + dice_below(&world->plan, 16384));
    end->peer = peer;
    end->attributes.path = network_path(end->host->index, peer->host->index, world->ipv6, port);
    end->attributes.path.traffic_class = 2; /* ECN-capable */
    end->attributes.destination = peer->qpn;
    end->attributes.receive_psn = peer->attributes.send_psn;
    end->attributes.path_mtu = end->mtu;
    uint32_t reads = peer->attributes.max_reads_out;
    end->attributes.max_reads_in = (uint8_t)(reads + dice_below(&world->plan, 2));
}

void plan_join(struct world *world, struct pair *pair)
{
    struct end *ends = pair->ends;
    world->pairs[world->pair_count++] = pair;
    ends[1].mtu = ends[0].mtu;
    ends[1].attributes.timeout = ends[0].attributes.timeout;
    join(world, &ends[0], &ends[1]);
    join(world, &ends[1], &ends[0]);
    pair->causes = world->profile.strict ? 0 : CAUSE_LOSS;
    program_plan_pair(world, pair);
}

struct pair *plan_pair(struct world *world, struct host *a, struct host *b, enum service service)
{
    if (world->pair_count == PAIR_MAX) {
        return NULL;
    }
    struct pair *pair = scratch_take(&world->scratch, sizeof *pair);
    struct end *ends = pair->ends;
    ends[0].pair = ends[1].pair = pair;
    ends[1].is_target = service == SERVICE_XRC;
    if (!make_end(world, &ends[0], a, service) || !make_end(world, &ends[1], b, service)) {
        return NULL;
    }
    plan_join(world, pair);
    return pair;
}

/* What is on its way from before might be taken for the new connection's. */
static bool is_near(struct psn former, struct psn psn)
{
    int32_t distance = psn_distance(former, psn);
    return distance > -NEAR_PSNS && distance < NEAR_PSNS;
}

void plan_end_again(struct world *world, struct end *end, const struct end *former)
{
    struct qp *qp = device_find_qp(former->host->device, former->qpn);
    CHECK(qp != NULL && world->end_count < END_MAX);
    number_end(world, end, former->host, former->service);
    end->is_target = former->is_target;
    end->limits = former->limits;
    end->signal_all = former->signal_all;
    end->send_quota = former->send_quota;
    end->send_cq = former->send_cq;
    end->receive_cq = former->receive_cq;
    end->intakes = former->intakes->shared != NULL ? former->intakes : &end->own;
    program_intakes_init(world, &end->own, end, former->own.quota);
    choose_attributes(world, end);
    while (is_near(former->attributes.send_psn, end->attributes.send_psn)) {
        end->attributes.send_psn = psn_make((uint32_t)dice_next(&world->plan));
    }
    end->qp = qp;
    end->qpn = former->qpn;
    qp_set_context(qp, end);
    world->ends[world->end_count++] = end;
}

void plan_datagrams(struct world *world)
{
    for (uint32_t i = 0; i < world->host_count && world->single_count < SINGLE_MAX; i++) {
        struct end *end = scratch_take(&world->scratch, sizeof *end);
        if (!make_end(world, end, &world->hosts[i], SERVICE_UD)) {
            return;
        }
        end->mtu = PATH_MTU_1024;
        world->singles[world->single_count++] = end;
    }
    for (uint32_t i = 0; i < world->single_count; i++) {
        program_plan_datagrams(world, world->singles[i]);
    }
}
