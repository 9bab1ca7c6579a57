/* Connecting, sending in order, losing. */
#include "weir/rpc/target.h"

#include <stdlib.h>
#include <string.h>

#include "weir/bytes.h"
#include "weir/channel/timer.h"
#include "weir/error_private.h"
#include "weir/rpc/call.h"
#include "weir/rpc/rpc.h"
#include "weir/rpc/rpc_message.h"

#define AGAIN_LEAST_MS 10u
#define AGAIN_MOST_MS  1000u
#define REST_LEAST_MS  1u
#define REST_MOST_MS   64u

/* --- lines --- */

void line_remove(struct line *line, struct weir_call *call)
{
    *(call->previous != NULL ? &call->previous->next : &line->first) = call->next;
    *(call->next != NULL ? &call->next->previous : &line->last) = call->previous;
    call->next = call->previous = NULL;
    line->count--;
}

/* New calls go to the end; those that come back were sent from the front, in flight's number. */
static struct weir_call *first_after(const struct line *line, uint64_t sequence)
{
    if (line->last == NULL || line->last->sequence < sequence) {
        return NULL;
    }
    struct weir_call *call = line->first;
    while (call->sequence < sequence) {
        call = call->next;
    }
    return call;
}

void line_insert(struct line *line, struct weir_call *call)
{
    call->next = first_after(line, call->sequence);
    call->previous = call->next != NULL ? call->next->previous : line->last;
    *(call->previous != NULL ? &call->previous->next : &line->first) = call;
    *(call->next != NULL ? &call->next->previous : &line->last) = call;
    line->count++;
}

void target_line_up(struct weir_target *target, struct weir_call *call)
{
    line_insert(&target->waiting, call);
    TALLY(call, waiting);
}

void target_leave_line(struct weir_target *target, struct weir_call *call)
{
    line_remove(&target->waiting, call);
    TALLY_MORE(call, waiting, -1u);
}

/* --- slots --- */

/* The first that waits goes into flight. */
static void take_slot(struct weir_target *target, struct weir_call *call)
{
    call->slot = target->first_free;
    struct slot *slot = &target->slots[call->slot];
    target->first_free = slot->next_free;
    slot->is_taken = true;
    slot->call = call;
    slot->procedure = call->procedure;
    target->in_flight++;
    TALLY(slot, in_flight);
    target_leave_line(target, call);
}

void target_free_slot(struct weir_target *target, uint32_t index)
{
    struct slot *slot = &target->slots[index];
    slot->call = NULL;
    slot->is_taken = false;
    slot->next_free = target->first_free;
    target->first_free = index;
    target->in_flight--;
    TALLY_MORE(slot, in_flight, -1u);
}

/* NULL: none is taken there. */
static struct slot *find_slot(const struct weir_target *target, unsigned place)
{
    bool is_taken = place < target->rpc->options.in_flight_max && target->slots[place].is_taken;
    return is_taken ? &target->slots[place] : NULL;
}

/* --- the connection --- */

static void connect_again_later(struct weir_target *target)
{
    target->again_ms = target->again_ms == 0 ? AGAIN_LEAST_MS : 2 * target->again_ms;
    target->again_ms = target->again_ms < AGAIN_MOST_MS ? target->again_ms : AGAIN_MOST_MS;
    rpc_set_deadline(target->rpc, &target->again,
                     clock_now_ns() + target->again_ms * MILLISECOND_NS);
}

/* NULL, or why it is none. */
static const char *check_answer(const struct slot *slot, const struct rpc_message *message)
{
    if (slot == NULL) {
        return "an answer to what was not asked";
    }
    if (message->kind == RPC_CANCELED && slot->call != NULL && slot->call->state == CALL_SENT) {
        return "it gave up what was not canceled";
    }
    return NULL;
}

static void take_answer(struct weir_target *target, const struct rpc_message *message)
{
    struct slot *slot = find_slot(target, message->place);
    const char *wrong = check_answer(slot, message);
    if (wrong != NULL) {
        weir_abort_protocol(target->connection, wrong);
        return;
    }
    struct weir_call *call = slot->call;
    bool is_late = call == NULL || call->state == CALL_LEAVING;
    TALLY_MORE(slot, late, is_late && message->kind != RPC_CANCELED);
    TALLY_MORE(slot, bytes_received, message->length);
    target_free_slot(target, message->place);
    if (message->kind != RPC_BUSY) {
        target->is_proven = true;
        target->again_ms = 0;
        window_answered(&target->window);
        rpc_forget_deadline(target->rpc, &target->rest); /* what was answered has made room */
        target->rest_ms = 0;
    }
    if (call != NULL) {
        call_answer(call, message);
    }
}

