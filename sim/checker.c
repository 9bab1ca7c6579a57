#include "sim/checker.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/memory/window.h"
#include "sim/judge.h"
#include "sim/program.h"
#include "sim/workload.h"

#define ID_RECEIVE (UINT64_C(1) << 31)
#define ID_SALT    UINT64_C(0x5a5a000000000000)

uint64_t checker_send_id(const struct end *end, uint32_t index)
{
    return ID_SALT ^ ((uint64_t)end->number << 32 | index);
}

uint64_t checker_receive_id(const struct end *end, uint32_t index)
{
    return ID_SALT ^ ((uint64_t)end->number << 32 | ID_RECEIVE | index);
}

static void wrong(struct world *world, const char *oracle, const struct end *end,
                  const struct completion *completion, const char *what)
{
    uint64_t id = completion->id ^ ID_SALT;
    simulator_violate(&world->simulator, oracle,
                      "%c qp %u (peer %u, service %u): %s %u completed %s length %u: %s",
                      end->host->name, end->qpn.value, end->peer != NULL ? end->peer->qpn.value : 0,
                      end->service, (id & ID_RECEIVE) != 0 ? "receive" : "send",
                      (unsigned)(id & 0xffff), completion_status_name(completion->status),
                      completion->byte_length, what);
}

static bool may_fail_for_others(const struct end *end, const struct op *op,
                                enum completion_status status)
{
    const struct pair *pair = end->pair;
    if (pair == NULL) {
        return status == COMPLETION_FLUSHED && end->moved_to_error;
    }
    const struct end *peer = end->peer;
    switch (status) {
    case COMPLETION_RETRY_EXCEEDED:
        return (pair->causes & (CAUSE_LOSS | CAUSE_PEER | CAUSE_OVERRUN)) != 0 || peer->failed ||
               peer->intake_failed || (pair->causes & CAUSE_ILLEGAL) != 0;
    case COMPLETION_RNR_RETRY_EXCEEDED:
        return op->consumer != UINT32_MAX && end->attributes.rnr_retry_count < 7;
    case COMPLETION_FLUSHED:
        /* Its responder half has failed, or somebody moved it to error. */
        return end->moved_to_error || (pair->causes & CAUSE_ILLEGAL) != 0;
    default:
        return false;
    }
}

/* The one illegal request of a pair that nothing else disturbs fails at its place, for its reason.
 */
static bool fails_as_foretold(const struct end *end, const struct op *op,
                              enum completion_status status)
{
    const struct pair *pair = end->pair;
    if (pair == NULL || pair->causes != CAUSE_ILLEGAL || pair->illegal_count != 1 ||
        pair->illegal_op < end->ops || pair->illegal_op >= end->ops + end->op_count ||
        status == COMPLETION_RNR_RETRY_EXCEEDED) {
        return true;
    }
    return pair->illegal_op == op && (op->may & MAY(status)) != 0;
}

static void check_failure(struct world *world, struct end *end, struct op *op,
                          const struct completion *completion)
{
    enum completion_status status = completion->status;
    if (end->failed) {
        if (status != COMPLETION_FLUSHED) {
            wrong(world, "status", end, completion, "only flushes may follow the first failure");
        }
        return;
    }
    end->failed = true;
    end->failure = status;
    end->failed_index = (uint32_t)(op - end->ops);
    if ((op->may & MAY(status)) == 0 && !may_fail_for_others(end, op, status)) {
        wrong(world, "status", end, completion, "nothing explains this failure");
    } else if (!fails_as_foretold(end, op, status)) {
        wrong(world, "status", end, completion, "another failure was due first");
    } else if (status == COMPLETION_RETRY_EXCEEDED) {
        monitor_retry_exceeded(&world->monitor, end, op);
    } else if (status == COMPLETION_RNR_RETRY_EXCEEDED) {
        monitor_rnr_exceeded(&world->monitor, end, op);
    }
}

