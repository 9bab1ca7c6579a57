/* Disturbing the run and taking it down: what an application, an administrator or a power cut does
 * to queue pairs while they work. */
#include "sim/workload.h"

#include "rnic/base/check.h"
#include "sim/checker.h"
#include "sim/contact.h"
#include "sim/inquiry.h"
#include "sim/plan.h"
#include "sim/takeback.h"

static bool end_lives(const struct end *end)
{
    return !end->gone && end->qp != NULL && end->host->life == end->life &&
           host_is_alive(end->host);
}

static void blame(struct end *end, enum cause cause)
{
    if (end->pair != NULL) {
        end->pair->causes |= cause;
    }
}

void workload_fail(struct world *world, struct end *end)
{
    if (!end_lives(end)) {
        return;
    }
    workload_poll_all(world);
    simulator_note(&world->simulator, "%c qp %u moved to error", end->host->name, end->qpn.value);
    blame(end, CAUSE_PEER);
    end->moved_to_error = true;
    struct qp_attributes attributes = {.state = QP_ERROR};
    if (device_modify_qp(end->host->device, world->simulator.now, end->qp, &attributes,
                         QP_SET_STATE, NULL) != STATUS_OK) {
        simulator_violate(&world->simulator, "modify", "to ERROR");
    }
    host_wake(end->host, 0);
}

static void void_outstanding(struct end *end)
{
    end->gone = true;
    for (uint32_t i = end->resolved; i < end->posted; i++) {
        if (end->ops[i].phase == OP_POSTED) {
            end->ops[i].phase = OP_VOID;
        }
    }
    for (uint32_t i = 0; end->intakes == &end->own && i < end->own.posted; i++) {
        if (end->own.list[i].phase == OP_POSTED) {
            end->own.list[i].phase = OP_VOID;
        }
    }
}

/* ... and its memory is the application's again. */
static void give_up_outstanding(struct world *world, struct end *end)
{
    void_outstanding(end);
    for (uint32_t i = end->resolved; i < end->posted; i++) {
        workload_reuse(world, &end->ops[i]);
    }
}

void workload_destroy_end(struct world *world, struct end *end)
{
    if (!end_lives(end)) {
        return;
    }
    workload_poll_all(world);
    simulator_note(&world->simulator, "%c qp %u destroyed", end->host->name, end->qpn.value);
    blame(end, CAUSE_PEER);
    device_destroy_qp(end->host->device, end->qp);
    workload_poll_all(world); /* what was flushed before it went */
    give_up_outstanding(world, end);
    end->qp = NULL;
}

void workload_reset(struct world *world, struct end *end)
{
    simulator_note(&world->simulator, "%c qp %u reset", end->host->name, end->qpn.value);
    blame(end, CAUSE_PEER);
    struct qp_attributes attributes = {.state = QP_RESET};
    if (device_modify_qp(end->host->device, world->simulator.now, end->qp, &attributes,
                         QP_SET_STATE, NULL) != STATUS_OK) {
        simulator_violate(&world->simulator, "modify", "to RESET");
    }
    give_up_outstanding(world, end);
    end->qp = NULL;
}

void workload_host_dies(struct world *world, struct host *host)
{
    workload_poll_all(world);
    for (uint32_t i = 0; i < world->end_count; i++) {
        struct end *end = world->ends[i];
        if (end->host == host && !end->gone) {
            blame(end, CAUSE_PEER);
            void_outstanding(end);
            end->qp = NULL;
        }
    }
    contact_host_died(world, host);
    inquiry_host_died(world, host);
    model_freeze_space(&world->scratch, world->space_of[host->index]);
    host_die(host);
    world->coverage->deaths++;
}

static void fail_event(void *context, uint64_t number)
{
    struct world *world = context;
    struct end *end = world->ends[number];
    if (end->started) {
        takeback_end(world, end, TAKEBACK_FAILS);
    }
}

/* Another way to the same peer, fewer READs at once, and more or fewer of the peer's. */
static void change_drained(struct world *world, struct end *end)
{
    struct qp_attributes *attributes = &end->attributes;
    unsigned mask = 0;
    if (end->service != SERVICE_UD) {
        attributes->path.source_port = (uint16_t)(49152 + dice_below(&world->reuse, 16384));
        mask |= QP_SET_PATH;
    }
    if (service_is_reliable(end->service) && !end->is_target) {
        attributes->max_reads_out =
            (uint8_t)dice_range(&world->reuse, 1, attributes->max_reads_out);
        mask |= QP_SET_MAX_READS_OUT;
    }
    if (end->service == SERVICE_RC) {
        attributes->max_reads_in =
            (uint8_t)dice_range(&world->reuse, end->peer->attributes.max_reads_out, READS_IN_MAX);
        attributes->min_rnr_timer = (uint8_t)dice_range(&world->reuse, 1, 9);
        mask |= QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER;
    }
    if (device_modify_qp(end->host->device, world->simulator.now, end->qp, attributes, mask,
                         NULL) != STATUS_OK) {
        simulator_violate(&world->simulator, "modify", "in SQD");
    }
}

