/* Runs: made, answered, forgotten. */
#include "weir/group/run.h"

#include <stdlib.h>
#include <string.h>

#include "weir/channel/timer.h"
#include "weir/group/spread.h"

#define RUNS_MAX     1024u
#define TOTAL_MAX_MS 3600000u /* what a peer can have us keep something for */

static struct weir_group_request *run_of(struct timer *timer)
{
    return (struct weir_group_request *)((char *)timer -
                                         offsetof(struct weir_group_request, expiry));
}

struct weir_group_request *run_find(const struct calls *calls, uint64_t caller, uint64_t number)
{
    struct weir_group_request *run = calls->last;
    while (run != NULL && (run->caller != caller || run->number != number)) {
        run = run->previous;
    }
    return run;
}

/* --- life --- */

void run_free(struct weir_group_request *run)
{
    struct calls *calls = run->calls;
    *(run->previous != NULL ? &run->previous->next : &calls->first) = run->next;
    *(run->next != NULL ? &run->next->previous : &calls->last) = run->previous;
    timers_cancel(&calls->deadlines, &run->expiry);
    calls->count--;
    calls->held_length -= run->length + run->reply_length;
    free(run->reply);
    free(run->bytes);
    free(run);
}

static bool is_idle(const struct weir_group_request *run)
{
    return run->spreads == NULL && run->state != RUN_RUNNING && run->holds == 0;
}

void run_hold(struct weir_group_request *run)
{
    run->holds++;
}

void run_release(struct weir_group_request *run)
{
    run->holds--;
    if (is_idle(run) && run->expiry.place == 0) {
        run_free(run);
    }
}

static void expired(struct timer *timer)
{
    struct weir_group_request *run = run_of(timer);
    run_hold(run);
    run_release(run);
}

/* What has been answered is kept as long as there is room. */
static bool make_room(struct calls *calls, size_t length)
{
    struct weir_group_request *run = calls->first;
    while (run != NULL &&
           (calls->count >= RUNS_MAX || length > calls->held_length_max - calls->held_length)) {
        struct weir_group_request *next = run->next;
        if (is_idle(run)) {
            run_free(run);
        }
        run = next;
    }
    return calls->count < RUNS_MAX && length <= calls->held_length_max - calls->held_length;
}

static void gather(const struct weir_piece *pieces, unsigned count, uint8_t *ret_bytes)
{
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].length > 0) {
            memcpy(ret_bytes, pieces[i].bytes, pieces[i].length);
            ret_bytes += pieces[i].length;
        }
    }
}

static void link_run(struct weir_group_request *run)
{
    struct calls *calls = run->calls;
    run->previous = calls->last;
    *(calls->last != NULL ? &calls->last->next : &calls->first) = run;
    calls->last = run;
    calls->count++;
    calls->held_length += run->length;
}

struct weir_group_request *run_create(struct calls *calls, const struct call_request *request,
                                      const struct weir_piece *pieces, unsigned count,
                                      struct weir_group_procedure *procedure)
{
    size_t length = 0;
    for (unsigned i = 0; i < count; i++) {
        length += pieces[i].length;
    }
    if (!make_room(calls, length)) {
        return NULL;
    }
    uint32_t kept_ms = request->total_ms < TOTAL_MAX_MS ? request->total_ms : TOTAL_MAX_MS;
    uint64_t expiry_ns = calls->port->now_ns(calls->user) + kept_ms * MILLISECOND_NS;
    struct weir_group_request *run = calloc(1, sizeof(*run));
    if (run == NULL) {
        return NULL;
    }
    run->expiry.fire = expired;
    run->bytes = malloc(length > 0 ? length : 1);
    if (run->bytes == NULL || !timers_set(&calls->deadlines, &run->expiry, expiry_ns)) {
        free(run->bytes);
        free(run);
        return NULL;
    }
    gather(pieces, count, run->bytes);
    run->calls = calls;
    run->caller = request->caller;
    run->number = request->number;
    run->caller_rank = request->caller_rank;
    run->radix = request->radix;
    run->total_ms = request->total_ms;
    run->procedure = procedure;
    run->length = length;
    link_run(run);
    return run;
}

/* --- the handler --- */

static void done(struct weir_group_request *run, enum weir_status status, uint32_t code)
{
    run->state = RUN_DONE;
    run->status = status;
    run->code = code;
    run_hold(run);
    spreads_own_done(run);
    run_release(run);
}

void run_start(struct weir_group_request *run)
{
    if (run->state != RUN_NOT_HERE) {
        return;
    }
    const struct weir_group_procedure *procedure = run->procedure;
    enum seen_verdict verdict = seen_take(&run->calls->seen, run->caller, run->number);
    if (procedure->handler == NULL) {
        done(run, WEIR_UNSUPPORTED, 0);
    } else if (verdict != SEEN_NEW) {
        done(run, verdict == SEEN_BEFORE ? WEIR_STATE : WEIR_NO_MEMORY, 0);
    } else {
        run->state = RUN_RUNNING;
        procedure->handler(run, run->bytes, run->length, procedure->user);
    }
}

enum weir_status weir_group_request_reply(struct weir_group_request *request, const void *bytes,
                                          size_t length)
{
    struct calls *calls = request->calls;
    if (length > calls->reply_length_max) {
        return WEIR_TOO_LONG;
    }
    if (length > 0 && request->procedure->combine != NULL) {
        if (length > calls->held_length_max - calls->held_length) {
            return WEIR_NO_MEMORY;
        }
        request->reply = malloc(length);
        if (request->reply == NULL) {
            return WEIR_NO_MEMORY;
        }
        memcpy(request->reply, bytes, length);
        request->reply_length = length;
        calls->held_length += length;
    }
    done(request, WEIR_OK, 0);
    return WEIR_OK;
}

void weir_group_request_refuse(struct weir_group_request *request, uint32_t code)
{
    done(request, WEIR_REFUSED, code);
}

uint32_t weir_group_request_caller(const struct weir_group_request *request)
{
    return request->caller_rank;
}