static enum completion_kind send_kind(enum work_kind kind)
{
    switch (kind) {
    case WORK_WRITE:
    case WORK_WRITE_IMMEDIATE:
        return COMPLETED_WRITE;
    case WORK_READ:
        return COMPLETED_READ;
    case WORK_COMPARE_SWAP:
        return COMPLETED_COMPARE_SWAP;
    case WORK_FETCH_ADD:
        return COMPLETED_FETCH_ADD;
    case WORK_ATOMIC_WRITE:
        return COMPLETED_ATOMIC_WRITE;
    case WORK_LOCAL_INVALIDATE:
        return COMPLETED_LOCAL_INVALIDATE;
    case WORK_BIND_WINDOW:
        return COMPLETED_BIND_WINDOW;
    default:
        return COMPLETED_SEND;
    }
}

static void send_completed(struct world *world, struct end *end, uint32_t index,
                           const struct completion *completion)
{
    if (index >= end->posted || index < end->resolved) {
        wrong(world, "order", end, completion,
              index >= end->posted ? "it was never posted" : "it had completed before");
        return;
    }
    struct op *op = &end->ops[index];
    bool success = completion->status == COMPLETION_SUCCESS;
    for (; end->resolved < index && !simulator_is_violated(&world->simulator); end->resolved++) {
        struct op *before = &end->ops[end->resolved];
        if (before->signaled || end->signal_all || end->failed) {
            wrong(world, "order", end, completion, "one before it has not completed");
            return;
        }
        judge_done(world, end, end->resolved);
        workload_reuse(world, before);
    }
    end->resolved = index + 1;
    if (completion->qpn.value != end->qpn.value) {
        wrong(world, "status", end, completion, "wrong queue pair number");
    }
    if (!success) {
        world->coverage->failed[completion->status]++;
        check_failure(world, end, op, completion);
        op->phase = OP_FAILED;
        op->status = completion->status;
        workload_reuse(world, op);
        return;
    }
    world->coverage->done[op->kind]++;
    if (end->failed) {
        wrong(world, "status", end, completion, "success after a failure");
    } else if (!op->signaled && !end->signal_all) {
        wrong(world, "order", end, completion, "success of an unsignaled request was said");
    } else if (completion->kind != send_kind(op->kind)) {
        wrong(world, "status", end, completion, "wrong kind");
    } else {
        judge_done(world, end, index);
        workload_reuse(world, op);
    }
}

/* Which message an unreliable receive holds: it says so itself. */
static struct op *tagged_message(struct world *world, struct end *end, struct intake *intake,
                                 const struct completion *completion, struct end **ret_sender)
{
    uint32_t tag = completion->immediate;
    uint32_t skip = end->service == SERVICE_UD ? GRH_BYTES : 0;
    if (!completion->has_immediate) {
        uint8_t bytes[GRH_BYTES + sizeof tag] = {0};
        uint32_t at = 0;
        for (uint32_t i = 0; i < intake->span_count && at < skip + sizeof tag; i++) {
            uint32_t part = intake->spans[i].length;
            part = part < skip + sizeof tag - at ? part : skip + (uint32_t)sizeof tag - at;
            memcpy(bytes + at, model_bytes(&intake->spans[i]), part);
            at += part;
        }
        memcpy(&tag, bytes + skip, sizeof tag);
    }
    return program_find(world, end, tag, ret_sender);
}

static bool unreliable_message_fits(struct world *world, struct end *end, struct op *op,
                                    const struct end *sender, const struct completion *completion)
{
    if (op == NULL || op->phase == OP_PLANNED) {
        wrong(world, "data", end, completion, "no message like that was sent here");
        return false;
    }
    if (end->service == SERVICE_UD) {
        world->coverage->datagrams++;
        op->receive_count++;
        if (op->receive_count > 1 && world->network.duplicated == 0) {
            wrong(world, "data", end, completion, "a datagram came twice");
        } else if (op->qkey.value != end->qkey.value) {
            wrong(world, "data", end, completion, "its Q_Key was wrong");
        } else if (completion->source.value != sender->qpn.value) {
            wrong(world, "data", end, completion, "wrong source");
        }
    } else {
        world->coverage->unreliable++;
        /* It knows no duplicates: a first packet is taken whatever its PSN. */
        bool orderly = world->network.duplicated == 0 && world->network.delayed == 0;
        if (orderly && op->consumer < end->message_next) {
            wrong(world, "order", end, completion, "it came twice, or too late");
        }
        end->message_next = op->consumer + 1;
    }
    return !simulator_is_violated(&world->simulator);
}