/* Where there is no memory to know it nothing is known. */
static void learn_procedures(struct weir_target *target, const struct rpc_message *welcome)
{
    const struct procedures *procedures = &target->rpc->procedures;
    free(target->known);
    target->known = calloc(procedures->count, sizeof(*target->known));
    target->known_count = target->known != NULL ? procedures->count : 0;
    for (size_t i = 0; target->known != NULL && i < welcome->length; i += RPC_NUMBER_LENGTH) {
        uint64_t number = get_u64(welcome->bytes + i);
        const struct weir_procedure *procedure = procedures_find(procedures, (uint32_t)number);
        if (procedure != NULL && procedure->number == number) {
            target->known[procedure->index] = true;
        }
    }
}

static void take_welcome(struct weir_target *target, const struct rpc_message *message)
{
    unsigned most = target->rpc->options.in_flight_max;
    window_init(&target->window, message->value < most ? message->value : most);
    learn_procedures(target, message);
    target->is_welcome = true;
    target->trouble = (struct weir_error){0};
    target->connections++;
}

static bool may_send(const struct weir_target *target)
{
    return target->waiting.first != NULL && target->is_welcome && target->rest.place == 0 &&
           target->in_flight < target->window.size;
}

/* What has waited is told how much time it has left. */
static void advance_now(struct weir_target *target)
{
    if (may_send(target)) {
        rpc_read_clock(target->rpc);
    }
    target_advance(target);
}

static void received(struct weir_connection *connection, const void *bytes, size_t length,
                     void *user)
{
    struct weir_target *target = user;
    struct rpc_message message;
    const char *wrong = rpc_message_parse(bytes, length, &message);
    if (wrong == NULL &&
        (message.kind >= RPC_REQUEST || (message.kind == RPC_WELCOME) == target->is_welcome)) {
        wrong = target->is_welcome ? "what a server does not say" : "no welcome from the server";
    }
    if (wrong != NULL) {
        weir_abort_protocol(connection, wrong);
        return;
    }
    target_hold(target);
    if (message.kind == RPC_WELCOME) {
        take_welcome(target, &message);
    } else {
        take_answer(target, &message);
    }
    advance_now(target);
    target_release(target);
}

/* Those that are sent again wait before anybody is told of the others: who is told may do anything.
 */
static void lose_calls(struct weir_target *target, const struct weir_error *reason)
{
    for (unsigned pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < target->rpc->options.in_flight_max; i++) {
            struct weir_call *call = target->slots[i].call;
            if (pass == 0 && (call == NULL || !call_is_sent_again(call))) {
                continue;
            }
            if (target->slots[i].is_taken) {
                target_free_slot(target, i);
            }
            if (call != NULL) {
                call_lose(call, reason);
            }
        }
    }
}

static void closed(struct weir_connection *connection, const struct weir_error *reason, void *user)
{
    struct weir_target *target = user;
    target->connection = NULL;
    target->is_welcome = false;
    target->trouble = *reason;
    rpc_forget_deadline(target->rpc, &target->rest);
    target->rest_ms = 0;
    if (!target->is_proven || reason->status == WEIR_PROTOCOL) {
        connect_again_later(target);
    }
    target_hold(target);
    lose_calls(target, reason);
    target_advance(target);
    target_release(target);
}

static void connect_now(struct weir_target *target)
{
    static const struct weir_handler handler = {.received = received, .closed = closed};
    target->is_proven = false;
    if (weir_connect(target->rpc->poller, target->address, &target->rpc->options.channel, &handler,
                     target, &target->connection, &target->trouble) != WEIR_OK) {
        target->connection = NULL;
        connect_again_later(target);
    }
}

void target_advance(struct weir_target *target)
{
    if (target->is_destroyed || target->rpc->is_ending) {
        return;
    }
    while (may_send(target)) {
        struct weir_call *call = target->waiting.first;
        take_slot(target, call);
        if (!call_send(call, target->connection)) {
            return; /* it is closing, and waits for its end */
        }
    }
    if (target->waiting.first != NULL && target->connection == NULL && target->again.place == 0) {
        connect_now(target);
    }
}

