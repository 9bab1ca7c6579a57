/* Answers, and requests whose callers are gone. Not here: bulk (move.c). */
#include "weir/rpc/request.h"

#include <string.h>

#include "weir/rpc/client.h"
#include "weir/rpc/rpc.h"

struct weir_request *request_create(struct client *client, struct weir_procedure *procedure,
                                    const struct rpc_message *message)
{
    struct weir_rpc *rpc = client->rpc;
    struct weir_request *request = pool_take(&rpc->requests);
    if (request == NULL) {
        return NULL;
    }
    request->client = client;
    request->procedure = procedure;
    request->place = message->place;
    request->timeout_ms = message->timeout_ms;
    request->is_owed = true;
    request->bulk_count = message->bulk_count;
    memcpy(request->bulk, message->bulk, message->bulk_count * sizeof(*message->bulk));
    request->next = client->requests;
    if (request->next != NULL) {
        request->next->previous = request;
    }
    client->requests = request;
    client->owed++;
    client->held++;
    rpc->statistics.requests++;
    return request;
}

void request_free(struct weir_request *request)
{
    struct client *client = request->client;
    struct weir_rpc *rpc = client->rpc;
    *(request->previous != NULL ? &request->previous->next : &client->requests) = request->next;
    if (request->next != NULL) {
        request->next->previous = request->previous;
    }
    if (rpc->arriving != NULL && rpc->arriving->request == request) {
        rpc->arriving = NULL;
    }
    rpc->statistics.requests--;
    rpc->statistics.held_length -= request->held_length;
    chunk_give(&rpc->chunks, request->held);
    chunk_give(&rpc->chunks, request->refusal);
    pool_give(&rpc->requests, request);
    client_release(client);
}

/* --- answers --- */

static void settle(struct weir_request *request)
{
    request->is_owed = false;
    request->client->owed--;
}

/* Counts it, and lets it go. */
static void answered(struct weir_request *request, uint64_t *count, bool is_heard)
{
    *(is_heard ? count : &request->procedure->statistics.gone) += 1;
    request_free(request);
}

enum weir_status weir_request_reply(struct weir_request *request, const struct weir_piece *pieces,
                                    unsigned count)
{
    if (request->moves > 0) {
        return WEIR_STATE;
    }
    enum weir_status status = request->state; /* not one of those that follow */
    if (status == WEIR_OK) {
        struct rpc_message message = {.kind = RPC_REPLY, .place = request->place};
        status = client_send(request->client, &message, pieces, count);
    }
    if (status == WEIR_TOO_LONG || status == WEIR_NO_MEMORY || status == WEIR_INVALID) {
        return status;
    }
    if (status == WEIR_OK) {
        settle(request);
    } else if (status == WEIR_STATE) {
        status = WEIR_DISCONNECTED; /* its connection is ending; why is not known yet */
    }
    answered(request, &request->procedure->statistics.replies, status == WEIR_OK);
    return status;
}

static void refuse_now(struct weir_request *request, const char *words)
{
    bool is_heard = request->state == WEIR_OK;
    if (is_heard) {
        struct rpc_message message = {
            .kind = RPC_REFUSED, .value = request->refusal_code, .place = request->place};
        struct weir_piece piece = {words, strnlen(words, RPC_WORDS_MAX)};
        client_send_surely(request->client, &message, &piece, 1);
        settle(request);
    }
    answered(request, &request->procedure->statistics.refused, is_heard);
}

void weir_request_refuse(struct weir_request *request, uint32_t code, const char *words)
{
    words = words != NULL ? words : "";
    request->refusal_code = code;
    if (request->moves == 0) {
        refuse_now(request, words);
        return;
    }
    size_t length = strnlen(words, RPC_WORDS_MAX);
    request->is_refused = true;
    request->gone = NULL;
    request->refusal = chunk_take(&request->client->rpc->chunks, length + 1);
    if (request->refusal != NULL) {
        memcpy(request->refusal->bytes, words, length);
        request->refusal->bytes[length] = '\0';
    }
}

/* --- whose caller is gone --- */

static void answer_canceled(struct weir_request *request)
{
    struct rpc_message message = {.kind = RPC_CANCELED, .place = request->place};
    client_send_surely(request->client, &message, NULL, 0);
    settle(request);
}

static void tell_gone(struct weir_request *request, enum weir_status why)
{
    weir_gone_callback *gone = request->gone;
    request->gone = NULL;
    if (gone != NULL) {
        gone(request, why, request->gone_argument);
    }
}

void request_cancel(struct client *client, unsigned place)
{
    struct weir_request *request = client->requests;
    while (request != NULL && (request->place != place || request->state != WEIR_OK)) {
        request = request->next;
    }
    if (request == NULL) {
        return;
    }
    request->state = WEIR_CANCELED;
    if (request->moves == 0) {
        answer_canceled(request);
    }
    tell_gone(request, WEIR_CANCELED);
}

/* Who is told may answer any of them, so each knows before anybody is told. */
void requests_lose(struct client *client, enum weir_status why)
{
    struct weir_request *request;
    for (request = client->requests; request != NULL; request = request->next) {
        request->is_owed = false;
        request->state = request->state == WEIR_OK ? why : request->state;
    }
    request = client->requests;
    while (request != NULL) {
        bool is_to_be_told = request->gone != NULL;
        if (is_to_be_told) {
            tell_gone(request, why);
        }
        request = is_to_be_told ? client->requests : request->next;
    }
}

void request_move_ended(struct weir_request *request)
{
    request->moves--;
    if (request->moves > 0) {
        return;
    }
    if (request->is_owed && request->state != WEIR_OK) {
        answer_canceled(request);
    }
    if (request->is_refused) {
        refuse_now(request, request->refusal != NULL ? (char *)request->refusal->bytes : "");
    }
}

/* --- what is known of it --- */

void weir_request_on_gone(struct weir_request *request, weir_gone_callback *gone, void *argument)
{
    request->gone = request->state == WEIR_OK ? gone : NULL;
    request->gone_argument = argument;
}

enum weir_status weir_request_state(const struct weir_request *request)
{
    return request->state;
}

const char *weir_request_peer(const struct weir_request *request)
{
    return request->client->peer;
}

unsigned weir_request_timeout_ms(const struct weir_request *request)
{
    return request->timeout_ms;
}

const void *weir_request_hold(struct weir_request *request)
{
    struct weir_rpc *rpc = request->client->rpc;
    if (request->held != NULL) {
        return request->held->bytes;
    }
    const struct arriving *arriving = rpc->arriving;
    if (arriving == NULL || arriving->request != request ||
        arriving->length > rpc->options.held_length_max - rpc->statistics.held_length) {
        return NULL;
    }
    request->held = chunk_take(&rpc->chunks, arriving->length);
    if (request->held == NULL) {
        return NULL;
    }
    if (arriving->length > 0) {
        memcpy(request->held->bytes, arriving->bytes, arriving->length);
    }
    request->held_length = arriving->length;
    rpc->statistics.held_length += arriving->length;
    return request->held->bytes;
}