static struct op *reliable_message(struct world *world, struct end *end,
                                   const struct completion *completion, struct end **ret_sender)
{
    struct end *peer = end->peer;
    if (end->messages_in >= peer->consumer_count) {
        wrong(world, "data", end, completion, "more messages than were sent");
        return NULL;
    }
    struct op *op = &peer->ops[peer->consumers[end->messages_in]];
    if (op->phase == OP_PLANNED) {
        wrong(world, "data", end, completion, "the message was not even posted");
        return NULL;
    }
    if ((op->may & MAY(COMPLETION_SUCCESS)) == 0) {
        wrong(world, "status", end, completion, "this message cannot be received");
        return NULL;
    }
    *ret_sender = peer;
    end->messages_in++;
    return op;
}

/* A message that shuts a window says so, and has. `end` may be gone since. */
static void check_invalidated(struct world *world, struct end *end, const struct op *op,
                              const struct completion *completion)
{
    bool shuts = op->kind == WORK_SEND_INVALIDATE;
    if (completion->has_invalidated != shuts ||
        (shuts && completion->invalidated.value != op->invalidate.value)) {
        wrong(world, "data", end, completion, "wrong invalidated key");
    } else if (shuts && host_is_alive(end->host) && end->life == end->host->life &&
               window_invalidate(device_memory(end->host->device), end->space->domain, end->qpn,
                                 op->invalidate) == STATUS_OK) {
        wrong(world, "memory", end, completion, "its window is still open");
    }
}

static void check_received(struct world *world, struct end *end, struct intake *intake,
                           struct op *op, const struct completion *completion)
{
    bool write = op->kind == WORK_WRITE_IMMEDIATE;
    bool immediate = write || op->kind == WORK_SEND_IMMEDIATE;
    uint32_t skip = end->service == SERVICE_UD ? GRH_BYTES : 0;
    uint32_t at;
    op->received = true;
    intake->met = op;
    check_invalidated(world, end, op, completion);
    if (completion->kind != (write ? COMPLETED_RECEIVE_WRITE_IMMEDIATE : COMPLETED_RECEIVE)) {
        wrong(world, "status", end, completion, "wrong kind");
    } else if (completion->byte_length != op->length + skip) {
        wrong(world, "data", end, completion, "wrong length");
    } else if (completion->has_immediate != immediate ||
               (immediate && completion->immediate != op->immediate)) {
        wrong(world, "data", end, completion, "wrong immediate");
    } else if (write) {
        judge_written(world, end->peer, op);
    } else {
        if (!model_scattered_equal(intake->spans, intake->span_count, skip, op->data, op->length,
                                   &at)) {
            wrong(world, "data", end, completion, "other bytes than were sent");
        }
        model_apply(intake->spans, intake->span_count, skip, op->data, op->length);
    }
}

static bool intake_may_fail(const struct end *end, const struct intake *intake,
                            enum completion_status status)
{
    if (status == COMPLETION_FLUSHED) {
        return end->failed || end->intake_failed || end->moved_to_error ||
               (end->pair != NULL && end->pair->causes != 0);
    }
    return (intake->may & MAY(status)) != 0;
}

static void receive_failed(struct world *world, struct end *end, struct intake *intake,
                           const struct completion *completion)
{
    if (!intake_may_fail(end, intake, completion->status)) {
        wrong(world, "status", end, completion, "nothing explains this failure");
    } else if (end->intake_failed && completion->status != COMPLETION_FLUSHED) {
        wrong(world, "status", end, completion, "only flushes may follow the first failure");
    }
    end->intake_failed = true;
    intake->phase = OP_FAILED;
    intake->status = completion->status;
}

