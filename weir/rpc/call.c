/* What happens to a call. */
#include "weir/rpc/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "weir/channel/timer.h"
#include "weir/rpc/rpc.h"
#include "weir/rpc/target.h"

#define WORDS_MAX          400
#define REQUEST_LENGTH_MAX ((size_t)1 << 31)

/* --- the end --- */

static void leave(struct weir_call *call)
{
    struct weir_target *target = call->target;
    if (call->state == CALL_WAITING) {
        target_leave_line(target, call);
    } else if (call->state == CALL_ENDED) {
        line_remove(&target->ended, call);
    } else if (target->slots[call->slot].call == call) {
        target->slots[call->slot].call = NULL; /* taken until it is answered */
    }
}

static void count(struct weir_call *call, enum weir_status status)
{
    switch (status) {
    case WEIR_OK:
        TALLY(call, replies);
        break;
    case WEIR_REFUSED:
    case WEIR_UNSUPPORTED:
        TALLY(call, refused);
        break;
    case WEIR_TIMED_OUT:
        TALLY(call, timeouts);
        return;
    case WEIR_CANCELED:
        TALLY(call, canceled);
        return;
    case WEIR_PEER_LOST:
        TALLY(call, lost);
        return;
    default:
        TALLY(call, failed);
        return;
    }
    uint64_t passed_ns = rpc_read_clock(call->target->rpc) - call->begun_ns;
    tally_latency(&call->target->tally, passed_ns);
    tally_latency(&call->procedure->tally, passed_ns);
}

/* Access is taken back first; the call is nobody's any more when `replied` is called. */
static void tell(struct weir_call *call, struct weir_reply *reply)
{
    struct weir_rpc *rpc = call->target->rpc;
    weir_replied_callback *replied = call->replied;
    void *argument = call->argument;
    leave(call);
    rpc_forget_deadline(rpc, &call->deadline);
    shown_end(&call->shown);
    count(call, reply->status);
    chunk_give(&rpc->chunks, call->bytes);
    pool_give(&rpc->calls, call);
    replied(reply, argument);
}

static void tell_why(struct weir_call *call, enum weir_status status, uint32_t code,
                     const char *why)
{
    char words[WORDS_MAX];
    snprintf(words, sizeof(words), "%.120s: %s: %s", call->target->address, call->procedure->name,
             why);
    struct weir_reply reply = {.status = status, .code = code, .words = words};
    tell(call, &reply);
}

__attribute__((format(printf, 3, 4))) static void
decide(struct weir_call *call, enum weir_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->why, sizeof(call->why), format, arguments);
    va_end(arguments);
    call->status = status;
}

/* Tells what was decided, and frees it: where it was, in a line or a slot, it is no more. */
static void end(struct weir_call *call)
{
    char why[CALL_WHY_MAX];
    strcpy(why, call->why);
    tell_why(call, call->status, 0, why);
}

/* What has been decided outside of weir_poll is told by the next deadline. */
static void end_soon(struct weir_call *call)
{
    leave(call);
    shown_end(&call->shown);
    call->state = CALL_ENDED;
    line_insert(&call->target->ended, call);
    rpc_set_deadline(call->target->rpc, &call->deadline, clock_now_ns());
}

/* Ends what is in flight before it is answered. With bulk the server's word is waited for. */
static void leave_early(struct weir_call *call)
{
    struct weir_target *target = call->target;
    target_send_cancel(target, call->slot);
    if (call->shown.count == 0) {
        end_soon(call);
        return;
    }
    call->state = CALL_LEAVING;
    rpc_set_deadline(target->rpc, &call->deadline,
                     clock_now_ns() + target->rpc->options.release_ms * MILLISECOND_NS);
}