void target_rest(struct weir_target *target, uint64_t sent)
{
    window_busy(&target->window, sent, target->next_sent);
    if (target->rest.place != 0) {
        return;
    }
    target->rest_ms = target->rest_ms == 0 ? REST_LEAST_MS : 2 * target->rest_ms;
    target->rest_ms = target->rest_ms < REST_MOST_MS ? target->rest_ms : REST_MOST_MS;
    rpc_set_deadline(target->rpc, &target->rest, clock_now_ns() + target->rest_ms * MILLISECOND_NS);
}

void target_send_cancel(struct weir_target *target, uint32_t slot)
{
    struct rpc_message message = {.kind = RPC_CANCEL, .place = slot};
    uint8_t bytes[RPC_HEADER_MAX];
    if (target->connection != NULL) {
        weir_send(target->connection, bytes, rpc_message_pack(&message, bytes), NULL, NULL);
    }
}

/* --- life --- */

static void again_due(struct timer *timer)
{
    target_advance((struct weir_target *)((char *)timer - offsetof(struct weir_target, again)));
}

static void rest_due(struct timer *timer)
{
    advance_now((struct weir_target *)((char *)timer - offsetof(struct weir_target, rest)));
}

enum weir_status weir_target_create(struct weir_rpc *rpc, const char *address,
                                    struct weir_target **ret_target, struct weir_error *ret_error)
{
    if (rpc->is_ending) {
        return error_set(ret_error, WEIR_STATE, "%s: this rpc is being destroyed", address);
    }
    unsigned count = rpc->options.in_flight_max;
    struct weir_target *target = calloc(1, sizeof(*target));
    if (target != NULL) {
        target->address = strdup(address);
        target->slots = calloc(count, sizeof(*target->slots));
    }
    if (target == NULL || target->address == NULL || target->slots == NULL) {
        if (target != NULL) {
            free(target->address);
            free(target->slots);
        }
        free(target);
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    for (uint32_t i = 0; i < count; i++) {
        target->slots[i].target = target;
        target->slots[i].next_free = i + 1;
    }
    target->rpc = rpc;
    target->again.fire = again_due;
    target->rest.fire = rest_due;
    target->next = rpc->targets;
    if (target->next != NULL) {
        target->next->previous = target;
    }
    rpc->targets = target;
    *ret_target = target;
    return WEIR_OK;
}

static void free_target(struct weir_target *target)
{
    *(target->previous != NULL ? &target->previous->next : &target->rpc->targets) = target->next;
    if (target->next != NULL) {
        target->next->previous = target->previous;
    }
    rpc_forget_deadline(target->rpc, &target->again);
    rpc_forget_deadline(target->rpc, &target->rest);
    free(target->known);
    free(target->slots);
    free(target->address);
    free(target);
}

void target_hold(struct weir_target *target)
{
    target->holds++;
}

void target_release(struct weir_target *target)
{
    target->holds--;
    if (target->holds == 0 && target->is_destroyed && target->connection == NULL &&
        !target->rpc->is_ending) {
        free_target(target);
    }
}

static void end_calls(struct weir_target *target)
{
    for (uint32_t i = 0; i < target->rpc->options.in_flight_max; i++) {
        if (target->slots[i].call != NULL) {
            call_drop(target->slots[i].call);
        }
    }
    while (target->waiting.first != NULL) {
        call_drop(target->waiting.first);
    }
    while (target->ended.first != NULL) {
        call_drop(target->ended.first);
    }
}

void weir_target_destroy(struct weir_target *target)
{
    if (target == NULL || target->is_destroyed) {
        return;
    }
    target->is_destroyed = true;
    target_hold(target);
    end_calls(target);
    if (target->connection != NULL) {
        weir_close(target->connection);
    }
    target_release(target);
}

void targets_end(struct weir_rpc *rpc)
{
    for (struct weir_target *target = rpc->targets; target != NULL; target = target->next) {
        weir_target_destroy(target);
        if (target->connection != NULL) {
            weir_connection_destroy(target->connection);
        }
    }
}

void targets_fini(struct weir_rpc *rpc)
{
    while (rpc->targets != NULL) {
        free_target(rpc->targets);
    }
}

const char *weir_target_address(const struct weir_target *target)
{
    return target->address;
}

void weir_target_statistics(const struct weir_target *target,
                            struct weir_target_statistics *ret_statistics)
{
    *ret_statistics = (struct weir_target_statistics){
        .calls = tally_told(&target->tally),
        .window = target->window.size,
        .is_connected = target->is_welcome,
        .connections = target->connections,
    };
}
