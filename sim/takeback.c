#include "sim/takeback.h"

#include "rnic/base/check.h"
#include "rnic/base/container.h"
#include "sim/monitor.h"
#include "sim/program.h"
#include "sim/reuse.h"
#include "sim/workload.h"

static bool is_alive(const struct takeback *takeback)
{
    return takeback->host != NULL && host_is_alive(takeback->host) &&
           takeback->host->life == takeback->life;
}

static bool end_lives(const struct end *end)
{
    return !end->gone && end->qp != NULL && end->host->life == end->life;
}

/* What names it. A READ that was answered, and the answer lost, may wait for another in vain. */
static void may_be_refused(struct world *world, const struct territory *territory)
{
    for (uint32_t i = 0; i < world->end_count; i++) {
        struct end *end = world->ends[i];
        for (uint32_t j = 0; j < end->op_count; j++) {
            struct op *op = &end->ops[j];
            if (op->has_target && op->target.territory == territory && op->phase != OP_DONE) {
                op->may |= op->length > 0 ? MAY(COMPLETION_REMOTE_ACCESS_ERROR) : 0;
                op->may |= op->kind == WORK_READ ? MAY(COMPLETION_RETRY_EXCEEDED) : 0;
                end->pair->causes |= CAUSE_ILLEGAL;
                end->pair->illegal_count += 2;
            }
        }
    }
}

static void act(struct world *world, struct takeback *takeback)
{
    struct end *end = takeback->end;
    takeback->host = NULL;
    if (takeback->territory != NULL) {
        simulator_note(&world->simulator, "%c deregisters key %x",
                       takeback->territory->space->host->name, takeback->territory->key.value);
        may_be_refused(world, takeback->territory); /* by one planned since it was begun, too */
        model_deregister(&world->scratch, takeback->territory);
    } else if (end_lives(end) && takeback->kind == TAKEBACK_DESTROYS) {
        workload_destroy_end(world, end);
    } else if (end_lives(end)) {
        struct qp *qp = end->qp;
        if (takeback->kind == TAKEBACK_RESETS) {
            reuse_end(world, end);
        } else {
            workload_fail(world, end);
        }
        device_let_go_qp(end->host->device, qp, true);
    }
}

/* Who stands outside of a system call need not be waited for; `by` does now, NULL: nobody. */
static void go_on(struct world *world, struct takeback *takeback, const struct host *by)
{
    if (!is_alive(takeback)) {
        takeback->host = NULL;
        return;
    }
    while (!direct_wait_is_over(&takeback->wait)) {
        if (by == NULL || takeback->wait.index != by->index || !takeback->sees_stopped) {
            return;
        }
        direct_wait_pass(&takeback->wait);
    }
    act(world, takeback);
}

static void go_on_event(void *context, uint64_t index)
{
    struct world *world = context;
    if (world->takebacks[index].host != NULL) {
        go_on(world, &world->takebacks[index], NULL);
    }
}

/* NULL: there are too many. */
static struct takeback *begin(struct world *world, struct host *host)
{
    if (world->takeback_count == TAKEBACK_MAX) {
        return NULL;
    }
    struct takeback *takeback = &world->takebacks[world->takeback_count];
    *takeback = (struct takeback){
        .host = host, .life = host->life, .sees_stopped = dice_percent(&world->play, 50)};
    return takeback;
}

static void wait(struct world *world, struct takeback *takeback)
{
    struct direct_end *own = &takeback->host->direct;
    direct_wait_begin(&takeback->wait, &own->guard, own->announcements, &own->end);
    simulator_after(&world->simulator, dice_below(&world->play, 3000), go_on_event, world,
                    world->takeback_count++);
}

void takeback_region(struct world *world, struct territory *territory)
{
    struct takeback *takeback = begin(world, territory->space->host);
    if (takeback == NULL) {
        return;
    }
    simulator_note(&world->simulator, "%c takes key %x back", takeback->host->name,
                   territory->key.value);
    may_be_refused(world, territory);
    takeback->territory = territory;
    (void)device_hold_region(takeback->host->device, territory->key);
    wait(world, takeback);
}

static bool names(const struct span *spans, uint32_t count, const struct territory *territory)
{
    for (uint32_t i = 0; i < count; i++) {
        if (spans[i].territory == territory && spans[i].length > 0) {
            return true;
        }
    }
    return false;
}

static void blame_own(struct end *end)
{
    if (end->pair == NULL) {
        end->moved_to_error = true; /* by its own receive, if it comes to that */
    } else if (end->peer != NULL) {
        program_blame_key(end);
    }
}