static void time_is_over(struct weir_call *call)
{
    const struct weir_target *target = call->target;
    double passed = (double)(clock_now_ns() - call->begun_ns) / 1e9;
    bool is_busy = target->rest.place != 0 || target->window.size < target->window.most;
    if (call->state == CALL_SENT) {
        decide(call, WEIR_TIMED_OUT, "no answer for %.1f s", passed);
    } else if (target->is_welcome) {
        decide(call, WEIR_TIMED_OUT, "%.1f s were over before it could be sent: %s", passed,
               is_busy ? "the server is busy" : "others are in flight");
    } else {
        decide(call, WEIR_TIMED_OUT, "no connection for %.1f s%s%.90s%s", passed,
               target->trouble.message[0] != '\0' ? " (" : "", target->trouble.message,
               target->trouble.message[0] != '\0' ? ")" : "");
    }
}

static void call_due(struct timer *timer)
{
    struct weir_call *call =
        (struct weir_call *)((char *)timer - offsetof(struct weir_call, deadline));
    if (call->state == CALL_WAITING || call->state == CALL_SENT) {
        time_is_over(call);
    }
    if (call->state != CALL_SENT) {
        end(call);
    } else if (call->shown.count > 0) {
        leave_early(call);
    } else {
        target_send_cancel(call->target, call->slot);
        end(call);
    }
}

void weir_call_cancel(struct weir_call *call)
{
    if (call->state == CALL_WAITING || call->state == CALL_SENT) {
        bool is_sent = call->state == CALL_SENT;
        decide(call, WEIR_CANCELED, "canceled");
        if (is_sent) {
            leave_early(call);
        } else {
            end_soon(call);
        }
    }
}

/* --- sending and being answered --- */

static void wait_again(struct weir_call *call)
{
    shown_end(&call->shown);
    call->state = CALL_WAITING;
    target_line_up(call->target, call);
}

static enum weir_status send_request(struct weir_call *call, struct weir_connection *connection,
                                     struct weir_error *ret_error)
{
    uint64_t now_ns = call->target->rpc->now_ns;
    struct rpc_message message;
    message.kind = target_knows(call->target, call->procedure) ? RPC_REQUEST : RPC_NAMED;
    message.place = call->slot;
    message.procedure = call->procedure->number;
    message.timeout_ms =
        call->due_ns > now_ns ? (unsigned)((call->due_ns - now_ns) / MILLISECOND_NS) : 0;
    enum weir_status status = shown_begin(&call->shown, connection, &message, ret_error);
    if (status != WEIR_OK) {
        return WEIR_NO_MEMORY;
    }
    uint8_t header[RPC_HEADER_MAX];
    struct weir_piece pieces[] = {
        {header, rpc_message_pack(&message, header)},
        {call->bytes->bytes, call->length},
    };
    status = weir_send_pieces(connection, pieces, 2, NULL, NULL);
    snprintf(ret_error->message, sizeof(ret_error->message), "%s",
             status == WEIR_TOO_LONG ? "the server takes no request so long"
                                     : "no memory to send it");
    return status;
}

bool call_send(struct weir_call *call, struct weir_connection *connection)
{
    struct weir_target *target = call->target;
    struct weir_error error;
    enum weir_status status = send_request(call, connection, &error);
    call->state = CALL_SENT;
    if (status == WEIR_OK) {
        call->sent_number = target->next_sent++;
        TALLY_MORE(call, bytes_sent, call->length);
        return true;
    }
    target_free_slot(target, call->slot);
    wait_again(call);
    if (status == WEIR_STATE) {
        return false;
    }
    decide(call, status, "%.150s", error.message);
    end_soon(call);
    return true;
}

static void take_words(const struct rpc_message *message, char *ret_words)
{
    for (size_t i = 0; i < message->length; i++) {
        uint8_t byte = message->bytes[i];
        ret_words[i] = byte >= 0x20 && byte < 0x7f ? (char)byte : '?';
    }
    ret_words[message->length] = '\0';
}

void call_answer(struct weir_call *call, const struct rpc_message *message)
{
    char words[RPC_WORDS_MAX + 1];
    if (call->state == CALL_LEAVING) {
        end(call);
        return;
    }
    struct weir_reply reply = {.bytes = message->bytes, .length = message->length, .words = ""};
    switch (message->kind) {
    case RPC_REPLY:
        tell(call, &reply);
        break;
    case RPC_REFUSED:
        take_words(message, words);
        tell_why(call, WEIR_REFUSED, message->value, words);
        break;
    case RPC_UNKNOWN:
        tell_why(call, WEIR_UNSUPPORTED, 0, "the server has no such procedure");
        break;
    default: /* RPC_BUSY */
        TALLY(call, busy);
        wait_again(call);
        target_rest(call->target, call->sent_number);
        break;
    }
}