static void resume_event(void *context, uint64_t number)
{
    struct world *world = context;
    struct end *end = world->ends[number];
    if (!end_lives(end) || qp_current_state(end->qp) != QP_SQD) {
        return;
    }
    if (dice_percent(&world->reuse, 50)) {
        change_drained(world, end);
    }
    struct qp_attributes attributes = {.state = QP_RTS};
    if (device_modify_qp(end->host->device, world->simulator.now, end->qp, &attributes,
                         QP_SET_STATE, NULL) != STATUS_OK) {
        simulator_violate(&world->simulator, "modify", "from SQD back to RTS");
    }
    host_wake(end->host, 0);
}

/* The send queue is drained, and opened again some time after the event has said so. */
static void drain_event(void *context, uint64_t number)
{
    struct world *world = context;
    struct end *end = world->ends[number];
    if (!end_lives(end) || end->draining || qp_current_state(end->qp) != QP_RTS) {
        return;
    }
    simulator_note(&world->simulator, "%c qp %u drains", end->host->name, end->qpn.value);
    end->draining = true;
    struct qp_attributes attributes = {.state = QP_SQD};
    if (device_modify_qp(end->host->device, world->simulator.now, end->qp, &attributes,
                         QP_SET_STATE, NULL) != STATUS_OK) {
        simulator_violate(&world->simulator, "modify", "to SQD");
    }
    host_wake(end->host, 0);
}

void workload_event(struct world *world, struct host *host, const struct event *event)
{
    if (event->kind != EVENT_SQ_DRAINED) {
        return;
    }
    struct end *end = event->object;
    if (!end->draining || end->host != host) {
        simulator_violate(&world->simulator, "drain", "%c qp %u was not draining", host->name,
                          end->qpn.value);
    }
    end->draining = false;
    simulator_after(&world->simulator, dice_below(&world->play, 50000), resume_event, world,
                    end->number);
}

static void destroy_event(void *context, uint64_t number)
{
    struct world *world = context;
    struct end *end = world->ends[number];
    if (end->started && !end->is_target) {
        takeback_end(world, end, TAKEBACK_DESTROYS);
    }
}

/* A key goes while peers use it: what they do from now on must fail and leave no trace. */
static void deregister_event(void *context, uint64_t host_index)
{
    struct world *world = context;
    struct host *host = &world->hosts[host_index];
    if (!host_is_alive(host)) {
        return;
    }
    struct space *space = world->space_of[host_index];
    struct territory *chosen = NULL;
    for (uint32_t i = 0; i < space->territory_count; i++) {
        struct territory *territory = space->territories[i];
        if (territory->alive && !territory->foreign &&
            (territory->access == ACCESS_REMOTE_READ ||
             territory->access == (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE))) {
            chosen = territory;
        }
    }
    if (chosen != NULL) {
        takeback_region(world, chosen);
    }
}

/* What is sent from there, or received there, from now on fails and leaves no trace. */
static void deregister_own_event(void *context, uint64_t host_index)
{
    struct world *world = context;
    struct host *host = &world->hosts[host_index];
    struct space *space = world->space_of[host_index];
    struct territory *chosen = NULL;
    for (uint32_t i = 0; host_is_alive(host) && i < space->territory_count; i++) {
        struct territory *territory = space->territories[i];
        if (territory->alive && !territory->foreign && territory->access == ACCESS_LOCAL_WRITE &&
            (chosen == NULL || dice_percent(&world->reuse, 50))) {
            chosen = territory;
        }
    }
    if (chosen != NULL) {
        takeback_own_region(world, chosen);
    }
}

static void revive_event(void *context, uint64_t host_index)
{
    struct world *world = context;
    struct host *host = &world->hosts[host_index];
    simulator_note(&world->simulator, "%c is back", host->name);
    host_start(host);
    plan_space(world, host);
    struct host *other = &world->hosts[(host_index + 1) % world->host_count];
    if (!host_is_alive(other)) {
        return;
    }
    struct pair *pair = plan_pair(world, host, other, SERVICE_RC);
    for (unsigned side = 0; pair != NULL && side < 2; side++) {
        workload_prepare(world, &pair->ends[side]);
        workload_connect(world, &pair->ends[side]);
        workload_start(world, &pair->ends[side]);
    }
}

static void die_event(void *context, uint64_t host_index)
{
    struct world *world = context;
    struct host *host = &world->hosts[host_index];
    if (!host_is_alive(host)) {
        return;
    }
    workload_host_dies(world, host);
    if (dice_percent(&world->play, 70)) {
        simulator_after(&world->simulator, dice_range(&world->play, 1000, 500000), revive_event,
                        world, host_index);
    }
}

static void plan_partition(struct world *world)
{
    struct dice *dice = &world->play;
    uint32_t a = dice_below(dice, world->host_count);
    uint32_t b = (a + 1) % world->host_count;
    struct instant from = {dice_below(dice, 200000)};
    bool for_ever = dice_percent(dice, 30);
    struct instant until =
        for_ever ? INSTANT_NEVER : instant_after(from, dice_range(dice, 100000, 20000000));
    simulator_note(&world->simulator, "%c and %c will be cut at %lluns", 'A' + (int)a, 'A' + (int)b,
                   (unsigned long long)from.ns);
    network_cut(&world->network, a, b, from, until);
}

