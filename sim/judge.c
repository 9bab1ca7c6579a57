#include "sim/judge.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/memory/window.h"
#include "sim/checker.h"
#include "sim/program.h"
#include "sim/workload.h"

static bool space_lives(const struct space *space)
{
    return host_is_alive(space->host) && space->host->life == space->life;
}

static void wrong(struct world *world, const char *oracle, const struct end *end,
                  const struct op *op, uint32_t at, const char *what)
{
    simulator_violate(&world->simulator, oracle,
                      "%c qp %u send %u (kind %u, length %u): %s, byte %u", end->host->name,
                      end->qpn.value, (unsigned)(op - end->ops), op->kind, op->length, what, at);
}

static bool spans_meet(const struct span *a, const struct span *b)
{
    return a->territory == b->territory && a->offset < b->offset + b->length &&
           b->offset < a->offset + a->length;
}

/* Whether a later WRITE of the same queue may have changed op's target already. */
static bool may_be_overwritten(const struct end *end, const struct op *op)
{
    for (const struct op *later = op + 1; later < end->ops + end->posted; later++) {
        if (later->has_target && later->kind != WORK_READ &&
            spans_meet(&later->target, &op->target)) {
            return true;
        }
    }
    return false;
}

void judge_written(struct world *world, struct end *end, struct op *op)
{
    uint32_t at;
    if (op->has_target && space_lives(op->target.territory->space) &&
        !may_be_overwritten(end, op) &&
        !model_scattered_equal(&op->target, 1, 0, op->data, op->length, &at)) {
        wrong(world, "data", end, op, at, "the target does not hold what was written");
    }
}

static void judge_consumer(struct world *world, struct end *end, struct op *op)
{
    if (op->received || end->peer->gone || end->peer->lost) {
        return;
    }
    workload_pull(end->peer->receive_cq);
    const struct application_queue *queue = end->peer->receive_cq;
    uint32_t found = 0;
    for (uint32_t i = 0; i < queue->pending_count; i++) {
        const struct completion *pending = &queue->pending[(queue->pending_head + i) % PENDING_MAX];
        /* An id of a receive has bit 31 set: the salt lies above it. */
        found += pending->qpn.value == end->peer->qpn.value && (pending->id >> 31 & 1) != 0 &&
                 pending->status == COMPLETION_SUCCESS;
    }
    if (end->peer->messages_in + found <= op->consumer && queue->pending_count < PENDING_MAX) {
        wrong(world, "order", end, op, 0, "acknowledged before its receive has completed");
    }
}

static void judge_brought(struct world *world, struct end *end, struct op *op)
{
    uint32_t at;
    if (op->kind == WORK_READ) {
        if (!model_scattered_equal(op->spans, op->span_count, 0, op->data, op->length, &at)) {
            wrong(world, "data", end, op, at, "READ brought other bytes");
        }
        model_apply(op->spans, op->span_count, 0, op->data, op->length);
    } else if (op->kind == WORK_COMPARE_SWAP || op->kind == WORK_FETCH_ADD) {
        memcpy(&op->original, model_bytes(&op->spans[0]), sizeof op->original);
        model_accept(op->spans, 1);
    }
}

static bool is_shut_again(const struct end *end, const struct op *op)
{
    for (uint32_t i = 0; i < end->posted; i++) {
        if (end->ops[i].kind == WORK_LOCAL_INVALIDATE &&
            end->ops[i].invalidate.value == op->bind.key.value) {
            return true;
        }
    }
    return false;
}

/* What a bind or a local invalidate has made of its window. */
static void judge_window(struct world *world, struct end *end, struct op *op)
{
    struct memory *memory = device_memory(end->host->device);
    bool zero_based = (op->bind.access & ACCESS_ZERO_BASED) != 0;
    struct memory_request whole = {
        .domain = end->space->domain,
        .key = op->bind.key,
        .address = zero_based ? 0 : op->bind.address,
        .length = op->bind.length,
        .rights = ACCESS_REMOTE_WRITE,
        .qpn = end->qpn,
    };
    uint8_t *bytes;
    if (op->kind == WORK_BIND_WINDOW && !is_shut_again(end, op) &&
        memory_check(memory, &whole, &bytes) != MEMORY_GRANTED) {
        wrong(world, "memory", end, op, 0, "its window is not open");
    } else if (op->kind == WORK_LOCAL_INVALIDATE &&
               window_invalidate(memory, end->space->domain, end->qpn, op->invalidate) ==
                   STATUS_OK) {
        wrong(world, "memory", end, op, 0, "its window is still open");
    }
}

