/* Down, up, and around the dead. */
#include "weir/group/spread.h"

#include <stdlib.h>
#include <string.h>

#include "weir/channel/timer.h"
#include "weir/group/call_message.h"
#include "weir/group/run.h"

#define IN_FLIGHT_MAX 64u

/* --- failures --- */

static void fail(struct spread *spread, uint32_t rank, enum weir_status status, uint32_t code)
{
    spread->is_short_of_memory |=
        !failures_add(&spread->failures, (struct weir_group_failure){rank, 1, status, code});
}

static void fail_all(struct spread *spread, const struct ranks *ranks, enum weir_status status)
{
    spread->is_short_of_memory |= !failures_add_ranks(&spread->failures, ranks, status, 0);
}

/* --- what has been replied --- */

static bool take_bytes(struct spread *spread, const uint8_t *bytes, size_t length)
{
    const struct weir_group_procedure *procedure = spread->run->procedure;
    size_t most = spread->run->calls->reply_length_max;
    if (procedure->combine == NULL) {
        return true;
    }
    if (length > most) {
        return false;
    }
    if (spread->combined == NULL) {
        spread->combined = malloc(most > 0 ? most : 1);
        if (spread->combined == NULL) {
            return false;
        }
    }
    bool is_combined = procedure->combine(spread->combined, &spread->combined_length, most, bytes,
                                          length, procedure->user);
    spread->has_bytes |= is_combined;
    return is_combined;
}

static void take_own(struct spread *spread)
{
    const struct weir_group_request *run = spread->run;
    if (run->status != WEIR_OK) {
        fail(spread, run->calls->rank, run->status, run->code);
    } else if (!take_bytes(spread, run->reply, run->reply_length)) {
        fail(spread, run->calls->rank, WEIR_PROTOCOL, 0);
    }
}

/* --- the end --- */

static void unlink_spread(struct spread *spread)
{
    struct spread **link = &spread->run->spreads;
    while (*link != spread) {
        link = &(*link)->next;
    }
    *link = spread->next;
}

static void free_spread(struct spread *spread)
{
    timers_cancel(&spread->run->calls->deadlines, &spread->deadline);
    failures_fini(&spread->failures);
    ranks_fini(&spread->waiting);
    free(spread->combined);
    free(spread);
}

static void reply_up(struct spread *spread)
{
    struct calls *calls = spread->run->calls;
    struct call_reply reply = {.has_bytes = spread->has_bytes};
    uint8_t header[CALL_REPLY_LENGTH];
    if (calls->is_ending || spread->is_late) { /* who asked goes around us */
        calls->port->refuse(calls->user, spread->request,
                            spread->is_late ? WEIR_TIMED_OUT : WEIR_CANCELED);
        return;
    }
    size_t length = failures_packed_length(&spread->failures);
    uint8_t *failures = spread->is_short_of_memory ? NULL : malloc(length);
    if (failures == NULL) {
        calls->port->refuse(calls->user, spread->request, WEIR_NO_MEMORY);
        return;
    }
    call_reply_pack(&reply, header);
    failures_pack(&spread->failures, failures);
    struct weir_piece pieces[] = {
        {header, sizeof(header)},
        {failures, length},
        {spread->combined, spread->combined_length},
    };
    calls->port->reply(calls->user, spread->request, pieces, 3);
    free(failures);
}

static void tell(struct spread *spread)
{
    struct calls *calls = spread->run->calls;
    struct weir_group_reply reply = {
        .status = calls->is_ending             ? WEIR_CANCELED
                  : spread->is_short_of_memory ? WEIR_NO_MEMORY
                                               : WEIR_OK,
        .asked = spread->asked,
        .replied = spread->asked - spread->failures.total,
        .failures = spread->failures.entries,
        .failure_count = spread->failures.count,
        .bytes = spread->combined,
        .length = spread->combined_length,
    };
    calls->own--;
    spread->replied(&reply, spread->argument);
}

/* Nothing is below it any more. */
static void answer(struct spread *spread)
{
    struct weir_group_request *run = spread->run;
    unlink_spread(spread);
    failures_settle(&spread->failures);
    if (spread->has_bytes && spread->failures.total == spread->asked) {
        spread->has_bytes = false; /* a child's PROTOCOL came after its bytes */
        spread->combined_length = 0;
    }
    run_hold(run);
    if (spread->request != NULL) {
        reply_up(spread);
    } else {
        tell(spread);
    }
    free_spread(spread);
    run_release(run);
}

