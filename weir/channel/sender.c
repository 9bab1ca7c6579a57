/* Messages out. */
#include "weir/channel/sender.h"

#include <string.h>

#include "weir/channel/connection.h"
#include "weir/channel/outgoing.h"

void sender_init(struct weir_connection *connection)
{
    struct sender *sender = &connection->sender;
    sender->waiting_end = &sender->waiting;
    sender->flying_end = &sender->flying;
}

/* --- lines --- */

static void append(struct outgoing ***end, struct outgoing *outgoing)
{
    outgoing->next = NULL;
    **end = outgoing;
    *end = &outgoing->next;
}

static struct outgoing *pop(struct outgoing **first, struct outgoing ***end)
{
    struct outgoing *outgoing = *first;
    *first = outgoing->next;
    if (*first == NULL) {
        *end = first;
    }
    return outgoing;
}

static void complete(struct weir_connection *connection, struct outgoing *outgoing)
{
    struct weir_poller *poller = connection->poller;
    weir_done_callback *done = outgoing->done;
    void *argument = outgoing->argument;
    enum weir_status status = outgoing->status;
    struct transfer *transfer = outgoing->transfer;
    outgoing_release(&connection->sender.spares, outgoing);
    if (transfer != NULL) {
        transfer_end(connection, transfer, status);
    } else if (done != NULL && !poller->is_destroyed) {
        poller->callbacks++;
        done(connection, status, argument);
    }
}

static bool is_complete(const struct outgoing *outgoing)
{
    return outgoing->has_left && (outgoing->kind != OUTGOING_ANNOUNCE || outgoing->is_pulled ||
                                  outgoing->status != WEIR_OK);
}

/* Calls `done` for those at the front that are complete. */
static void deliver_done(struct weir_connection *connection)
{
    struct sender *sender = &connection->sender;
    while (sender->flying != NULL && is_complete(sender->flying)) {
        complete(connection, pop(&sender->flying, &sender->flying_end));
    }
}

void sender_fini(struct weir_connection *connection, enum weir_status status)
{
    struct sender *sender = &connection->sender;
    while (sender->flying != NULL) {
        struct outgoing *outgoing = pop(&sender->flying, &sender->flying_end);
        if (!is_complete(outgoing)) {
            outgoing->status = status;
        }
        complete(connection, outgoing);
    }
    sender->waiting_count = 0;
    while (sender->waiting != NULL) {
        struct outgoing *outgoing = pop(&sender->waiting, &sender->waiting_end);
        outgoing->status = status;
        complete(connection, outgoing);
    }
    outgoing_spares_fini(&sender->spares);
}

bool sender_is_idle(const struct weir_connection *connection)
{
    /* Eager messages that fly are ended by the BYE's completion behind them. */
    return connection->sender.waiting == NULL && connection->sender.announced == 0 &&
           connection->sender.pulled_count == 0;
}

/* --- posting --- */

static bool post_buffer(struct weir_connection *connection, uint32_t buffer, size_t length,
                        bool wants_signal, const struct posted *posted)
{
    struct ibv_sge piece = {
        .addr = (uintptr_t)buffers_send(&connection->buffers, buffer),
        .length = (uint32_t)length,
        .lkey = memory_local_key(connection->buffers.memory),
    };
    struct lane *lane = &connection->lanes[0];
    struct ibv_send_wr request = {
        .opcode = IBV_WR_SEND,
        .send_flags = length <= lane->inline_max ? IBV_SEND_INLINE : 0,
        .sg_list = &piece,
        .num_sge = 1,
    };
    return lane_post(lane, &request, wants_signal, posted);
}

static void message_left(struct weir_connection *connection, void *argument,
                         enum weir_status status)
{
    struct outgoing *outgoing = argument;
    if (outgoing->buffer != BUFFER_NONE) {
        buffers_give(&connection->buffers, outgoing->buffer);
        outgoing->buffer = BUFFER_NONE;
    }
    if (outgoing->kind == OUTGOING_IMMEDIATE) {
        transfer_immediate_ended(connection);
    }
    outgoing->has_left = true;
    outgoing->status = status;
    deliver_done(connection);
    sender_advance(connection);
}

/* A buffer's index as the argument of a posted entry. */
static void control_left(struct weir_connection *connection, void *argument,
                         enum weir_status status)
{
    buffers_give(&connection->buffers, (uint32_t)(uintptr_t)argument);
    sender_advance(connection);
}

static void bye_left(struct weir_connection *connection, void *argument, enum weir_status status)
{
    connection->sender.bye_is_sent = true;
    control_left(connection, argument, status);
    connection_advance_close(connection);
}

static void answer_left(struct weir_connection *connection, void *argument, enum weir_status status)
{
    connection->sender.answer_is_flying = false;
    control_left(connection, argument, status);
    connection_advance_close(connection);
}