/* From now on links take references, or do not any more. Who has agreed on selective repeat by then
 * keeps to it. */
static void change_reach_event(void *context, uint64_t reach)
{
    struct network *network = &((struct world *)context)->network;
    for (unsigned from = 0; from < HOST_MAX; from++) {
        for (unsigned to = 0; to < HOST_MAX; to++) {
            network->links[from][to].config.reach = (uint32_t)reach;
        }
    }
    simulator_note(network->simulator, "links take references of %u bytes", (unsigned)reach);
}

void workload_plan_disturbances(struct world *world)
{
    struct dice *dice = &world->play;
    struct simulator *simulator = &world->simulator;
    if (world->profile.partition && dice_percent(dice, 80)) {
        plan_partition(world);
    }
    bool refers = world->profile.link.reach > 0;
    if ((world->profile.selective || refers) && dice_percent(dice, 30)) {
        uint32_t reach = dice_percent(dice, 50) ? 2048 : REFERENCE_MAX;
        simulator_after(simulator, dice_below(dice, 200000), change_reach_event, world,
                        refers ? 0 : reach);
    }
    if (world->profile.death && dice_percent(dice, 80)) {
        simulator_after(simulator, dice_below(dice, 300000), die_event, world,
                        dice_below(dice, world->host_count));
    }
    uint32_t percent = world->profile.disturb_percent;
    uint32_t pair_ends = world->pair_count * 2;
    if (pair_ends > 0 && dice_percent(dice, percent)) {
        simulator_after(simulator, dice_below(dice, 200000), fail_event, world,
                        dice_below(dice, world->end_count));
    }
    if (pair_ends > 0 && dice_percent(dice, percent)) {
        simulator_after(simulator, dice_below(dice, 200000), destroy_event, world,
                        dice_below(dice, world->end_count));
    }
    if (pair_ends > 0 && dice_percent(dice, 20)) {
        simulator_after(simulator, dice_below(dice, 100000), drain_event, world,
                        dice_below(dice, world->end_count));
    }
    if (dice_percent(dice, percent)) {
        simulator_after(simulator, dice_below(dice, 100000), deregister_event, world,
                        dice_below(dice, world->host_count));
    }
    if (dice_percent(&world->reuse, world->profile.disturb_percent)) {
        simulator_after(simulator, dice_below(&world->reuse, 100000), deregister_own_event, world,
                        dice_below(&world->reuse, world->host_count));
    }
}

static void release_space(struct world *world, struct host *host)
{
    struct space *space = world->space_of[host->index];
    struct memory *memory = device_memory(host->device);
    if (memory_free_domain(memory, space->domain) != STATUS_BUSY) {
        simulator_violate(&world->simulator, "leak", "a domain in use was freed");
        return;
    }
    model_shut(space, NULL);
    for (uint32_t i = 0; i < space->territory_count; i++) {
        if (space->territories[i]->alive) {
            CHECK(memory_deregister(memory, space->territories[i]->key) == STATUS_OK);
            space->territories[i]->alive = false;
        }
    }
    if (memory_free_domain(memory, space->domain) != STATUS_OK ||
        memory_free_domain(memory, space->foreign_domain) != STATUS_OK) {
        simulator_violate(&world->simulator, "leak", "%c: a domain is still in use", host->name);
    }
}

void workload_take_down(struct world *world)
{
    for (uint32_t i = 0; i < world->end_count; i++) {
        workload_destroy_end(world, world->ends[i]);
    }
    for (uint32_t i = 0; i < world->shared_count; i++) {
        struct intakes *shared = world->shared[i];
        if (shared->owner->life == shared->owner->host->life &&
            host_is_alive(shared->owner->host)) {
            if (shared->queue != NULL) {
                device_remove_xrc_queue(shared->owner->host->device, &shared->xrc);
                device_remove_xrc_queue(shared->owner->host->device, &shared->elsewhere);
            }
            receive_queue_destroy(shared->shared);
        }
    }
    for (uint32_t i = 0; i < world->queue_count; i++) {
        struct application_queue *queue = world->queues[i];
        if (queue->life != queue->host->life || !host_is_alive(queue->host)) {
            continue;
        }
        if (completion_queue_users(queue->queue) != 0) {
            simulator_violate(&world->simulator, "leak", "a completion queue has %u users",
                              completion_queue_users(queue->queue));
            return;
        }
        completion_queue_destroy(queue->queue);
        queue->life = 0;
    }
    for (uint32_t i = 0; i < world->host_count && !simulator_is_violated(&world->simulator); i++) {
        if (host_is_alive(&world->hosts[i])) {
            release_space(world, &world->hosts[i]);
            if (!simulator_is_violated(&world->simulator)) {
                host_stop(&world->hosts[i]);
            }
        }
    }
}