/* Answers if nothing is waited for. */
static void settle(struct spread *spread)
{
    if (!spread->is_begun || spread->children != NULL) {
        return;
    }
    if (spread->has_own && spread->run->state != RUN_DONE) {
        return;
    }
    if (spread->has_own) {
        take_own(spread);
    }
    answer(spread);
}

void spreads_own_done(struct weir_group_request *run)
{
    struct spread *spread = run->spreads;
    while (spread != NULL) {
        bool ends = spread->has_own && spread->is_begun && spread->children == NULL;
        struct spread *next = spread->next;
        settle(spread);
        spread = ends ? run->spreads : next; /* who is told may end others */
    }
}

/* --- children --- */

static void free_child(struct child *child)
{
    struct spread *spread = child->spread;
    struct child **link = &spread->children;
    while (*link != child) {
        link = &(*link)->next;
    }
    *link = child->next;
    spread->in_flight -= child->is_sent;
    ranks_fini(&child->below);
    free(child);
}

/* The first `count` of the ranks become a child, which is next in the list. */
static bool add_child(struct spread *spread, struct ranks *ranks, uint32_t count,
                      struct child **next)
{
    struct child *child = calloc(1, sizeof(*child));
    if (child == NULL) {
        return false;
    }
    if (!ranks_move(ranks, count, &child->below)) {
        fail_all(spread, &child->below, WEIR_NO_MEMORY);
        ranks_fini(&child->below);
        free(child);
        return false;
    }
    child->root = ranks_take_first(&child->below);
    child->spread = spread;
    child->next = *next;
    *next = child;
    return true;
}

/* Cuts the ranks into children, before all others, in their order: so failures of neighbors come
 * one after the other, and many are as few bytes. Leaves none. */
static void cut(struct spread *spread, struct ranks *ranks)
{
    unsigned parts = spread->run->radix;
    struct child **next = &spread->children;
    while (ranks->total > 0) {
        uint32_t count = (ranks->total + parts - 1) / parts;
        if (!add_child(spread, ranks, count, next)) {
            fail_all(spread, ranks, WEIR_NO_MEMORY);
            break;
        }
        next = &(*next)->next;
        parts--;
    }
    ranks_fini(ranks);
}

/* Only its first rank has failed. */
static void lose(struct child *child, enum weir_status status, uint32_t code)
{
    struct spread *spread = child->spread;
    struct ranks orphans = child->below;
    child->below = (struct ranks){0};
    fail(spread, child->root, status, code);
    free_child(child);
    cut(spread, &orphans);
}

static uint64_t time_for(const struct child *child, uint64_t left_ns)
{
    return left_ns - (child->below.total > 0 ? left_ns / 4 : left_ns / 16);
}

static bool send(struct child *child, uint64_t now_ns)
{
    struct spread *spread = child->spread;
    const struct weir_group_request *run = spread->run;
    struct calls *calls = run->calls;
    struct call_request request = {
        .radix = run->radix,
        .caller_rank = run->caller_rank,
        .caller = run->caller,
        .number = run->number,
        .procedure = run->procedure->number,
        .total_ms = run->total_ms,
    };
    uint64_t left_ms = time_for(child, spread->due_ns - now_ns) / MILLISECOND_NS;
    uint8_t header[CALL_REQUEST_LENGTH];
    size_t length = ranks_packed_length(&child->below);
    uint8_t *below = malloc(length);
    if (below == NULL) {
        return false;
    }
    call_request_pack(&request, header);
    ranks_pack(&child->below, below);
    struct weir_piece pieces[] = {
        {header, sizeof(header)}, {below, length}, {run->bytes, run->length}};
    child->is_sent =
        calls->port->send(calls->user, child, pieces, 3, left_ms > 0 ? (unsigned)left_ms : 1);
    free(below);
    spread->in_flight += child->is_sent;
    return child->is_sent;
}

static struct child *find_unsent(const struct spread *spread)
{
    struct child *child = spread->children;
    while (child != NULL && child->is_sent) {
        child = child->next;
    }
    return child;
}

static void send_children(struct spread *spread)
{
    struct calls *calls = spread->run->calls;
    struct child *child;
    uint64_t now_ns = calls->port->now_ns(calls->user);
    while (spread->in_flight < IN_FLIGHT_MAX && (child = find_unsent(spread)) != NULL) {
        enum weir_status standing = calls->port->standing(calls->user, child->root);
        if (now_ns >= spread->due_ns) {
            standing = WEIR_TIMED_OUT;
        }
        if (standing != WEIR_OK) {
            lose(child, standing, 0);
        } else if (!send(child, now_ns)) {
            lose(child, WEIR_NO_MEMORY, 0);
        }
    }
}

