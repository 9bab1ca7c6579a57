#include "sim/workload.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/container.h"
#include "sim/checker.h"
#include "sim/plan.h"
#include "sim/program.h"
#include "sim/provoke.h"

#define PAUSE_MAX_NS UINT64_C(20000000)
#define IDLE_MAX     400u

/* Completion queues. */

static void poll_event(void *context, uint64_t argument);

static bool queue_lives(const struct application_queue *queue)
{
    return queue->host->life == queue->life && host_is_alive(queue->host);
}

static void notify(struct completion_queue_notifier *notifier, struct completion_queue *core)
{
    struct application_queue *queue = (struct application_queue *)notifier;
    if (!queue->armed || core != queue->queue) {
        simulator_violate(&queue->world->simulator, "wakeup",
                          "%c: notifier called without being armed", queue->host->name);
    }
    queue->armed = false;
    queue->notified = true;
}

static bool uses(const struct end *end, const struct application_queue *queue)
{
    return end->send_cq == queue || end->receive_cq == queue;
}

/* Completions are missing from now on. */
static void mark_lost(struct application_queue *queue)
{
    for (uint32_t i = 0; i < queue->world->end_count; i++) {
        struct end *end = queue->world->ends[i];
        if (uses(end, queue)) {
            end->lost = true;
            end->stopped = true;
            if (end->pair != NULL) {
                end->pair->causes |= CAUSE_OVERRUN;
            }
        }
    }
}

/* What an application does about it: it gives up the queue pairs. */
static void lose_ends(void *context, uint64_t unused)
{
    (void)unused;
    struct application_queue *queue = context;
    for (uint32_t i = 0; i < queue->world->end_count; i++) {
        if (uses(queue->world->ends[i], queue)) {
            workload_fail(queue->world, queue->world->ends[i]);
        }
    }
}

static void overrun(struct completion_queue_notifier *notifier, struct completion_queue *core)
{
    struct application_queue *queue = (struct application_queue *)notifier;
    queue->overrun = true;
    if (!queue->may_overrun) {
        simulator_violate(&queue->world->simulator, "overrun",
                          "%c: a completion queue of %u overran, and no more was outstanding",
                          queue->host->name, completion_queue_capacity(core));
    }
    simulator_after(&queue->world->simulator, 0, lose_ends, queue, 0);
    mark_lost(queue);
}

static void arm(struct application_queue *queue)
{
    queue->armed = true;
    queue->notified = false;
    if (completion_queue_arm(queue->queue, queue->solicited_only)) {
        notify(&queue->notifier, queue->queue);
    }
}

struct application_queue *workload_queue(struct world *world, struct host *host, uint32_t quota,
                                         bool may_share)
{
    struct dice *dice = &world->plan;
    for (uint32_t i = 0; may_share && i < world->queue_count; i++) {
        struct application_queue *queue = world->queues[i];
        if (queue->host == host && queue_lives(queue) && !queue->overrun &&
            dice_percent(dice, 50)) {
            queue->capacity += quota;
            CHECK(completion_queue_resize(queue->queue, queue->capacity) == STATUS_OK);
            return queue;
        }
    }
    if (world->queue_count == QUEUE_MAX) {
        return NULL;
    }
    struct application_queue *queue = scratch_take(&world->scratch, sizeof *queue);
    *queue = (struct application_queue){
        .notifier = {.completed = notify, .overrun = overrun},
        .world = world,
        .host = host,
        .life = host->life,
        .capacity = quota,
        .by_event = dice_percent(dice, 50),
        .solicited_only = dice_percent(dice, 30),
    };
    if (world->profile.tiny && quota > 1 && dice_percent(dice, 4)) {
        queue->may_overrun = true;
        queue->capacity = quota / 2;
    }
    if (completion_queue_create(&host->storage.allocator, queue->capacity, &queue->notifier,
                                &queue->queue) != STATUS_OK) {
        return NULL;
    }
    if (queue->by_event) {
        arm(queue);
    }
    world->queues[world->queue_count++] = queue;
    return queue;
}

static void pull(struct application_queue *queue, bool quiet)
{
    while (queue->pending_count < PENDING_MAX) {
        uint32_t place = (queue->pending_head + queue->pending_count) % PENDING_MAX;
        if (completion_queue_poll(queue->queue, 1, &queue->pending[place]) == 0) {
            return;
        }
        queue->pending_quiet[place] = quiet;
        queue->pending_count++;
    }
}