static void may_fail_at_home(struct end *end, const struct territory *territory)
{
    for (uint32_t i = 0; i < end->op_count; i++) {
        struct op *op = &end->ops[i];
        if (names(op->spans, op->span_count, territory) && op->phase < OP_DONE) {
            op->may |= MAY(COMPLETION_LOCAL_PROTECTION_ERROR);
            blame_own(end);
        }
    }
    for (uint32_t i = 0; i < end->intakes->count; i++) {
        struct intake *intake = &end->intakes->list[i];
        if (names(intake->spans, intake->span_count, territory) && intake->phase < OP_DONE) {
            intake->may |= MAY(COMPLETION_LOCAL_PROTECTION_ERROR);
            end->intakes->lost_key = true;
            blame_own(end);
        }
    }
}

void takeback_own_region(struct world *world, struct territory *territory)
{
    workload_poll_all(world);
    simulator_note(&world->simulator, "%c deregisters its own key %x", territory->space->host->name,
                   territory->key.value);
    for (uint32_t i = 0; i < world->end_count; i++) {
        if (world->ends[i]->space == territory->space && world->ends[i]->intakes != NULL) {
            may_fail_at_home(world->ends[i], territory);
        }
    }
    model_deregister(&world->scratch, territory);
}

void takeback_end(struct world *world, struct end *end, enum takeback_end kind)
{
    struct qpn peer;
    struct takeback *takeback = end_lives(end) ? begin(world, end->host) : NULL;
    if (takeback == NULL) {
        return;
    }
    takeback->end = end;
    takeback->kind = kind;
    (void)device_hold_qp(end->host->device, end->qp, &peer);
    wait(world, takeback);
}

static bool may_be_taken_back(const struct territory *territory)
{
    return territory->alive && !territory->foreign &&
           (territory->access == ACCESS_REMOTE_READ ||
            territory->access == (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE));
}

static struct territory *territory_of(struct world *world, const struct host *owner,
                                      struct memory_key key)
{
    struct space *space = world->space_of[owner->index];
    for (uint32_t i = 0; i < space->territory_count; i++) {
        if (space->territories[i]->key.value == key.value &&
            may_be_taken_back(space->territories[i])) {
            return space->territories[i];
        }
    }
    return NULL;
}

static struct end *end_of(struct world *world, const struct host *host, struct qpn qpn)
{
    for (uint32_t i = 0; i < world->end_count; i++) {
        struct end *end = world->ends[i];
        if (end->host == host && end->qpn.value == qpn.value && end_lives(end)) {
            return end;
        }
    }
    return NULL;
}

/* What is touched is taken back by its owner, at whatever step that has come to. */
static void take_back_some(struct world *world, struct host *owner,
                           const struct direct_access *access)
{
    struct territory *territory = territory_of(world, owner, access->key);
    struct end *end = end_of(world, owner, access->target);
    uint32_t lot = dice_below(&world->play, 4);
    if (lot < 2 && territory != NULL) {
        takeback_region(world, territory);
    } else if (lot >= 2 && end != NULL && end->started && !end->is_target) {
        takeback_end(world, end, lot == 2 ? TAKEBACK_DESTROYS : TAKEBACK_FAILS);
    }
}

/* What is still touched has not come to its end. */
static void check(struct world *world, struct host *owner, const struct direct_access *access)
{
    const struct end *end = end_of(world, owner, access->target);
    if (end == NULL || end->moved_to_error) {
        simulator_violate(&world->simulator, "direct", "%c qp %u is gone, and memory is touched",
                          owner->name, access->target.value);
    }
}

static void touched(struct host_application *application, struct host *owner, const struct host *by,
                    const struct direct_access *access, enum direct_step step)
{
    struct world *world = CONTAINER_OF(application, struct world, application);
    const struct host *outside = step == DIRECT_STEP_MOVING ? NULL : by;
    if (dice_chance(&world->play, world->profile.link.taken_back)) {
        take_back_some(world, owner, access);
    }
    for (uint32_t i = 0; i < world->takeback_count; i++) {
        if (world->takebacks[i].host == owner) {
            go_on(world, &world->takebacks[i], outside);
        }
    }
    if (step == DIRECT_STEP_MOVING) {
        check(world, owner, access);
    }
}

static void moved(struct host_application *application, struct host *by,
                  const struct direct_access *access)
{
    struct world *world = CONTAINER_OF(application, struct world, application);
    struct end *end = end_of(world, by, access->initiator);
    if (end != NULL) {
        monitor_done_directly(&world->monitor, end, access);
    }
}

void takeback_init(struct world *world)
{
    world->application.touched = touched;
    world->application.moved = moved;
}
