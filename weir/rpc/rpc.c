/* An rpc's life: options, deadlines, end. */
#include "weir/rpc/rpc.h"

#include <stdlib.h>

#include "weir/channel/timer.h"
#include "weir/error_private.h"
#include "weir/rpc/call.h"
#include "weir/rpc/client.h"
#include "weir/rpc/request.h"
#include "weir/rpc/rpc_message.h"
#include "weir/rpc/target.h"

#define MESSAGE_LEAST 256 /* a refusal's words fit, and a request's bulks */
#define WAIT_MAX_MS   ((uint64_t)1 << 31)

/* --- deadlines --- */

uint64_t rpc_read_clock(struct weir_rpc *rpc)
{
    rpc->now_ns = clock_now_ns();
    return rpc->now_ns;
}

static void run_deadlines(void *argument);

static void disarm(struct weir_rpc *rpc)
{
    weir_timer(rpc->poller, 0, run_deadlines, rpc);
    rpc->armed_ns = TIMER_NEVER;
}

/* It fires too early rather than to be set anew for each call that ends before its time. Once it is
 * set it needs no memory to be set anew. */
static bool arm(struct weir_rpc *rpc)
{
    uint64_t next_ns = timers_next_ns(&rpc->deadlines);
    if (next_ns >= rpc->armed_ns) {
        return true;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_ms = next_ns > now_ns ? (next_ns - now_ns) / MILLISECOND_NS + 1 : 1;
    wait_ms = wait_ms < WAIT_MAX_MS ? wait_ms : WAIT_MAX_MS;
    disarm(rpc);
    if (weir_timer(rpc->poller, (unsigned)wait_ms, run_deadlines, rpc) != WEIR_OK) {
        return false;
    }
    rpc->armed_ns = next_ns;
    return true;
}

static void run_deadlines(void *argument)
{
    struct weir_rpc *rpc = argument;
    struct timer *timer;
    uint64_t now_ns = rpc_read_clock(rpc);
    /* At once, for what the last timer took is there: from here on it is only moved. */
    rpc->armed_ns = TIMER_NEVER;
    arm(rpc);
    while ((timer = timers_take(&rpc->deadlines, now_ns)) != NULL) {
        timer->fire(timer);
    }
    if (rpc->armed_ns <= now_ns) { /* for what has been done */
        disarm(rpc);
        arm(rpc);
    }
}

bool rpc_set_deadline(struct weir_rpc *rpc, struct timer *timer, uint64_t deadline_ns)
{
    if (!timers_set(&rpc->deadlines, timer, deadline_ns)) {
        return false;
    }
    if (deadline_ns < rpc->armed_ns && !arm(rpc)) {
        return false;
    }
    return true;
}

void rpc_forget_deadline(struct weir_rpc *rpc, struct timer *timer)
{
    timers_cancel(&rpc->deadlines, timer);
}

/* --- life --- */

static unsigned choose(unsigned given, unsigned usual)
{
    return given != 0 ? given : usual;
}

static struct weir_rpc_options resolve(const struct weir_rpc_options *options)
{
    struct weir_rpc_options resolved = options != NULL ? *options : (struct weir_rpc_options){0};
    resolved.in_flight_max = choose(resolved.in_flight_max, 32);
    resolved.waiting_max = choose(resolved.waiting_max, 4096);
    resolved.timeout_ms = choose(resolved.timeout_ms, 10000);
    resolved.release_ms = choose(resolved.release_ms, 100);
    resolved.requests_max = choose(resolved.requests_max, 1024);
    resolved.client_requests_max = choose(resolved.client_requests_max, 64);
    resolved.clients_max = choose(resolved.clients_max, 1024);
    if (resolved.held_length_max == 0) {
        resolved.held_length_max = (size_t)64 << 20;
    }
    if (resolved.channel.message_length_max == 0) {
        resolved.channel.message_length_max = (size_t)1 << 20;
    }
    return resolved;
}

enum weir_status weir_rpc_create(struct weir_poller *poller, const struct weir_rpc_options *options,
                                 struct weir_rpc **ret_rpc, struct weir_error *ret_error)
{
    struct weir_rpc_options resolved = resolve(options);
    if (resolved.in_flight_max > RPC_PLACES_MAX || resolved.client_requests_max > RPC_PLACES_MAX) {
        return error_set(ret_error, WEIR_INVALID, "more than %d calls in flight to one server",
                         RPC_PLACES_MAX);
    }
    if (resolved.channel.message_length_max < MESSAGE_LEAST) {
        return error_set(ret_error, WEIR_INVALID, "messages of less than %d bytes", MESSAGE_LEAST);
    }
    struct weir_rpc *rpc = calloc(1, sizeof(*rpc));
    if (rpc == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    rpc->poller = poller;
    rpc->options = resolved;
    rpc->armed_ns = TIMER_NEVER;
    rpc->calls = (struct pool){sizeof(struct weir_call), offsetof(struct weir_call, shown), NULL};
    rpc->requests =
        (struct pool){sizeof(struct weir_request), offsetof(struct weir_request, bulk), NULL};
    rpc->moves = (struct pool){sizeof(struct move), 0, NULL};
    *ret_rpc = rpc;
    return WEIR_OK;
}

struct weir_poller *weir_rpc_poller(const struct weir_rpc *rpc)
{
    return rpc->poller;
}

void weir_rpc_destroy(struct weir_rpc *rpc)
{
    if (rpc == NULL) {
        return;
    }
    rpc->is_ending = true;
    weir_rpc_unlisten(rpc);
    targets_end(rpc);
    clients_fini(rpc);
    targets_fini(rpc);
    disarm(rpc);
    timers_fini(&rpc->deadlines);
    pool_fini(&rpc->calls);
    pool_fini(&rpc->requests);
    pool_fini(&rpc->moves);
    chunks_fini(&rpc->chunks);
    procedures_fini(&rpc->procedures);
    free(rpc);
}
