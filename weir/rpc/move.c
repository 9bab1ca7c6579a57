/* Pulls and pushes. The bounds of what was shown are looked at here, for an error that says so:
 * beyond them the caller's RNIC would end the connection. */
#include "weir/rpc/client.h"
#include "weir/rpc/request.h"
#include "weir/rpc/rpc.h"

bool weir_request_bulk(const struct weir_request *request, unsigned index, size_t *ret_length,
                       unsigned *ret_rights)
{
    if (index >= request->bulk_count) {
        return false;
    }
    if (ret_length != NULL) {
        *ret_length = request->bulk[index].remote.length;
    }
    if (ret_rights != NULL) {
        *ret_rights = request->bulk[index].rights;
    }
    return true;
}

static void moved(struct weir_connection *connection, enum weir_status status, void *argument)
{
    struct move *move = argument;
    struct weir_request *request = move->request;
    struct weir_rpc *rpc = request->client->rpc;
    weir_moved_callback *callback = move->moved;
    void *callback_argument = move->argument;
    struct weir_procedure_statistics *statistics = &request->procedure->statistics;
    if (status == WEIR_OK) {
        *(move->is_push ? &statistics->bytes_pushed : &statistics->bytes_pulled) += move->length;
    }
    pool_give(&rpc->moves, move);
    request_move_ended(request);
    callback(request, status, callback_argument);
}

static enum weir_status check(const struct weir_request *request, const struct weir_bulk_part *part,
                              unsigned right)
{
    if (request->is_refused) {
        return WEIR_STATE;
    }
    if (request->state != WEIR_OK) {
        return request->state;
    }
    if (part->index >= request->bulk_count || (request->bulk[part->index].rights & right) == 0) {
        return WEIR_ACCESS;
    }
    uint64_t shown = request->bulk[part->index].remote.length;
    if (part->bulk_offset > shown || part->length > shown - part->bulk_offset) {
        return WEIR_ACCESS;
    }
    return WEIR_OK;
}

static enum weir_status begin(struct weir_request *request, const struct weir_bulk_part *part,
                              bool is_push, weir_moved_callback *callback, void *argument)
{
    if (callback == NULL) {
        return WEIR_INVALID;
    }
    enum weir_status status = check(request, part, is_push ? WEIR_REMOTE_WRITE : WEIR_REMOTE_READ);
    if (status != WEIR_OK) {
        return status;
    }
    struct move *move = pool_take(&request->client->rpc->moves);
    if (move == NULL) {
        return WEIR_NO_MEMORY;
    }
    *move = (struct move){request, callback, argument, part->length, is_push};
    struct weir_transfer transfer = {
        .memory = part->memory,
        .offset = part->offset,
        .length = part->length,
        .remote = request->bulk[part->index].remote,
        .remote_offset = part->bulk_offset,
    };
    struct weir_connection *connection = request->client->connection;
    status = is_push ? weir_put(connection, &transfer, moved, move)
                     : weir_get(connection, &transfer, moved, move);
    if (status != WEIR_OK) {
        pool_give(&request->client->rpc->moves, move);
        return status == WEIR_STATE ? WEIR_DISCONNECTED : status;
    }
    request->moves++;
    return WEIR_OK;
}

enum weir_status weir_request_pull(struct weir_request *request, const struct weir_bulk_part *part,
                                   weir_moved_callback *moved_callback, void *argument)
{
    return begin(request, part, false, moved_callback, argument);
}

enum weir_status weir_request_push(struct weir_request *request, const struct weir_bulk_part *part,
                                   weir_moved_callback *moved_callback, void *argument)
{
    return begin(request, part, true, moved_callback, argument);
}