static void abort_left(struct weir_connection *connection, void *argument, enum weir_status status)
{
    connection_end(connection);
}

static bool post_control(struct weir_connection *connection, struct message *message,
                         const char *text, lane_retire *retire, const char *what)
{
    uint32_t buffer = buffers_take(&connection->buffers);
    if (buffer == BUFFER_NONE) {
        return false;
    }
    uint8_t *bytes = buffers_send(&connection->buffers, buffer);
    message->credit_limit = credit_tell(&connection->credit);
    size_t header = message_pack(message, bytes);
    if (text != NULL) {
        memcpy(bytes + header, text, message->length);
        header += message->length;
    }
    struct posted posted = {retire, (void *)(uintptr_t)buffer, what};
    return post_buffer(connection, buffer, header, retire != control_left, &posted);
}

/* Memory that the peer can read the message from: the caller's own bytes if they are in one piece.
 */
static bool prepare_announce(struct weir_connection *connection, struct outgoing *outgoing)
{
    if (outgoing->memory != NULL) {
        return true;
    }
    struct weir_error error = {WEIR_OK, "no memory"};
    bool must_copy =
        (outgoing->done == NULL || outgoing->piece_count != 1) && outgoing->copy == NULL;
    if (!must_copy &&
        memory_register_source(connection->domain, outgoing->pieces[0].bytes, outgoing->length,
                               WEIR_REMOTE_READ, &outgoing->memory, &error) == WEIR_OK) {
        return true;
    }
    if (outgoing->copy == NULL && outgoing_own_bytes(outgoing)) {
        return prepare_announce(connection, outgoing);
    }
    connection_abort(connection, WEIR_NO_MEMORY, "a message of %zu bytes: %s", outgoing->length,
                     error.message);
    return false;
}

/* Writes header and bytes of a message into its buffer. Returns the length. */
static size_t write_message(struct weir_connection *connection, struct outgoing *outgoing)
{
    uint8_t *bytes = buffers_send(&connection->buffers, outgoing->buffer);
    struct message message = {
        .credit_limit = credit_tell(&connection->credit),
        .length = (uint32_t)outgoing->length,
    };
    if (outgoing->kind == OUTGOING_EAGER) {
        message.kind = MESSAGE_EAGER;
        size_t header = message_pack(&message, bytes);
        pieces_gather(outgoing->pieces, outgoing->piece_count, bytes + header);
        return header + outgoing->length;
    }
    if (outgoing->kind == OUTGOING_NOTICE) {
        message.kind = MESSAGE_NOTICE;
        message.value = outgoing->transfer->notice;
        return message_pack(&message, bytes);
    }
    struct weir_remote remote = weir_memory_remote(outgoing->memory);
    message.kind = MESSAGE_ANNOUNCE;
    message.value = outgoing->identifier;
    message.address = remote.address;
    message.key = remote.key;
    return message_pack(&message, bytes);
}

static size_t eager_max(const struct weir_connection *connection)
{
    return connection->local.eager_length < connection->peer.eager_length
               ? connection->local.eager_length
               : connection->peer.eager_length;
}

/* A message whose bytes are copied in any case, and of whose end nobody wants to know: nothing is
 * left of it but its buffer. */
static bool may_leave_at_once(const struct weir_connection *connection, size_t length)
{
    const struct sender *sender = &connection->sender;
    return connection->state == CONNECTION_OPEN && sender->waiting == NULL &&
           sender->pulled_count == 0 && length <= eager_max(connection) &&
           credit_can_send(&connection->credit) && connection->buffers.free_count > SENDER_RESERVE;
}

static void post_at_once(struct weir_connection *connection, const struct weir_piece *pieces,
                         unsigned count, size_t length)
{
    uint32_t buffer = buffers_take(&connection->buffers);
    uint8_t *bytes = buffers_send(&connection->buffers, buffer);
    struct message message = {
        .kind = MESSAGE_EAGER,
        .credit_limit = credit_tell(&connection->credit),
        .length = (uint32_t)length,
    };
    size_t header = message_pack(&message, bytes);
    pieces_gather(pieces, count, bytes + header);
    credit_spend(&connection->credit);
    connection->progress++;
    connection->statistics.messages_sent++;
    connection->statistics.bytes_sent += length;
    struct posted posted = {control_left, (void *)(uintptr_t)buffer, "a message"};
    post_buffer(connection, buffer, header + length, false, &posted);
}

