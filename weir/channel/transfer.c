/* Puts and gets. */
#include "weir/channel/transfer.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "weir/channel/connection.h"
#include "weir/channel/timer.h"

#define TRANSFER_LENGTH_MAX ((size_t)1 << 31)

void transfers_init(struct weir_connection *connection)
{
    connection->transfers.waiting_end = &connection->transfers.waiting;
    stride_init(&connection->transfers.stride, connection->options.silence_timeout_ms);
}

bool transfers_are_idle(const struct weir_connection *connection)
{
    return connection->transfers.awaited == 0;
}

static void link_transfer(struct transfers *transfers, struct transfer *transfer)
{
    transfer->previous = NULL;
    transfer->next = transfers->first;
    if (transfers->first != NULL) {
        transfers->first->previous = transfer;
    }
    transfers->first = transfer;
    transfers->awaited += !transfer->is_late;
}

static void unlink_transfer(struct transfers *transfers, struct transfer *transfer)
{
    if (transfer->previous != NULL) {
        transfer->previous->next = transfer->next;
    } else {
        transfers->first = transfer->next;
    }
    if (transfer->next != NULL) {
        transfer->next->previous = transfer->previous;
    }
    transfers->awaited -= !transfer->is_late;
}

void transfer_end(struct weir_connection *connection, struct transfer *transfer,
                  enum weir_status status)
{
    unlink_transfer(&connection->transfers, transfer);
    if (transfer->status != WEIR_OK) {
        status = transfer->status;
    }
    if (status == WEIR_OK && transfer->is_put) {
        connection->statistics.bytes_put += transfer->length;
    } else if (status == WEIR_OK && transfer->finished == NULL) {
        connection->statistics.bytes_got += transfer->length;
    }
    if (transfer->finished != NULL) {
        transfer->finished(connection, transfer, status);
    } else if (transfer->done != NULL && !connection->poller->is_destroyed) {
        connection->poller->callbacks++;
        transfer->done(connection, status, transfer->argument);
    }
    free(transfer);
    connection_advance_close(connection);
}

void transfers_fini(struct weir_connection *connection, enum weir_status status)
{
    /* Those with a notice are ended with their place in the line of messages. */
    struct transfer *transfer = connection->transfers.first;
    connection->transfers.waiting = NULL;
    while (transfer != NULL) {
        struct transfer *next = transfer->next;
        if (!transfer->has_notice) {
            transfer_end(connection, transfer, status);
        }
        transfer = next;
    }
}

/* The lane with most room; NULL: all are full. */
static struct lane *choose_lane(struct weir_connection *connection)
{
    if (connection->lane_count == 0) {
        return connection->lanes[0].busy < TRANSFER_BUSY ? &connection->lanes[0] : NULL;
    }
    struct lane *best = NULL;
    for (unsigned i = 0; i < connection->lane_count; i++) {
        unsigned turn = (connection->transfers.next_lane + i) % connection->lane_count;
        struct lane *lane = &connection->lanes[1 + turn];
        if (lane->busy < TRANSFER_BUSY && (best == NULL || lane->busy < best->busy)) {
            best = lane;
        }
    }
    connection->transfers.next_lane++;
    return best;
}

static void take_place(struct weir_connection *connection, struct lane *lane)
{
    lane->busy++;
    stride_posted(&connection->transfers.stride, clock_now_ns());
}

static void leave_place(struct weir_connection *connection, struct lane *lane)
{
    lane->busy--;
    stride_ended(&connection->transfers.stride, clock_now_ns());
}

static void piece_left(struct weir_connection *connection, void *argument, enum weir_status status)
{
    struct transfer *transfer = argument;
    leave_place(connection, connection->retiring);
    transfer->flying--;
    if (status != WEIR_OK) {
        transfer->status = status;
        return; /* the connection has failed and ends it */
    }
    connection->progress += !transfer->is_late;
    if (transfer->is_posted && transfer->flying == 0 && !transfer->has_notice) {
        transfer_end(connection, transfer, WEIR_OK);
    }
    /* The place goes to the other kind first, here and below, so that neither keeps out the other.
     */
    sender_advance(connection);
    transfers_advance(connection);
}