void workload_pull(struct application_queue *queue)
{
    if (queue_lives(queue)) {
        pull(queue, queue->by_event && queue->armed);
    }
}

static void look(struct application_queue *queue)
{
    while (queue->pending_count > 0 && !simulator_is_violated(&queue->world->simulator)) {
        struct completion completion = queue->pending[queue->pending_head];
        bool quiet = queue->pending_quiet[queue->pending_head];
        queue->pending_head = (queue->pending_head + 1) % PENDING_MAX;
        queue->pending_count--;
        checker_completion(queue->world, queue, &completion, quiet);
    }
}

/* With records in it: none may be lost or change places. */
static void resize(struct application_queue *queue)
{
    uint32_t capacity = queue->capacity + dice_below(&queue->world->play, 20);
    uint32_t depth = completion_queue_depth(queue->queue); /* it may have been larger meanwhile */
    capacity = capacity < depth ? depth : capacity;
    if (completion_queue_resize(queue->queue, capacity) != STATUS_OK) {
        simulator_violate(&queue->world->simulator, "resize", "a queue that has room refused");
    }
}

static void poll_event(void *context, uint64_t unused)
{
    (void)unused;
    struct application_queue *queue = context;
    queue->poll_due = false;
    if (!queue_lives(queue)) {
        return;
    }
    bool quiet = queue->by_event && queue->armed;
    if (queue->by_event) {
        arm(queue);
    }
    if (dice_percent(&queue->world->play, 3)) {
        resize(queue);
    }
    do {
        pull(queue, quiet);
        look(queue);
    } while (completion_queue_depth(queue->queue) > 0 &&
             !simulator_is_violated(&queue->world->simulator));
}

static void schedule_poll(struct application_queue *queue, uint64_t most_ns)
{
    if (!queue->poll_due) {
        queue->poll_due = true;
        simulator_after(&queue->world->simulator,
                        dice_below(&queue->world->play, (uint32_t)most_ns), poll_event, queue, 0);
    }
}

static void ran(struct host_application *application, struct host *host)
{
    struct world *world = CONTAINER_OF(application, struct world, application);
    for (uint32_t i = 0; i < world->queue_count; i++) {
        struct application_queue *queue = world->queues[i];
        if (queue->host != host || !queue_lives(queue) || queue->poll_due) {
            continue;
        }
        if (queue->by_event && queue->notified) {
            schedule_poll(queue, 3000);
        } else if (completion_queue_depth(queue->queue) > 0 &&
                   (!queue->by_event || queue->solicited_only)) {
            schedule_poll(queue, queue->by_event ? 50000 : 4000);
        }
    }
}

void workload_poll_all(struct world *world)
{
    for (uint32_t i = 0; i < world->queue_count; i++) {
        struct application_queue *queue = world->queues[i];
        if (queue_lives(queue)) {
            workload_pull(queue);
            look(queue);
        }
    }
}

/* Connecting. */

static enum status modify(struct world *world, struct end *end, enum qp_state state, unsigned mask)
{
    struct qp_attributes attributes = end->attributes;
    attributes.state = state;
    enum status status = device_modify_qp(end->host->device, world->simulator.now, end->qp,
                                          &attributes, mask | QP_SET_STATE, NULL);
    host_wake(end->host, 0);
    return status;
}

static enum status to_init(struct world *world, struct end *end)
{
    unsigned mask = QP_SET_PKEY_INDEX | QP_SET_PORT;
    end->attributes.qkey = end->qkey;
    mask |= end->service == SERVICE_UD ? QP_SET_QKEY : QP_SET_ACCESS;
    return modify(world, end, QP_INIT, mask);
}

enum status workload_to_rtr(struct world *world, struct end *end)
{
    unsigned mask = 0;
    if (end->service != SERVICE_UD) {
        mask |= QP_SET_PATH | QP_SET_PATH_MTU | QP_SET_DESTINATION | QP_SET_RECEIVE_PSN;
    }
    if (end->service == SERVICE_RC || end->is_target) {
        mask |= QP_SET_MAX_READS_IN | QP_SET_MIN_RNR_TIMER;
    }
    return modify(world, end, QP_RTR, mask);
}

enum status workload_to_rts(struct world *world, struct end *end)
{
    unsigned mask = QP_SET_SEND_PSN;
    if (end->is_target) {
        mask |= QP_SET_TIMEOUT;
    } else if (service_is_reliable(end->service)) {
        mask |= QP_SET_TIMEOUT | QP_SET_RETRY_COUNT | QP_SET_RNR_RETRY_COUNT | QP_SET_MAX_READS_OUT;
    }
    return modify(world, end, QP_RTS, mask);
}

