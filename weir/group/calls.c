/* Requests in, deaths in, time. */
#include "weir/group/calls.h"

#include <stdlib.h>

#include "weir/channel/timer.h"
#include "weir/group/call_message.h"
#include "weir/group/run.h"
#include "weir/group/spread.h"

#define OWN_MAX    512u /* half of what members remember of each caller */
#define TIMEOUT_MS 10000u

void calls_init(struct calls *calls, uint64_t id)
{
    calls->id = id;
    calls->next_number = 1;
}

struct weir_group_procedure *calls_find_procedure(const struct calls *calls, uint64_t number)
{
    struct weir_group_procedure *procedure = calls->procedures;
    while (procedure != NULL && procedure->number != number) {
        procedure = procedure->next;
    }
    return procedure;
}

void calls_fini(struct calls *calls)
{
    calls->is_ending = true;
    for (struct weir_group_request *run = calls->first; run != NULL; run = calls->first) {
        run_hold(run);
        while (run->spreads != NULL) {
            spread_end(run->spreads, WEIR_CANCELED);
        }
        run_free(run);
    }
    while (calls->procedures != NULL) {
        struct weir_group_procedure *procedure = calls->procedures;
        calls->procedures = procedure->next;
        free(procedure);
    }
    timers_fini(&calls->deadlines);
    seen_fini(&calls->seen);
}

/* --- ours --- */

/* Of the ranks, without ours. */
static bool take_out_own(struct ranks *ranks, uint32_t rank)
{
    struct ranks without = {0};
    for (size_t i = ranks->begin; i < ranks->end; i++) {
        struct rank_range range = ranks->ranges[i];
        uint32_t before = rank >= range.first && rank - range.first < range.count
                              ? rank - range.first
                              : range.count;
        uint32_t skipped = before < range.count;
        if (!ranks_add(&without, range.first, before) ||
            !ranks_add(&without, range.first + before + skipped, range.count - before - skipped)) {
            ranks_fini(&without);
            return false;
        }
    }
    ranks_fini(ranks);
    *ranks = without;
    return true;
}

/* None of ours may fall out of what members remember while another is under way. */
static bool has_room(const struct calls *calls)
{
    const struct weir_group_request *run = calls->first;
    while (run != NULL && (run->caller != calls->id || run->spreads == NULL)) {
        run = run->next;
    }
    return calls->own < OWN_MAX &&
           (run == NULL || calls->next_number - run->number < SEEN_WINDOW / 2);
}

enum weir_status calls_begin(struct calls *calls, struct weir_group_procedure *procedure,
                             const struct weir_piece *pieces, unsigned count,
                             const struct weir_group_call_options *options, struct ranks *ranks,
                             weir_group_replied *replied, void *argument)
{
    struct call_request request = {
        .radix = options->radix != 0 ? options->radix : calls->radix,
        .caller_rank = calls->rank,
        .caller = calls->id,
        .number = calls->next_number,
        .total_ms = options->timeout_ms != 0 ? options->timeout_ms : TIMEOUT_MS,
    };
    bool has_own = calls->rank != WEIR_RANK_NONE && ranks_has(ranks, calls->rank);
    if (!has_room(calls) || (has_own && !take_out_own(ranks, calls->rank))) {
        return WEIR_NO_MEMORY;
    }
    uint64_t due_ns = calls->port->now_ns(calls->user) + request.total_ms * MILLISECOND_NS;
    struct weir_group_request *run = run_create(calls, &request, pieces, count, procedure);
    if (run == NULL) {
        return WEIR_NO_MEMORY;
    }
    struct spread *spread = spread_create(run, NULL, ranks, has_own, due_ns);
    if (spread == NULL) {
        run_free(run);
        return WEIR_NO_MEMORY;
    }
    spread->replied = replied;
    spread->argument = argument;
    calls->next_number++;
    calls->own++;
    return WEIR_OK;
}

/* --- of others --- */

static enum weir_status take(struct calls *calls, void *request, struct call_request *message,
                             unsigned timeout_ms)
{
    struct weir_group_procedure *procedure = calls_find_procedure(calls, message->procedure);
    if (procedure == NULL || procedure->handler == NULL || calls->rank == WEIR_RANK_NONE) {
        return WEIR_UNSUPPORTED;
    }
    struct weir_group_request *run = run_find(calls, message->caller, message->number);
    struct weir_piece piece = {message->bytes, message->length};
    if (run == NULL) {
        run = run_create(calls, message, &piece, 1, procedure);
    }
    if (run == NULL) {
        return WEIR_NO_MEMORY;
    }
    uint64_t time_ns = (uint64_t)timeout_ms * MILLISECOND_NS;
    uint64_t due_ns = calls->port->now_ns(calls->user) + time_ns - time_ns / 16;
    run_hold(run);
    struct spread *spread = spread_create(run, request, &message->below, true, due_ns);
    if (spread != NULL) {
        message->below = (struct ranks){0};
        spread_begin(spread);
        run_start(run);
    }
    run_release(run);
    return spread != NULL ? WEIR_OK : WEIR_NO_MEMORY;
}

void calls_take(struct calls *calls, void *request, const uint8_t *bytes, size_t length,
                unsigned timeout_ms)
{
    struct call_request message;
    if (call_request_parse(bytes, length, &message) != NULL) {
        calls->port->refuse(calls->user, request, WEIR_PROTOCOL);
        return;
    }
    enum weir_status status = take(calls, request, &message, timeout_ms);
    ranks_fini(&message.below);
    if (status != WEIR_OK) {
        calls->port->refuse(calls->user, request, status);
    }
}

void calls_gone(struct calls *calls, const void *request)
{
    for (struct weir_group_request *run = calls->first; run != NULL; run = run->next) {
        for (struct spread *spread = run->spreads; spread != NULL; spread = spread->next) {
            if (spread->request == request) {
                spread_end(spread, WEIR_CANCELED);
                return;
            }
        }
    }
}

static struct child *find_child(const struct calls *calls, uint32_t root)
{
    for (struct weir_group_request *run = calls->first; run != NULL; run = run->next) {
        for (struct spread *spread = run->spreads; spread != NULL; spread = spread->next) {
            struct child *child = spread->children;
            while (child != NULL && (child->root != root || !child->is_sent)) {
                child = child->next;
            }
            if (child != NULL) {
                return child;
            }
        }
    }
    return NULL;
}

void calls_died(struct calls *calls, uint32_t rank)
{
    struct child *child;
    while ((child = find_child(calls, rank)) != NULL) {
        calls->port->cancel(calls->user, child);
        calls_failed(child, WEIR_PEER_LOST, 0);
    }
}

/* --- time --- */

uint64_t calls_next_ns(const struct calls *calls)
{
    return timers_next_ns(&calls->deadlines);
}

void calls_advance(struct calls *calls)
{
    struct timer *timer;
    uint64_t now_ns = calls->port->now_ns(calls->user);
    while ((timer = timers_take(&calls->deadlines, now_ns)) != NULL) {
        timer->fire(timer);
    }
}
