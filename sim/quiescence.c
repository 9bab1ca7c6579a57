/* The judgement when nothing moves any more: what is outstanding, and all of memory. */
#include <stdio.h>
#include <string.h>

#include "sim/checker.h"
#include "sim/judge.h"
#include "sim/program.h"

static bool space_lives(const struct space *space)
{
    return host_is_alive(space->host) && space->host->life == space->life;
}

static void check_sends(struct world *world, struct end *end, bool in_error)
{
    for (uint32_t i = end->resolved; i < end->posted; i++) {
        const struct op *op = &end->ops[i];
        /* A healthy queue keeps silent about the successes that nobody asked about. */
        if (in_error || op->signaled || end->signal_all) {
            simulator_violate(&world->simulator, "outstanding",
                              "%c qp %u (service %u, %s): send %u of %u never completed",
                              end->host->name, end->qpn.value, end->service,
                              qp_state_name(qp_current_state(end->qp)), i, end->posted);
            return;
        }
    }
}

static void check_drained(struct world *world, const struct end *end)
{
    if (end->draining && qp_current_state(end->qp) == QP_SQD) {
        simulator_violate(&world->simulator, "drain", "%c qp %u: nobody said that it is drained",
                          end->host->name, end->qpn.value);
    }
}

static void check_receives(struct world *world, struct end *end, bool in_error)
{
    if (end->intakes->shared != NULL) {
        return;
    }
    if (in_error && end->own.resolved < end->own.posted) {
        simulator_violate(&world->simulator, "outstanding",
                          "%c qp %u: receive %u of %u was not flushed", end->host->name,
                          end->qpn.value, end->own.resolved, end->own.posted);
    }
}

/* All that an undisturbed pair was to do has been done. */
static void check_everything_done(struct world *world, struct pair *pair)
{
    if (pair->causes != 0) {
        return;
    }
    for (unsigned side = 0; side < 2; side++) {
        struct end *end = &pair->ends[side];
        if (end->started && !end->failed && !end->stopped && end->resolved < end->op_count) {
            simulator_violate(&world->simulator, "outstanding",
                              "%c qp %u: undisturbed, and only %u of %u sends are done",
                              end->host->name, end->qpn.value, end->resolved, end->op_count);
        }
        if (service_is_reliable(end->service) && end->started && end->peer->started &&
            end->messages_in < end->peer->consumer_count) {
            simulator_violate(&world->simulator, "outstanding",
                              "%c qp %u: undisturbed, and only %u of %u messages came",
                              end->host->name, end->qpn.value, end->messages_in,
                              end->peer->consumer_count);
        }
    }
}

/* On a sound network a datagram that found its receive waiting arrived. */
static void check_datagrams(struct world *world, const struct end *end)
{
    uint32_t sent = 0;
    uint32_t came = 0;
    for (uint32_t i = 0; i < world->single_count; i++) {
        const struct end *sender = world->singles[i];
        for (uint32_t j = 0; j < sender->posted; j++) {
            const struct op *op = &sender->ops[j];
            bool valid = op->destination == end && op->qkey.value == end->qkey.value;
            sent += valid && op->phase != OP_PLANNED;
            came += valid && op->receive_count > 0;
            sent -= valid && op->phase != OP_PLANNED && op->phase != OP_DONE;
        }
    }
    if (world->profile.strict && !end->gone && !end->lost && !end->moved_to_error &&
        end->early_intakes >= sent && came < sent) {
        simulator_violate(&world->simulator, "outstanding",
                          "%c qp %u: %u datagrams came of %u, and there were %u receives",
                          end->host->name, end->qpn.value, came, sent, end->early_intakes);
    }
}

static void check_refusals(struct world *world)
{
    for (uint32_t i = 0; i < world->host_count; i++) {
        const struct host *host = &world->hosts[i];
        if (!host_is_alive(host) || host->life > 1) {
            continue;
        }
        uint64_t refused = device_counters(host->device)->refused[REFUSED_ICRC];
        if (refused != world->network.corrupted_delivered[i]) {
            simulator_violate(&world->simulator, "icrc", "%c refused %llu frames of %llu corrupted",
                              host->name, (unsigned long long)refused,
                              (unsigned long long)world->network.corrupted_delivered[i]);
        }
    }
}

static bool is_undisturbed(const struct pair *pair)
{
    bool undisturbed = (pair->causes & ~(unsigned)CAUSE_RECEIVES) == 0;
    for (unsigned side = 0; side < 2; side++) {
        const struct end *end = &pair->ends[side];
        undisturbed &= !end->failed && !end->intake_failed && !end->gone && !end->lost;
    }
    return undisturbed;
}

/* Where the network delivers everything, and all ends are well, each answer comes, or says what is
 * to be sent again. */