static void post_receives(struct world *world, struct end *end, uint32_t most);

void workload_prepare(struct world *world, struct end *end)
{
    if (to_init(world, end) != STATUS_OK) {
        simulator_violate(&world->simulator, "modify", "to INIT");
        return;
    }
    if (!dice_percent(&world->play, world->profile.late_percent)) {
        post_receives(world, end, UINT32_MAX);
    }
}

void workload_connect(struct world *world, struct end *end)
{
    if (workload_to_rtr(world, end) != STATUS_OK || workload_to_rts(world, end) != STATUS_OK) {
        simulator_violate(&world->simulator, "modify", "to RTR or RTS");
    }
}

/* Posting. */

static bool end_lives(const struct end *end)
{
    return !end->gone && end->qp != NULL && end->host->life == end->life &&
           host_is_alive(end->host);
}

static enum status post_receive(struct end *end, const struct receive_request *request)
{
    struct receive_queue *shared = end->intakes->shared;
    return shared != NULL ? receive_queue_post(shared, request) : qp_post_receive(end->qp, request);
}

static void post_receives(struct world *world, struct end *end, uint32_t most)
{
    struct intakes *intakes = end->intakes;
    while (most-- > 0 && intakes->posted < intakes->count &&
           intakes->posted - intakes->resolved < intakes->quota) {
        struct intake *intake = &intakes->list[intakes->posted];
        struct receive_request request = {
            .id =
                checker_receive_id(intakes->shared != NULL ? intakes->owner : end, intakes->posted),
            .sges = intake->sges,
            .sge_count = intake->span_count,
        };
        enum status status = post_receive(end, &request);
        if (status == STATUS_FULL && intakes->shared != NULL) {
            return;
        }
        if (status != STATUS_OK) {
            simulator_violate(&world->simulator, "post", "receive %u of qp %u: %s", intakes->posted,
                              end->qpn.value, status_name(status));
            return;
        }
        intake->phase = OP_POSTED;
        intakes->posted++;
    }
}

/* The bytes are the application's again: of inline data at once, else with the completion. */
static void scribble(struct world *world, const struct op *op)
{
    for (uint32_t i = 0; i < op->span_count; i++) {
        if (!op->spans[i].territory->alive) {
            return;
        }
    }
    for (uint32_t i = 0; i < op->span_count; i++) {
        dice_fill(&world->play, model_bytes(&op->spans[i]), op->spans[i].length);
        memcpy(model_shadow(&op->spans[i]), model_bytes(&op->spans[i]), op->spans[i].length);
    }
}

void workload_reuse(struct world *world, const struct op *op)
{
    bool sends =
        program_is_send(op->kind) || op->kind == WORK_WRITE || op->kind == WORK_WRITE_IMMEDIATE;
    if ((world->profile.link.reach == 0 && !world->profile.link.direct) || !sends ||
        op->inline_data) {
        return;
    }
    scribble(world, op);
}

/* Byte addresses of the process: inline data is read before any key is looked at. */
static void inline_sges(const struct op *op, struct sge ret_sges[SGE_MAX])
{
    for (uint32_t i = 0; i < op->span_count; i++) {
        ret_sges[i] = (struct sge){
            (uint64_t)(uintptr_t)model_bytes(&op->spans[i]), op->spans[i].length, {0xdead}};
    }
}

static enum status post_send(struct world *world, struct end *end, struct op *op, uint32_t index)
{
    struct sge sges[SGE_MAX];
    memcpy(sges, op->sges, sizeof sges);
    if (op->inline_data) {
        inline_sges(op, sges);
    }
    struct datagram_target target;
    if (op->destination != NULL) {
        target = (struct datagram_target){
            .path = network_path(end->host->index, op->destination->host->index, world->ipv6,
                                 (uint16_t)(50000 + end->number)),
            .qpn = op->destination->qpn,
            .qkey = op->qkey,
        };
    }
    struct send_request request = {
        .id = checker_send_id(end, index),
        .kind = op->kind,
        .signaled = op->signaled,
        .solicited = op->solicited,
        .fence = op->fence,
        .inline_data = op->inline_data,
        .sges = sges,
        .sge_count = op->span_count,
        .immediate = op->immediate,
        .invalidate = op->invalidate,
        .remote_address = op->remote_address,
        .remote_key = op->remote_key,
        .compare = op->compare,
        .swap_or_add = op->swap_or_add,
        .xrc_srq = op->xrc_srq != 0              ? op->xrc_srq
                   : end->service == SERVICE_XRC ? end->peer->intakes->xrc.number
                                                 : 0,
        .target = op->destination != NULL ? &target : NULL,
        .bind = op->kind == WORK_BIND_WINDOW ? &op->bind : NULL,
    };
    enum status status = qp_post_send(end->qp, &request);
    if (status == STATUS_OK && op->inline_data) {
        scribble(world, op);
    }
    return status;
}