static void fill_request(const struct transfer *transfer, size_t length, struct ibv_sge *ret_piece,
                         struct ibv_send_wr *ret_request)
{
    *ret_piece = (struct ibv_sge){
        .addr = (uintptr_t)(transfer->local + transfer->posted),
        .length = (uint32_t)length,
        .lkey = transfer->local_key,
    };
    *ret_request = (struct ibv_send_wr){
        .opcode = transfer->is_put || length == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
        .sg_list = length > 0 ? ret_piece : NULL,
        .num_sge = length > 0 ? 1 : 0,
    };
    ret_request->wr.rdma.remote_addr = transfer->remote + transfer->posted;
    ret_request->wr.rdma.rkey = transfer->remote_key;
}

static bool post_piece(struct weir_connection *connection, struct lane *lane,
                       struct transfer *transfer)
{
    size_t length = transfer->length - transfer->posted;
    const struct stride *stride = &connection->transfers.stride;
    size_t piece_max = stride->length < connection->poller->fabric->transfer_max
                           ? stride->length
                           : connection->poller->fabric->transfer_max;
    length = length > piece_max ? piece_max : length;
    struct ibv_sge piece;
    struct ibv_send_wr request;
    fill_request(transfer, length, &piece, &request);
    struct posted posted = {piece_left, transfer, transfer->is_put ? "a put" : "a get"};
    transfer->posted += length;
    transfer->flying++;
    take_place(connection, lane);
    transfer->is_posted = transfer->posted == transfer->length;
    /* On several lanes no piece's completion tells of another's; on a slow path each is news. */
    bool wants_signal =
        transfer->is_posted || connection->lane_count > 1 || !stride_is_full(stride);
    return lane_post(lane, &request, wants_signal, &posted);
}

void transfers_advance(struct weir_connection *connection)
{
    struct transfers *transfers = &connection->transfers;
    while (transfers->waiting != NULL &&
           (connection->state == CONNECTION_OPEN || connection->state == CONNECTION_CLOSING)) {
        struct transfer *transfer = transfers->waiting;
        struct lane *lane = choose_lane(connection);
        if (lane == NULL || !post_piece(connection, lane, transfer)) {
            return;
        }
        if (transfer->is_posted) {
            transfers->waiting = transfer->next_waiting;
            if (transfers->waiting == NULL) {
                transfers->waiting_end = &transfers->waiting;
            }
            if (transfer->has_notice) {
                sender_advance(connection);
            }
        }
    }
}

static void begin(struct weir_connection *connection, struct transfer *transfer)
{
    *connection->transfers.waiting_end = transfer;
    connection->transfers.waiting_end = &transfer->next_waiting;
    transfers_advance(connection);
}

struct transfer *transfer_pull(struct weir_connection *connection, struct weir_memory *memory,
                               size_t length, uint64_t remote, uint32_t remote_key,
                               transfer_finished *finished, void *argument)
{
    struct transfer *transfer = calloc(1, sizeof(*transfer));
    if (transfer == NULL) {
        return NULL;
    }
    transfer->local = weir_memory_bytes(memory);
    transfer->local_key = memory_local_key(memory);
    transfer->remote = remote;
    transfer->remote_key = remote_key;
    transfer->length = length;
    transfer->is_late = connection->state == CONNECTION_CLOSING;
    transfer->finished = finished;
    transfer->argument = argument;
    link_transfer(&connection->transfers, transfer);
    begin(connection, transfer);
    return transfer;
}

bool transfer_is_ready_for_notice(const struct weir_connection *connection,
                                  const struct transfer *transfer)
{
    /* On one queue pair the notice follows the data by itself; beside it, it has to wait. */
    return transfer->is_posted && (connection->lane_count == 0 || transfer->flying == 0);
}