static void check_waits(struct world *world)
{
    bool undisturbed = world->profile.strict;
    for (uint32_t i = 0; i < world->pair_count; i++) {
        undisturbed &= is_undisturbed(world->pairs[i]);
    }
    for (uint32_t i = 0; i < world->host_count && undisturbed; i++) {
        const struct host *host = &world->hosts[i];
        uint64_t timeouts =
            host_is_alive(host) ? device_counters(host->device)->values[COUNTER_TIMEOUTS] : 0;
        if (timeouts > 0) {
            simulator_violate(&world->simulator, "waits",
                              "%c waited for %llu timeouts, and nothing was lost", host->name,
                              (unsigned long long)timeouts);
        }
    }
}

void checker_quiescence(struct world *world)
{
    for (uint32_t i = 0; i < world->end_count; i++) {
        struct end *end = world->ends[i];
        if (end->gone || end->lost || end->qp == NULL || !space_lives(end->space)) {
            continue;
        }
        bool in_error = qp_current_state(end->qp) == QP_ERROR;
        check_sends(world, end, in_error || qp_current_state(end->qp) == QP_SQE);
        check_receives(world, end, in_error);
        check_drained(world, end);
    }
    for (uint32_t i = 0; i < world->pair_count; i++) {
        check_everything_done(world, world->pairs[i]);
    }
    for (uint32_t i = 0; i < world->single_count; i++) {
        check_datagrams(world, world->singles[i]);
    }
    check_refusals(world);
    check_waits(world);
}

static bool was_refused_by_peer(enum completion_status status)
{
    return status == COMPLETION_REMOTE_ACCESS_ERROR ||
           status == COMPLETION_REMOTE_INVALID_REQUEST_ERROR ||
           status == COMPLETION_REMOTE_OPERATION_ERROR;
}

/* What is wrong with a request is then nothing that its peer could refuse. */
#define WRONG_AT_HOME MAY(COMPLETION_LOCAL_PROTECTION_ERROR)

/* Whether the op, which did not succeed, may have had an effect: not behind one that the peer has
 * refused, for then the peer executes nothing more. But a READ that it refuses only when it is
 * asked again, or answers, because its key has gone meanwhile, proves nothing about those behind.
 */
static bool may_have_happened(const struct end *end, const struct op *op)
{
    if (op->phase == OP_PLANNED || op->phase == OP_DONE) {
        return op->phase == OP_DONE && !service_is_reliable(end->service);
    }
    if (op->phase != OP_FAILED || op->status != COMPLETION_FLUSHED || !end->failed) {
        return true;
    }
    const struct op *first = &end->ops[end->failed_index];
    bool is_granted = (first->may & (MAY(COMPLETION_SUCCESS) | WRONG_AT_HOME)) != 0;
    bool key_went = first->kind == WORK_READ && is_granted;
    return !was_refused_by_peer(end->failure) || key_went;
}

/* The transport asks for a long READ in pieces, of a packet each where windows are small; the first
 * ones of a READ that reaches too far are good. */
static bool may_be_read_in_part(const struct end *end, const struct op *op)
{
    return op->length > path_mtu_bytes(end->mtu);
}

/* A wrong key or range at home: what left before it was met is not in the model. */
static bool sends_unknown_bytes(const struct op *op)
{
    return (op->may & WRONG_AT_HOME) != 0;
}

/* Unreliable, but nothing was in its way. */
static bool is_certain(const struct world *world, const struct end *end, const struct op *op)
{
    return world->profile.strict && end->service == SERVICE_UC && op->phase == OP_DONE &&
           op->kind == WORK_WRITE && (end->pair->causes & ~(unsigned)CAUSE_RECEIVES) == 0;
}

static void settle_end(const struct world *world, struct end *end)
{
    for (uint32_t i = 0; i < end->posted; i++) {
        struct op *op = &end->ops[i];
        if (!may_have_happened(end, op)) {
            continue;
        }
        bool write = program_is_write(op->kind);
        if (write && op->has_target && is_certain(world, end, op)) {
            model_apply(&op->target, 1, 0, op->data, op->length);
        } else if (write && op->has_target && sends_unknown_bytes(op)) {
            model_accept(&op->target, 1);
        } else if (write && op->has_target) {
            model_allow(&op->target, 1, 0, op->data, op->length);
        } else if (op->kind == WORK_READ && !op->has_target && may_be_read_in_part(end, op)) {
            model_accept(op->spans, op->span_count);
        } else if (op->kind == WORK_READ && op->has_target) {
            model_allow(op->spans, op->span_count, 0, op->data, op->length);
        } else if (op->kind == WORK_COMPARE_SWAP || op->kind == WORK_FETCH_ADD) {
            model_accept(op->spans, op->span_count);
        }
    }
}