static void receive_completed(struct world *world, struct end *end, struct intakes *intakes,
                              uint32_t index, const struct completion *completion, bool quiet)
{
    struct intake *intake = &intakes->list[index];
    if (index >= intakes->posted || intake->phase != OP_POSTED) {
        wrong(world, "order", end, completion,
              index >= intakes->posted ? "it was never posted" : "it had completed before");
        return;
    }
    if (intakes->shared == NULL && index != intakes->resolved) {
        wrong(world, "order", end, completion, "one before it has not completed");
        return;
    }
    intakes->resolved++;
    if (completion->qpn.value != end->qpn.value) {
        wrong(world, "status", end, completion, "wrong queue pair number");
    }
    if (completion->status != COMPLETION_SUCCESS) {
        receive_failed(world, end, intake, completion);
        return;
    }
    world->coverage->received++;
    intake->phase = OP_DONE;
    struct end *sender = NULL;
    struct op *op = service_is_reliable(end->service)
                        ? reliable_message(world, end, completion, &sender)
                        : tagged_message(world, end, intake, completion, &sender);
    if (op == NULL && service_is_reliable(end->service)) {
        return;
    }
    if (!service_is_reliable(end->service) &&
        !unreliable_message_fits(world, end, op, sender, completion)) {
        return;
    }
    if (end->intake_failed) {
        wrong(world, "status", end, completion, "success after a failure");
    } else if (quiet && op->solicited) {
        wrong(world, "wakeup", end, completion, "a solicited completion woke nobody");
    } else {
        check_received(world, end, intake, op, completion);
    }
}

static struct end *end_of(struct world *world, const struct completion *completion)
{
    for (uint32_t i = world->end_count; i > 0; i--) { /* the last to have the queue pair */
        if (world->ends[i - 1]->qpn.value == completion->qpn.value) {
            return world->ends[i - 1];
        }
    }
    return NULL;
}

static void trace_completion(struct world *world, const struct end *end,
                             const struct completion *completion)
{
    uint64_t id = completion->id ^ ID_SALT;
    simulator_mix(&world->simulator, completion->id ^ world->simulator.now.ns);
    simulator_mix(&world->simulator, completion->status);
    simulator_note(&world->simulator, "%c qp %u %s %u %s", end->host->name, end->qpn.value,
                   (id & ID_RECEIVE) != 0 ? "receive" : "send", (unsigned)(id & 0xffff),
                   completion_status_name(completion->status));
}

void checker_completion(struct world *world, struct application_queue *queue,
                        const struct completion *completion, bool quiet)
{
    uint64_t id = completion->id ^ ID_SALT;
    uint32_t number = (uint32_t)(id >> 32);
    uint32_t index = (uint32_t)(id & 0xffff);
    bool receive = (id & ID_RECEIVE) != 0;
    struct end *end = receive                     ? end_of(world, completion)
                      : number < world->end_count ? world->ends[number]
                                                  : NULL;
    if (end == NULL || number >= world->end_count) {
        simulator_violate(&world->simulator, "order", "a completion of nobody: id %llx",
                          (unsigned long long)completion->id);
        return;
    }
    trace_completion(world, end, completion);
    if (end->lost) {
        return;
    }
    if (end->gone) {
        wrong(world, "order", end, completion, "its queue pair is gone");
        return;
    }
    if (queue != (receive ? end->receive_cq : end->send_cq)) {
        wrong(world, "order", end, completion, "it came out of another queue");
        return;
    }
    if (quiet && (!queue->solicited_only || completion->status != COMPLETION_SUCCESS)) {
        wrong(world, "wakeup", end, completion, "the queue was armed and woke nobody");
        return;
    }
    if (!receive) {
        send_completed(world, end, index, completion);
        return;
    }
    struct intakes *intakes = end->intakes;
    if (intakes->owner != world->ends[number] || index >= RECEIVE_MAX) {
        wrong(world, "order", end, completion, "it was posted elsewhere");
        return;
    }
    receive_completed(world, end, intakes, index, completion, quiet);
}