void calls_failed(struct child *child, enum weir_status status, uint32_t code)
{
    struct spread *spread = child->spread;
    lose(child, status, code);
    send_children(spread);
    settle(spread);
}

/* Of the child's ranks that did not fail, or nothing. */
static bool take_reply(struct child *child, const struct call_reply *reply)
{
    struct spread *spread = child->spread;
    if (!failures_join(&spread->failures, &reply->failures)) {
        return false;
    }
    if (reply->has_bytes && !take_bytes(spread, reply->bytes, reply->length)) {
        spread->failures.count -= reply->failures.count;
        spread->failures.total -= reply->failures.total;
        return false;
    }
    return true;
}

void calls_answered(struct child *child, const uint8_t *bytes, size_t length)
{
    struct spread *spread = child->spread;
    struct ranks asked = {0};
    struct call_reply reply = {0};
    bool is_good = false;
    if (ranks_add(&asked, child->root, 1) && ranks_join(&asked, &child->below)) {
        is_good = call_reply_parse(bytes, length, &asked, &reply) == NULL;
    }
    ranks_fini(&asked);
    if (is_good && take_reply(child, &reply)) {
        free_child(child);
    } else {
        lose(child, WEIR_PROTOCOL, 0);
    }
    failures_fini(&reply.failures);
    send_children(spread);
    settle(spread);
}

/* --- life --- */

/* The caller's tree is of those whom it holds alive. */
static void leave_out(struct spread *spread)
{
    struct calls *calls = spread->run->calls;
    struct ranks alive = {0};
    while (spread->waiting.total > 0) {
        uint32_t rank = ranks_take_first(&spread->waiting);
        enum weir_status standing = calls->port->standing(calls->user, rank);
        if (standing == WEIR_OK && !ranks_add(&alive, rank, 1)) {
            standing = WEIR_NO_MEMORY;
        }
        if (standing != WEIR_OK) {
            fail(spread, rank, standing, 0);
        }
    }
    ranks_fini(&spread->waiting);
    spread->waiting = alive;
}

void spread_begin(struct spread *spread)
{
    spread->is_begun = true;
    timers_set(&spread->run->calls->deadlines, &spread->deadline, spread->due_ns);
    if (spread->request == NULL) {
        leave_out(spread);
    }
    cut(spread, &spread->waiting);
    send_children(spread);
    settle(spread);
}

void spread_end(struct spread *spread, enum weir_status status)
{
    struct calls *calls = spread->run->calls;
    while (spread->children != NULL) {
        struct child *child = spread->children;
        fail(spread, child->root, status, 0);
        fail_all(spread, &child->below, status);
        if (child->is_sent) {
            calls->port->cancel(calls->user, child);
        }
        free_child(child);
    }
    fail_all(spread, &spread->waiting, status);
    if (spread->has_own && spread->run->state == RUN_DONE) {
        take_own(spread);
    } else if (spread->has_own) {
        fail(spread, calls->rank, status, 0);
    }
    answer(spread);
}

/* Children fail before their parent's time is over. If not, we were stopped; who asked may have
 * time to go around us. */
static void give_up(struct spread *spread)
{
    spread->is_late = spread->request != NULL && spread->children != NULL;
    spread_end(spread, WEIR_TIMED_OUT);
}

static void due(struct timer *timer)
{
    struct spread *spread = (struct spread *)((char *)timer - offsetof(struct spread, deadline));
    if (spread->is_begun) {
        give_up(spread);
    } else {
        struct weir_group_request *run = spread->run;
        bool has_own = spread->has_own;
        run_hold(run);
        spread_begin(spread);
        if (has_own) {
            run_start(run);
        }
        run_release(run);
    }
}

struct spread *spread_create(struct weir_group_request *run, void *request, struct ranks *below,
                             bool has_own, uint64_t due_ns)
{
    struct calls *calls = run->calls;
    struct spread *spread = calloc(1, sizeof(*spread));
    if (spread == NULL) {
        return NULL;
    }
    spread->deadline.fire = due;
    /* One of ours begins with the next turn, within weir_poll. */
    if (!timers_set(&calls->deadlines, &spread->deadline,
                    request != NULL ? due_ns : calls->port->now_ns(calls->user))) {
        free(spread);
        return NULL;
    }
    spread->run = run;
    spread->request = request;
    spread->waiting = *below;
    spread->has_own = has_own;
    spread->asked = below->total + has_own;
    spread->due_ns = due_ns;
    spread->next = run->spreads;
    run->spreads = spread;
    return spread;
}
