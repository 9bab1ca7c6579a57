/* Clients come, ask, and go. */
#include "weir/rpc/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/bytes.h"
#include "weir/error_private.h"
#include "weir/rpc/request.h"
#include "weir/rpc/rpc.h"

#define PIECES_FEW 8

enum weir_status client_send(struct client *client, const struct rpc_message *message,
                             const struct weir_piece *pieces, unsigned count)
{
    struct weir_piece few[PIECES_FEW + 1];
    struct weir_piece *all = few;
    uint8_t header[RPC_HEADER_MAX];
    if (count > PIECES_FEW) {
        all = malloc((count + 1) * sizeof(*all));
        if (all == NULL) {
            return WEIR_NO_MEMORY;
        }
    }
    all[0] = (struct weir_piece){header, rpc_message_pack(message, header)};
    if (count > 0) {
        memcpy(all + 1, pieces, count * sizeof(*pieces));
    }
    enum weir_status status = weir_send_pieces(client->connection, all, count + 1, NULL, NULL);
    if (all != few) {
        free(all);
    }
    return status;
}

void client_send_surely(struct client *client, const struct rpc_message *message,
                        const struct weir_piece *pieces, unsigned count)
{
    enum weir_status status = client_send(client, message, pieces, count);
    if (status != WEIR_OK && status != WEIR_STATE) {
        weir_abort(client->connection, "an answer cannot be sent");
    }
}

static void opened(struct weir_connection *connection, void *user)
{
    struct client *client = user;
    const struct procedures *procedures = &client->rpc->procedures;
    uint8_t numbers[RPC_NUMBERS_MAX * RPC_NUMBER_LENGTH];
    struct weir_piece piece = {numbers, 0};
    for (size_t i = 0; i < procedures->capacity && piece.length < sizeof(numbers); i++) {
        if (procedures->table[i] != NULL && procedures->table[i]->handler != NULL) {
            put_u64(numbers + piece.length, procedures->table[i]->number);
            piece.length += RPC_NUMBER_LENGTH;
        }
    }
    struct rpc_message message = {.kind = RPC_WELCOME,
                                  .value = client->rpc->options.client_requests_max};
    if (client_send(client, &message, &piece, 1) != WEIR_OK) { /* it takes no message so long */
        client_send_surely(client, &message, NULL, 0);
    }
}

/* --- requests --- */

static void answer_at_once(struct client *client, enum rpc_kind kind, unsigned place)
{
    struct rpc_message message = {.kind = kind, .place = place};
    client_send_surely(client, &message, NULL, 0);
}

/* NULL: it is not served here. */
static struct weir_procedure *find_procedure(const struct weir_rpc *rpc,
                                             const struct rpc_message *message)
{
    struct weir_procedure *procedure =
        procedures_find(&rpc->procedures, (uint32_t)message->procedure);
    bool is_it = procedure != NULL && procedure->handler != NULL &&
                 (message->kind == RPC_REQUEST || procedure->number == message->procedure);
    return is_it ? procedure : NULL;
}

/* A client may have as much as is left: see "Whose room it is". */
static bool has_room(const struct client *client)
{
    const struct weir_rpc *rpc = client->rpc;
    unsigned left = rpc->options.requests_max - rpc->statistics.requests;
    return client->held < left && client->held < rpc->options.client_requests_max;
}

static void take_request(struct client *client, const struct rpc_message *message)
{
    struct weir_rpc *rpc = client->rpc;
    struct weir_procedure *procedure = find_procedure(rpc, message);
    if (procedure == NULL) {
        rpc->statistics.unknown++;
        answer_at_once(client, RPC_UNKNOWN, message->place);
        return;
    }
    struct weir_request *request =
        has_room(client) ? request_create(client, procedure, message) : NULL;
    if (request == NULL) {
        rpc->statistics.busy++;
        answer_at_once(client, RPC_BUSY, message->place);
        return;
    }
    procedure->statistics.requests++;
    struct arriving arriving = {request, message->bytes, message->length};
    rpc->arriving = &arriving;
    procedure->handler(request, message->bytes, message->length, procedure->user);
    rpc->arriving = NULL;
}

/* What it has answered, and not been rid of, it has asked for. */
static bool asks_too_much(const struct client *client)
{
    return client->owed + weir_sends_waiting(client->connection) >=
           client->rpc->options.client_requests_max;
}