void call_drop(struct weir_call *call)
{
    if (call->state == CALL_WAITING || call->state == CALL_SENT) {
        decide(call, WEIR_CANCELED, "the target was destroyed");
    }
    end(call);
}

bool call_is_sent_again(const struct weir_call *call)
{
    return call->state == CALL_SENT && call->is_idempotent;
}

void call_lose(struct weir_call *call, const struct weir_error *reason)
{
    if (call->state == CALL_LEAVING) {
        end(call);
    } else if (call_is_sent_again(call)) {
        TALLY(call, retries);
        wait_again(call);
    } else {
        decide(call, WEIR_PEER_LOST, "lost after it was sent (%.110s)", reason->message);
        end(call);
    }
}

/* --- the public call --- */

static enum weir_status measure(const struct weir_piece *pieces, unsigned count, size_t *ret_length)
{
    const size_t most = REQUEST_LENGTH_MAX - RPC_HEADER_MAX;
    size_t length = 0;
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].bytes == NULL && pieces[i].length > 0) {
            return WEIR_INVALID;
        }
        if (pieces[i].length > most - length) {
            return WEIR_TOO_LONG;
        }
        length += pieces[i].length;
    }
    *ret_length = length;
    return WEIR_OK;
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

/* Everything that may fail. */
static enum weir_status begin(struct weir_call *call, const struct weir_call_options *options)
{
    struct weir_rpc *rpc = call->target->rpc;
    static const struct weir_call_options usual;
    options = options != NULL ? options : &usual;
    enum weir_status status = shown_set(&call->shown, options->bulk, options->bulk_count);
    if (status != WEIR_OK) {
        return status;
    }
    unsigned timeout_ms = options->timeout_ms != 0 ? options->timeout_ms : rpc->options.timeout_ms;
    call->is_idempotent = options->is_idempotent;
    call->begun_ns = rpc_read_clock(rpc);
    call->due_ns = call->begun_ns + timeout_ms * MILLISECOND_NS;
    call->deadline.fire = call_due;
    call->bytes = chunk_take(&rpc->chunks, call->length);
    if (call->bytes == NULL || !rpc_set_deadline(rpc, &call->deadline, call->due_ns)) {
        rpc_forget_deadline(rpc, &call->deadline);
        chunk_give(&rpc->chunks, call->bytes);
        return WEIR_NO_MEMORY;
    }
    return WEIR_OK;
}

enum weir_status weir_rpc_call(struct weir_target *target, struct weir_procedure *procedure,
                               const struct weir_piece *pieces, unsigned count,
                               const struct weir_call_options *options,
                               weir_replied_callback *replied, void *argument,
                               struct weir_call **ret_call)
{
    struct weir_rpc *rpc = target->rpc;
    if (rpc->is_ending || target->is_destroyed) {
        return WEIR_STATE;
    }
    size_t length = 0;
    enum weir_status status =
        replied != NULL && procedure != NULL ? measure(pieces, count, &length) : WEIR_INVALID;
    if (status != WEIR_OK) {
        return status;
    }
    struct weir_call *call =
        target->waiting.count < rpc->options.waiting_max ? pool_take(&rpc->calls) : NULL;
    if (call == NULL) {
        return WEIR_NO_MEMORY;
    }
    call->target = target;
    call->procedure = procedure;
    call->length = length;
    call->replied = replied;
    call->argument = argument;
    status = begin(call, options);
    if (status != WEIR_OK) {
        pool_give(&rpc->calls, call);
        return status;
    }
    gather(pieces, count, call->bytes->bytes);
    call->sequence = target->next_sequence++;
    target_line_up(target, call);
    TALLY(call, calls);
    if (ret_call != NULL) {
        *ret_call = call;
    }
    target_advance(target);
    return WEIR_OK;
}