bool transfer_post_immediate(struct weir_connection *connection, struct transfer *transfer,
                             const struct posted *posted)
{
    struct ibv_sge piece;
    struct ibv_send_wr request;
    fill_request(transfer, transfer->length, &piece, &request);
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(transfer->notice);
    transfer->posted = transfer->length;
    transfer->is_posted = true;
    take_place(connection, &connection->lanes[0]);
    return lane_post(&connection->lanes[0], &request, true, posted);
}

void transfer_immediate_ended(struct weir_connection *connection)
{
    leave_place(connection, &connection->lanes[0]);
    transfers_advance(connection);
}

static enum weir_status check(const struct weir_connection *connection,
                              const struct weir_transfer *wanted)
{
    if (connection->state != CONNECTION_OPEN) {
        return WEIR_STATE;
    }
    size_t local = wanted->memory != NULL ? weir_memory_length(wanted->memory) : 0;
    if (wanted->memory == NULL || wanted->length > TRANSFER_LENGTH_MAX || wanted->offset > local ||
        wanted->length > local - wanted->offset || wanted->remote_offset > wanted->remote.length ||
        wanted->length > wanted->remote.length - wanted->remote_offset) {
        return WEIR_INVALID;
    }
    return WEIR_OK;
}

static enum weir_status create(struct weir_connection *connection,
                               const struct weir_transfer *wanted, weir_done_callback *done,
                               void *argument, struct transfer **ret_transfer)
{
    uint32_t local_key;
    enum weir_status status = check(connection, wanted);
    if (status == WEIR_OK) {
        status = memory_key_in(wanted->memory, connection->domain, &local_key);
    }
    if (status != WEIR_OK) {
        return status;
    }
    struct transfer *transfer = calloc(1, sizeof(*transfer));
    if (transfer == NULL) {
        return WEIR_NO_MEMORY;
    }
    transfer->local = (uint8_t *)weir_memory_bytes(wanted->memory) + wanted->offset;
    transfer->local_key = local_key;
    transfer->remote = wanted->remote.address + wanted->remote_offset;
    transfer->remote_key = wanted->remote.key;
    transfer->length = wanted->length;
    transfer->done = done;
    transfer->argument = argument;
    link_transfer(&connection->transfers, transfer);
    *ret_transfer = transfer;
    return WEIR_OK;
}

enum weir_status weir_get(struct weir_connection *connection, const struct weir_transfer *transfer,
                          weir_done_callback *done, void *argument)
{
    struct transfer *get;
    enum weir_status status = create(connection, transfer, done, argument, &get);
    if (status != WEIR_OK) {
        return status;
    }
    begin(connection, get);
    return WEIR_OK;
}

static bool fits_immediate(const struct weir_connection *connection, size_t length)
{
    const struct stride *stride = &connection->transfers.stride;
    return connection->lane_count == 0 && !connection->local.lacks_immediate &&
           !connection->peer.lacks_immediate &&
           length <= (stride_is_full(stride) ? TRANSFER_IMMEDIATE_MAX : stride->length) &&
           length <= connection->poller->fabric->transfer_max;
}

enum weir_status weir_put(struct weir_connection *connection, const struct weir_transfer *transfer,
                          weir_done_callback *done, void *argument)
{
    struct transfer *put;
    enum weir_status status = create(connection, transfer, done, argument, &put);
    if (status != WEIR_OK) {
        return status;
    }
    put->is_put = true;
    if (!transfer->has_notice) {
        begin(connection, put);
        return WEIR_OK;
    }
    put->has_notice = true;
    put->notice = transfer->notice;
    bool is_immediate = fits_immediate(connection, put->length);
    status = sender_add_put(connection, put, is_immediate);
    if (status != WEIR_OK) {
        unlink_transfer(&connection->transfers, put);
        free(put);
        return status;
    }
    if (!is_immediate) {
        begin(connection, put);
    }
    return WEIR_OK;
}