static bool post_message(struct weir_connection *connection, struct outgoing *outgoing)
{
    struct sender *sender = &connection->sender;
    outgoing->buffer = buffers_take(&connection->buffers);
    if (outgoing->kind == OUTGOING_ANNOUNCE) {
        outgoing->identifier = sender->next_identifier++;
        sender->announced++;
    }
    size_t length = write_message(connection, outgoing);
    if (outgoing->kind != OUTGOING_NOTICE) {
        connection->statistics.messages_sent++;
        connection->statistics.bytes_sent += outgoing->length;
    }
    bool wants_signal = outgoing->done != NULL || outgoing->kind != OUTGOING_EAGER;
    struct posted posted = {message_left, outgoing, "a message"};
    return post_buffer(connection, outgoing->buffer, length, wants_signal, &posted);
}

/* True if nothing but credit keeps the message from leaving. */
static bool can_leave(struct weir_connection *connection, struct outgoing *outgoing)
{
    if (outgoing->kind == OUTGOING_NOTICE &&
        !transfer_is_ready_for_notice(connection, outgoing->transfer)) {
        return false;
    }
    if (outgoing->kind == OUTGOING_ANNOUNCE && (connection->sender.announced >= CREDIT_PULLS_MAX ||
                                                !prepare_announce(connection, outgoing))) {
        return false;
    }
    if (outgoing->kind == OUTGOING_IMMEDIATE) {
        return connection->lanes[0].busy < TRANSFER_BUSY;
    }
    return connection->buffers.free_count > SENDER_RESERVE;
}

/* Messages sent before the peer's bounds were known. False: it was too long. */
static bool classify(struct weir_connection *connection, struct outgoing *outgoing)
{
    if (outgoing->kind == OUTGOING_EAGER && outgoing->length > eager_max(connection)) {
        outgoing->kind = OUTGOING_ANNOUNCE;
    }
    if ((outgoing->kind != OUTGOING_ANNOUNCE && outgoing->kind != OUTGOING_EAGER) ||
        outgoing->length <= connection->peer.message_length_max) {
        return true;
    }
    connection_abort(connection, WEIR_TOO_LONG,
                     "a message of %zu bytes was sent before it was known that %u is the most",
                     outgoing->length, connection->peer.message_length_max);
    return false;
}

static bool is_live(const struct weir_connection *connection)
{
    return connection->state == CONNECTION_OPEN || connection->state == CONNECTION_CLOSING;
}

static void advance_messages(struct weir_connection *connection)
{
    struct sender *sender = &connection->sender;
    while (is_live(connection) && !connection->is_cut && sender->waiting != NULL &&
           classify(connection, sender->waiting) && credit_can_send(&connection->credit) &&
           can_leave(connection, sender->waiting)) {
        struct outgoing *outgoing = pop(&sender->waiting, &sender->waiting_end);
        sender->waiting_count--;
        append(&sender->flying_end, outgoing);
        credit_spend(&connection->credit);
        connection->progress++;
        struct posted posted = {message_left, outgoing, "a put"};
        bool is_posted = outgoing->kind == OUTGOING_IMMEDIATE
                             ? transfer_post_immediate(connection, outgoing->transfer, &posted)
                             : post_message(connection, outgoing);
        if (!is_posted) {
            return;
        }
        if (outgoing->kind == OUTGOING_EAGER) {
            outgoing_drop_bytes(outgoing); /* they are in the buffer */
        }
    }
}

/* The last message, when nothing is left to do or the peer takes no more; and the answer to the
 * peer's, if it crossed ours. */
static void advance_bye(struct weir_connection *connection)
{
    struct sender *sender = &connection->sender;
    struct message message = {.kind = MESSAGE_BYE, .value = connection->peer_is_done};
    bool is_drained = sender_is_idle(connection) && transfers_are_idle(connection);
    if (!sender->has_bye && (is_drained || connection->is_cut)) {
        sender->has_bye = post_control(connection, &message, NULL, bye_left, "the last message");
        connection->progress += sender->has_bye;
    }
    if (sender->owes_answer &&
        post_control(connection, &message, NULL, answer_left, "the last answer")) {
        sender->owes_answer = false;
        sender->answer_is_flying = true;
    }
}

/* Apart, for there is nothing to advance as a rule. */
__attribute__((noinline)) static void advance(struct weir_connection *connection)
{
    struct sender *sender = &connection->sender;
    while (sender->pulled_count > 0) {
        struct message message = {.kind = MESSAGE_PULLED, .value = sender->pulled[0]};
        if (!post_control(connection, &message, NULL, control_left, "an answer")) {
            return;
        }
        sender->pulled_count--;
        connection->receiver.announced--;
        memmove(sender->pulled, sender->pulled + 1, sender->pulled_count * sizeof(uint32_t));
    }
    advance_messages(connection);
    if (is_live(connection) && credit_is_due(&connection->credit)) {
        struct message message = {.kind = MESSAGE_CREDIT};
        post_control(connection, &message, NULL, control_left, "a grant of credit");
    }
    if (connection->state == CONNECTION_CLOSING) {
        advance_bye(connection);
    }
}