static void received(struct weir_connection *connection, const void *bytes, size_t length,
                     void *user)
{
    struct client *client = user;
    struct rpc_message message;
    const char *wrong = rpc_message_parse(bytes, length, &message);
    if (wrong == NULL && message.kind < RPC_REQUEST) {
        wrong = "what a client does not say";
    } else if (wrong == NULL && message.kind != RPC_CANCEL && asks_too_much(client)) {
        wrong = "more requests at once than agreed";
    }
    if (wrong != NULL) {
        client->rpc->statistics.broken++;
        weir_abort_protocol(connection, wrong);
    } else if (message.kind == RPC_CANCEL) {
        request_cancel(client, message.place);
    } else {
        take_request(client, &message);
    }
}

/* --- life --- */

static void free_client(struct client *client)
{
    *(client->previous != NULL ? &client->previous->next : &client->rpc->clients) = client->next;
    if (client->next != NULL) {
        client->next->previous = client->previous;
    }
    free(client);
}

void client_release(struct client *client)
{
    client->held--;
    if (client->held == 0 && client->connection == NULL) {
        free_client(client);
    }
}

/* The state of its requests: none that a reply that stays to be answered has. */
static enum weir_status state_after(const struct weir_error *reason)
{
    bool is_ours = reason->status == WEIR_OK || reason->status == WEIR_CANCELED;
    return is_ours                               ? WEIR_CANCELED
           : reason->status == WEIR_DISCONNECTED ? WEIR_DISCONNECTED
                                                 : WEIR_PEER_LOST;
}

static void closed(struct weir_connection *connection, const struct weir_error *reason, void *user)
{
    struct client *client = user;
    client->connection = NULL;
    client->owed = 0;
    client->rpc->statistics.clients--;
    client->held++; /* those that are told may give back all of them */
    requests_lose(client, state_after(reason));
    client_release(client);
}

static bool accepted(struct weir_connection *connection, void *listener_user,
                     struct weir_handler *ret_handler, void **ret_user)
{
    struct weir_rpc *rpc = listener_user;
    struct client *client =
        rpc->statistics.clients < rpc->options.clients_max ? calloc(1, sizeof(*client)) : NULL;
    if (client == NULL) {
        rpc->statistics.clients_refused++;
        weir_refuse(connection, "no room for another client");
        return false;
    }
    client->rpc = rpc;
    client->connection = connection;
    snprintf(client->peer, sizeof(client->peer), "%s", weir_peer_name(connection));
    client->next = rpc->clients;
    if (client->next != NULL) {
        client->next->previous = client;
    }
    rpc->clients = client;
    rpc->statistics.clients++;
    rpc->statistics.clients_taken++;
    *ret_handler = (struct weir_handler){opened, received, NULL, closed};
    *ret_user = client;
    return true;
}

enum weir_status weir_rpc_listen(struct weir_rpc *rpc, const char *address,
                                 struct weir_error *ret_error)
{
    if (rpc->listener != NULL || rpc->is_ending) {
        return error_set(ret_error, WEIR_STATE, "%s: this rpc listens already", address);
    }
    return weir_listen(rpc->poller, address, &rpc->options.channel, accepted, rpc, &rpc->listener,
                       ret_error);
}

void weir_rpc_unlisten(struct weir_rpc *rpc)
{
    weir_listener_close(rpc->listener);
    rpc->listener = NULL;
}

const char *weir_rpc_address(const struct weir_rpc *rpc)
{
    return rpc->listener != NULL ? weir_listener_address(rpc->listener) : NULL;
}

/* Who is told may answer any request of any client, so all stay until all are told. */
void clients_fini(struct weir_rpc *rpc)
{
    struct client *client;
    for (client = rpc->clients; client != NULL; client = client->next) {
        client->held++;
    }
    for (client = rpc->clients; client != NULL; client = client->next) {
        if (client->connection != NULL) {
            weir_connection_destroy(client->connection);
        }
    }
    while (rpc->clients != NULL) {
        client = rpc->clients;
        while (client->requests != NULL) {
            request_free(client->requests);
        }
        client_release(client);
    }
}

void weir_rpc_server_statistics(const struct weir_rpc *rpc,
                                struct weir_server_statistics *ret_statistics)
{
    *ret_statistics = rpc->statistics;
}