void judge_done(struct world *world, struct end *end, uint32_t index)
{
    struct op *op = &end->ops[index];
    op->phase = OP_DONE;
    op->status = COMPLETION_SUCCESS;
    if ((op->may & MAY(COMPLETION_SUCCESS)) == 0) {
        wrong(world, "status", end, op, 0, "success, but it had to fail");
        return;
    }
    judge_window(world, end, op);
    if (!service_is_reliable(end->service)) {
        return; /* sent: nothing is known of the other side */
    }
    if (op->consumer != UINT32_MAX) {
        judge_consumer(world, end, op);
    }
    if (program_is_write(op->kind)) {
        judge_written(world, end, op);
        model_apply(&op->target, 1, 0, op->data, op->length);
    }
    judge_brought(world, end, op);
}

/* Linearising atomics. */

#define SEARCH_MAX 200000u

struct lane {
    struct op *ops[OP_MAX];
    uint32_t count;
};

struct search {
    struct lane lanes[END_MAX];
    uint32_t lane_count;
    uint32_t next[END_MAX];
    uint64_t final;
    uint32_t steps;
};

static uint64_t result_of(const struct op *op, uint64_t value)
{
    if (op->kind == WORK_FETCH_ADD) {
        return value + op->swap_or_add;
    }
    return value == op->compare ? op->swap_or_add : value;
}

/* A lane's certain ops are all to be placed; its uncertain ones, which come behind, may be. */
static bool place_rest(struct search *search, uint64_t value)
{
    if (search->steps++ > SEARCH_MAX) {
        return true; /* too many ways to look at: not a violation that we can show */
    }
    bool certain_left = false;
    for (uint32_t i = 0; i < search->lane_count; i++) {
        struct lane *lane = &search->lanes[i];
        if (search->next[i] == lane->count) {
            continue;
        }
        struct op *op = lane->ops[search->next[i]];
        certain_left |= op->phase == OP_DONE;
        if (op->phase == OP_DONE && op->original != value) {
            continue;
        }
        search->next[i]++;
        bool found = place_rest(search, result_of(op, value));
        search->next[i]--;
        if (found) {
            return true;
        }
    }
    return !certain_left && value == search->final;
}

static void add_to_lane(struct search *search, struct lane *lane, struct op *op)
{
    (void)search;
    bool happened = op->phase == OP_DONE || op->phase == OP_POSTED || op->phase == OP_VOID ||
                    op->phase == OP_FAILED;
    if (happened) {
        lane->ops[lane->count++] = op;
    }
}

static void judge_cell(struct world *world, struct cell *cell)
{
    if (!cell->span.territory->alive || !space_lives(cell->span.territory->space)) {
        return;
    }
    static struct search search;
    memset(&search, 0, sizeof search);
    memcpy(&search.final, model_bytes(&cell->span), 8);
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->end_count; i++) {
        struct end *end = world->ends[i];
        struct lane *lane = &search.lanes[search.lane_count];
        lane->count = 0;
        for (uint32_t j = 0; j < end->posted; j++) {
            if (end->ops[j].cell == cell) {
                add_to_lane(&search, lane, &end->ops[j]);
            }
        }
        count += lane->count;
        search.lane_count += lane->count > 0;
    }
    if (!place_rest(&search, cell->initial)) {
        simulator_violate(&world->simulator, "atomic",
                          "%c: no order of the %u atomics on a cell explains their results",
                          cell->span.territory->space->host->name, count);
    }
    model_accept(&cell->span, 1);
}

void judge_cells(struct world *world)
{
    for (uint32_t i = 0; i < world->cell_count; i++) {
        judge_cell(world, &world->cells[i]);
    }
}