static void post_sends(struct world *world, struct end *end, uint32_t most)
{
    while (most-- > 0 && end->posted < end->op_count &&
           end->posted - end->resolved < end->send_quota) {
        struct op *op = &end->ops[end->posted];
        if (end->posted - end->resolved + 1 == end->send_quota) {
            op->signaled = true; /* else nobody would ever learn that there is room again */
        }
        enum status status = post_send(world, end, op, end->posted);
        if (status == STATUS_FULL) {
            return;
        }
        if (status != STATUS_OK) {
            simulator_violate(&world->simulator, "post", "send %u of qp %u: %s", end->posted,
                              end->qpn.value, status_name(status));
            return;
        }
        op->phase = OP_POSTED;
        op->posted_at = world->simulator.now;
        end->posted++;
    }
}

/* What opens the window was flushed. */
static void stays_shut(struct end *end, struct memory_key key)
{
    for (uint32_t i = end->posted; i < end->op_count; i++) {
        struct op *op = &end->ops[i];
        if (op->kind == WORK_LOCAL_INVALIDATE && op->invalidate.value == key.value) {
            op->may = MAY(COMPLETION_WINDOW_BIND_ERROR);
            end->pair->illegal_count++;
        }
    }
}

/* The send queue of an unreliable one that has failed is opened again, once all is flushed. */
static void recover(struct world *world, struct end *end)
{
    if (end->resolved < end->posted || dice_percent(&world->reuse, 30)) {
        return;
    }
    if (modify(world, end, QP_RTS, 0) != STATUS_OK) {
        simulator_violate(&world->simulator, "modify", "from SQE back to RTS");
    }
    end->failed = false;
    for (uint32_t i = end->failed_index; i < end->posted; i++) {
        if (end->ops[i].kind == WORK_BIND_WINDOW && end->ops[i].status == COMPLETION_FLUSHED) {
            stays_shut(end, end->ops[i].bind.key);
        }
    }
    world->coverage->recovered++;
}

static void turn(void *context, uint64_t argument)
{
    struct world *world = context;
    struct end *end = world->ends[argument];
    if (!end_lives(end) || end->stopped) {
        return;
    }
    if (end->failed && qp_current_state(end->qp) == QP_SQE) {
        recover(world, end);
    }
    if (end->failed && !dice_percent(&world->play, 40)) {
        end->stopped = true;
        return;
    }
    uint32_t before = end->posted + end->intakes->posted;
    if (!dice_percent(&world->play, world->profile.late_percent)) {
        post_receives(world, end, dice_range(&world->play, 1, 8));
    }
    bool talks = world->profile.talks;
    post_sends(world, end, talks ? 1 : dice_range(&world->play, 1, 5));
    if (dice_percent(&world->play, 2)) {
        provoke_post(world, end);
    }
    if (dice_percent(&world->play, talks ? 80 : 40)) {
        host_kick(end->host, end->qp);
        host_wake(end->host, dice_below(&world->play, 1000));
    } else if (device_ring(end->host->device, end->qp)) {
        host_wake(end->host, dice_below(&world->play, 1000));
    }
    bool posted = before != end->posted + end->intakes->posted;
    end->idle = posted ? 0 : end->idle + 1;
    if (posted || end->pause_ns == 0) {
        end->pause_ns = dice_range(&world->play, 200, 15000);
    } else if (end->pause_ns < PAUSE_MAX_NS && end->idle > 4) {
        end->pause_ns += end->pause_ns / 2;
    }
    bool all = end->posted == end->op_count && end->intakes->posted == end->intakes->count;
    if (!all && end->idle < IDLE_MAX) {
        simulator_after(&world->simulator, end->pause_ns, turn, world, argument);
    }
}

void workload_start(struct world *world, struct end *end)
{
    end->started = true;
    end->early_intakes = end->intakes->posted;
    simulator_after(&world->simulator, dice_below(&world->play, 3000), turn, world, end->number);
}

void workload_init(struct world *world)
{
    world->application.ran = ran;
}