void sender_advance(struct weir_connection *connection)
{
    const struct sender *sender = &connection->sender;
    bool is_due = sender->waiting != NULL || sender->pulled_count > 0 ||
                  connection->state == CONNECTION_CLOSING || credit_is_due(&connection->credit);
    if (is_due && is_live(connection)) {
        advance(connection);
    }
}

void sender_post_abort(struct weir_connection *connection)
{
    struct sender *sender = &connection->sender;
    size_t length = strlen(sender->abort_text);
    struct message message = {
        .kind = MESSAGE_ABORT,
        .length = (uint32_t)length,
        .value = sender->abort_status,
    };
    if (!post_control(connection, &message, sender->abort_text, abort_left, "the reason")) {
        connection_end(connection);
    }
}

/* --- from the caller --- */

/* Puts it in line and lets it leave if it can; else it waits, with bytes of its own if need be. */
static enum weir_status submit(struct weir_connection *connection, struct outgoing *outgoing)
{
    struct sender *sender = &connection->sender;
    append(&sender->waiting_end, outgoing);
    sender->waiting_count++;
    sender_advance(connection);
    /* Appended last, it waits exactly if the line still ends with it. */
    if (sender->waiting_end != &outgoing->next) {
        return WEIR_OK;
    }
    connection->statistics.waits_for_credit += !credit_can_send(&connection->credit);
    if (outgoing->transfer == NULL && outgoing->done == NULL && outgoing->copy == NULL &&
        !outgoing_own_bytes(outgoing)) {
        connection_fail(connection, WEIR_NO_MEMORY, "no memory for a message that waits");
        return WEIR_NO_MEMORY;
    }
    return WEIR_OK;
}

enum weir_status sender_add_put(struct weir_connection *connection, struct transfer *transfer,
                                bool is_immediate)
{
    struct outgoing *outgoing = outgoing_create(
        &connection->sender.spares, is_immediate ? OUTGOING_IMMEDIATE : OUTGOING_NOTICE);
    if (outgoing == NULL) {
        return WEIR_NO_MEMORY;
    }
    outgoing->transfer = transfer;
    outgoing->length = transfer->length;
    return submit(connection, outgoing);
}

bool sender_take_pulled(struct weir_connection *connection, uint32_t identifier)
{
    struct sender *sender = &connection->sender;
    struct outgoing *outgoing = sender->flying;
    while (outgoing != NULL && (outgoing->kind != OUTGOING_ANNOUNCE || outgoing->is_pulled ||
                                outgoing->identifier != identifier)) {
        outgoing = outgoing->next;
    }
    if (outgoing == NULL) {
        return false;
    }
    outgoing->is_pulled = true;
    outgoing_drop_bytes(outgoing);
    sender->announced--;
    connection->progress++;
    deliver_done(connection);
    sender_advance(connection);
    return true;
}

void sender_tell_pulled(struct weir_connection *connection, uint32_t identifier)
{
    struct sender *sender = &connection->sender;
    sender->pulled[sender->pulled_count++] = identifier;
    sender_advance(connection);
}

enum weir_status weir_send_pieces(struct weir_connection *connection,
                                  const struct weir_piece *pieces, unsigned count,
                                  weir_done_callback *done, void *argument)
{
    if ((connection->state != CONNECTION_OPEN && connection->state != CONNECTION_CONNECTING) ||
        connection->wants_close) {
        return WEIR_STATE;
    }
    size_t length = 0;
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].length > MESSAGE_LENGTH_MAX - length) {
            return WEIR_TOO_LONG;
        }
        if (pieces[i].bytes == NULL && pieces[i].length > 0) {
            return WEIR_INVALID;
        }
        length += pieces[i].length;
    }
    if (connection->state == CONNECTION_OPEN && length > connection->peer.message_length_max) {
        return WEIR_TOO_LONG;
    }
    if (done == NULL && may_leave_at_once(connection, length)) {
        post_at_once(connection, pieces, count, length);
        return WEIR_OK;
    }
    struct outgoing *outgoing = outgoing_create(&connection->sender.spares, OUTGOING_EAGER);
    if (outgoing == NULL) {
        return WEIR_NO_MEMORY;
    }
    if (!outgoing_set_pieces(outgoing, pieces, count)) {
        outgoing_release(&connection->sender.spares, outgoing);
        return WEIR_NO_MEMORY;
    }
    outgoing->length = length;
    outgoing->done = done;
    outgoing->argument = argument;
    return submit(connection, outgoing);
}

enum weir_status weir_send(struct weir_connection *connection, const void *bytes, size_t length,
                           weir_done_callback *done, void *argument)
{
    struct weir_piece piece = {bytes, length};
    return weir_send_pieces(connection, &piece, 1, done, argument);
}

size_t weir_sends_waiting(const struct weir_connection *connection)
{
    return connection->sender.waiting_count;
}