/* A receive that did not succeed may hold a part of the message that it was meant for. */
static void settle_intakes(struct end *end)
{
    for (uint32_t i = 0; end->peer != NULL && i < end->own.posted; i++) {
        struct intake *intake = &end->own.list[i];
        if (intake->phase == OP_DONE && service_is_reliable(end->service)) {
            continue;
        }
        if (!service_is_reliable(end->service)) {
            model_accept(intake->spans, intake->span_count);
        } else if (i < end->peer->consumer_count) {
            const struct op *op = &end->peer->ops[end->peer->consumers[i]];
            if (op->kind != WORK_WRITE_IMMEDIATE && sends_unknown_bytes(op)) {
                model_accept(intake->spans, intake->span_count);
            } else if (op->data != NULL && op->kind != WORK_WRITE_IMMEDIATE) {
                model_allow(intake->spans, intake->span_count, 0, op->data, op->length);
            }
        }
    }
}

static void settle_unordered(struct intakes *intakes)
{
    for (uint32_t i = 0; i < intakes->posted; i++) {
        struct intake *intake = &intakes->list[i];
        if (intake->phase != OP_DONE) {
            model_accept(intake->spans, intake->span_count);
        }
    }
}

/* The 40 bytes in front of a datagram are the link's to fill. */
static void settle_headers(struct end *end)
{
    for (uint32_t i = 0; i < end->own.posted; i++) {
        struct intake *intake = &end->own.list[i];
        uint32_t left = GRH_BYTES;
        for (uint32_t j = 0; j < intake->span_count && left > 0; j++) {
            struct span span = intake->spans[j];
            span.length = span.length < left ? span.length : left;
            model_accept(&span, 1);
            left -= span.length;
        }
    }
}

static void check_frozen(struct world *world, struct space *space)
{
    for (uint32_t i = 0; i < space->frozen_count; i++) {
        const struct frozen *frozen = &space->frozen[i];
        if (memcmp(space->bytes + frozen->offset, frozen->copy, frozen->length) != 0) {
            simulator_violate(&world->simulator, "frozen",
                              "%c: memory was written that nobody has a key for any more",
                              space->host->name);
        }
        memcpy(space->shadow + frozen->offset, space->bytes + frozen->offset, frozen->length);
    }
}

static bool holds(const struct span *span, const struct space *space, uint32_t at)
{
    return span->territory != NULL && span->territory->space == space && at >= span->offset &&
           at < span->offset + span->length;
}

/* Whose byte it is, for the words of a violation. */
static void name_owner(const struct world *world, const struct space *space, uint32_t at,
                       char *ret_text, size_t size)
{
    snprintf(ret_text, size, "a guard or a place that nobody uses");
    for (uint32_t i = 0; i < world->end_count; i++) {
        const struct end *end = world->ends[i];
        unsigned qpn = end->qpn.value;
        for (uint32_t j = 0; j < end->op_count; j++) {
            const struct op *op = &end->ops[j];
            if (op->has_target && holds(&op->target, space, at)) {
                snprintf(ret_text, size, "the target of qp %u send %u (kind %u, phase %u)", qpn, j,
                         op->kind, op->phase);
            }
            for (uint32_t k = 0; k < op->span_count; k++) {
                if (holds(&op->spans[k], space, at)) {
                    snprintf(ret_text, size, "sge %u of qp %u send %u (kind %u, phase %u)", k, qpn,
                             j, op->kind, op->phase);
                }
            }
        }
        for (uint32_t j = 0; j < end->own.count; j++) {
            for (uint32_t k = 0; k < end->own.list[j].span_count; k++) {
                if (holds(&end->own.list[j].spans[k], space, at)) {
                    snprintf(ret_text, size, "sge %u of qp %u receive %u (phase %u)", k, qpn, j,
                             end->own.list[j].phase);
                }
            }
        }
    }
}

static void check_space(struct world *world, struct space *space)
{
    check_frozen(world, space);
    if (memcmp(space->bytes, space->shadow, space->used) == 0) {
        return;
    }
    uint32_t at = 0;
    while (space->bytes[at] == space->shadow[at]) {
        at++;
    }
    uint32_t wrong = 0;
    for (uint32_t i = at; i < space->used; i++) {
        wrong += space->bytes[i] != space->shadow[i];
    }
    char owner[96];
    name_owner(world, space, at, owner, sizeof owner);
    simulator_violate(&world->simulator, "memory",
                      "%c: %u bytes from offset %u differ from the model, the first in %s",
                      space->host->name, wrong, at, owner);
}

void checker_memory(struct world *world)
{
    for (uint32_t i = 0; i < world->end_count; i++) {
        settle_end(world, world->ends[i]);
        settle_intakes(world->ends[i]);
        if (world->ends[i]->service == SERVICE_UD) {
            settle_headers(world->ends[i]);
            settle_unordered(&world->ends[i]->own);
        }
    }
    for (uint32_t i = 0; i < world->shared_count; i++) {
        settle_unordered(world->shared[i]);
    }
    judge_cells(world);
    for (uint32_t i = 0; i < 2 * HOST_MAX; i++) {
        if (world->spaces[i].host != NULL) {
            check_space(world, &world->spaces[i]);
        }
    }
}
