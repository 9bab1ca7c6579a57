/* Messages in. */
#include "weir/channel/receiver.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "weir/channel/connection.h"

enum arrival_kind {
    ARRIVAL_EAGER,
    ARRIVAL_PULL,
    ARRIVAL_NOTICE,
    ARRIVAL_BYE,
};

struct arrival {
    struct arrival *next;
    struct weir_connection *connection;
    enum arrival_kind kind;
    bool is_whole;
    uint32_t buffer; /* held until delivery */
    uint32_t length;
    uint32_t value; /* notice, or identifier */
    const uint8_t *bytes;
    uint64_t address;
    uint32_t key;
    struct weir_memory *memory; /* of a message being read */
};

void receiver_init(struct weir_connection *connection)
{
    connection->receiver.end = &connection->receiver.first;
}

static void free_line(struct arrival *arrival)
{
    while (arrival != NULL) {
        struct arrival *next = arrival->next;
        weir_memory_deregister(arrival->memory);
        free(arrival);
        arrival = next;
    }
}

void receiver_fini(struct weir_connection *connection)
{
    struct receiver *receiver = &connection->receiver;
    free_line(receiver->first);
    free_line(receiver->spare);
    receiver->first = NULL;
    receiver->unseen = NULL;
    receiver->spare = NULL;
}

bool receiver_is_idle(const struct weir_connection *connection)
{
    return connection->receiver.first == NULL;
}

static bool is_live(const struct weir_connection *connection)
{
    return connection->state == CONNECTION_OPEN || connection->state == CONNECTION_CLOSING;
}

/* --- delivery --- */

static void deliver_message(struct weir_connection *connection, const uint8_t *bytes,
                            uint32_t length)
{
    connection->statistics.messages_received++;
    connection->statistics.bytes_received += length;
    if (connection->handler.received != NULL) {
        connection->poller->callbacks++;
        connection->handler.received(connection, bytes, length, connection->user);
    }
}

static void deliver(struct weir_connection *connection, const struct arrival *arrival)
{
    if (arrival->kind != ARRIVAL_NOTICE) {
        deliver_message(connection, arrival->bytes, arrival->length);
    } else if (connection->handler.noticed != NULL) {
        connection->poller->callbacks++;
        connection->handler.noticed(connection, arrival->value, arrival->length, connection->user);
    }
}

/* The buffer of a message that has used up credit is free again. An eighth of the window may lack
 * credit without the peer's standing still: it is told more before half is gone. */
static void give_back(struct weir_connection *connection, uint32_t buffer)
{
    struct receiver *receiver = &connection->receiver;
    unsigned batch = connection->local.window / 8;
    receiver->unposted[receiver->unposted_count++] = buffer;
    if (receiver->unposted_count < LANE_RECEIVES_MAX && receiver->unposted_count < batch) {
        return;
    }
    if (connection->state != CONNECTION_ENDED &&
        lane_post_receives(&connection->lanes[0], receiver->unposted, receiver->unposted_count)) {
        credit_return(&connection->credit, receiver->unposted_count);
    }
    receiver->unposted_count = 0;
}

static void release(struct weir_connection *connection, struct arrival *arrival)
{
    struct receiver *receiver = &connection->receiver;
    if (arrival->memory != NULL) {
        receiver->pulling -= arrival->length;
        weir_memory_deregister(arrival->memory);
        arrival->memory = NULL;
    }
    uint32_t buffer = arrival->buffer;
    bool is_bye = arrival->kind == ARRIVAL_BYE;
    arrival->next = receiver->spare;
    receiver->spare = arrival;
    if (!is_bye) {
        give_back(connection, buffer);
    }
}

static void pulled(struct weir_connection *connection, struct transfer *transfer,
                   enum weir_status status)
{
    struct arrival *arrival = transfer->argument;
    if (status != WEIR_OK) {
        return;
    }
    arrival->is_whole = true;
    arrival->bytes = weir_memory_bytes(arrival->memory);
    sender_tell_pulled(connection, arrival->value);
    receiver_advance(connection);
}

/* Begins to read announced messages as far as memory allows, at least one. */
static void begin_pulls(struct weir_connection *connection)
{
    struct receiver *receiver = &connection->receiver;
    while (receiver->unseen != NULL && is_live(connection)) {
        struct arrival *arrival = receiver->unseen;
        if (arrival->kind != ARRIVAL_PULL) {
            receiver->unseen = arrival->next;
            continue;
        }
        if (receiver->pulling > 0 &&
            receiver->pulling + arrival->length > connection->local.message_length_max) {
            return;
        }
        struct weir_error error;
        if (memory_allocate_in(connection->domain, arrival->length, WEIR_LOCAL, &arrival->memory,
                               &error) != WEIR_OK) {
            connection_abort(connection, WEIR_NO_MEMORY, "a message of %u bytes: %s",
                             arrival->length, error.message);
            return;
        }
        receiver->pulling += arrival->length;
        receiver->unseen = arrival->next;
        if (transfer_pull(connection, arrival->memory, arrival->length, arrival->address,
                          arrival->key, pulled, arrival) == NULL) {
            connection_abort(connection, WEIR_NO_MEMORY, "no memory for a message");
        }
    }
}

void receiver_advance(struct weir_connection *connection)
{
    struct receiver *receiver = &connection->receiver;
    bool has_delivered = false;
    while (is_live(connection) && receiver->first != NULL && receiver->first->is_whole) {
        struct arrival *arrival = receiver->first;
        receiver->first = arrival->next;
        if (receiver->first == NULL) {
            receiver->end = &receiver->first;
        }
        if (receiver->unseen == arrival) {
            receiver->unseen = arrival->next;
        }
        if (arrival->kind == ARRIVAL_BYE) {
            connection_take_bye(connection);
        } else {
            deliver(connection, arrival);
        }
        release(connection, arrival);
        has_delivered = true;
    }
    begin_pulls(connection);
    if (has_delivered) {
        sender_advance(connection); /* credit may be due */
    }
}

/* --- arrival --- */

static void line_up(struct weir_connection *connection, const struct arrival *filled)
{
    struct receiver *receiver = &connection->receiver;
    struct arrival *arrival = receiver->spare;
    if (arrival != NULL) {
        receiver->spare = arrival->next;
    } else {
        arrival = malloc(sizeof(*arrival));
        if (arrival == NULL) {
            connection_abort(connection, WEIR_NO_MEMORY, "no memory for a message");
            return;
        }
    }
    *arrival = *filled;
    *receiver->end = arrival;
    receiver->end = &arrival->next;
    receiver->unseen = receiver->unseen != NULL ? receiver->unseen : arrival;
    receiver_advance(connection);
}

static void take_in_line(struct weir_connection *connection, uint32_t buffer,
                         const struct message *message)
{
    struct arrival arrival = {
        .connection = connection,
        .buffer = buffer,
        .is_whole = true,
        .length = message->length,
        .value = message->value,
        .bytes = message->payload,
    };
    if (message->kind == MESSAGE_NOTICE) {
        arrival.kind = ARRIVAL_NOTICE;
    } else if (message->kind == MESSAGE_BYE) {
        arrival.kind = ARRIVAL_BYE;
    } else if (message->kind == MESSAGE_ANNOUNCE) {
        arrival.kind = ARRIVAL_PULL;
        arrival.is_whole = false;
        arrival.address = message->address;
        arrival.key = message->key;
        if (++connection->receiver.announced > CREDIT_PULLS_MAX) {
            connection_abort(connection, WEIR_PROTOCOL, "more long messages at once than agreed");
            return;
        }
    }
    line_up(connection, &arrival);
}

static void take_message(struct weir_connection *connection, uint32_t buffer,
                         const struct message *message)
{
    bool is_second_bye = connection->receiver.has_bye && message->kind == MESSAGE_BYE;
    if ((connection->receiver.has_bye && message_needs_credit(message->kind)) ||
        (is_second_bye && message->value == 0)) {
        connection_abort(connection, WEIR_PROTOCOL, "a message after the last");
        return;
    }
    if (message_needs_credit(message->kind) && !credit_receive(&connection->credit)) {
        connection_abort(connection, WEIR_PROTOCOL, "more messages than granted");
        return;
    }
    switch (message->kind) {
    case MESSAGE_EAGER:
        if (receiver_is_idle(connection) && is_live(connection)) {
            deliver_message(connection, message->payload, message->length);
            give_back(connection, buffer);
            break;
        }
        take_in_line(connection, buffer, message);
        break;
    case MESSAGE_ANNOUNCE:
    case MESSAGE_NOTICE:
        take_in_line(connection, buffer, message);
        break;
    case MESSAGE_BYE:
        /* That ours has arrived is true at once, whatever is in line before it. */
        connection->sender.bye_is_sent |= message->value != 0 && connection->sender.has_bye;
        if (is_second_bye) {
            connection_take_bye(connection);
            return;
        }
        connection->receiver.has_bye = true;
        take_in_line(connection, buffer, message);
        break;
    case MESSAGE_ABORT:
        connection_take_abort(connection, message);
        return;
    case MESSAGE_PULLED:
        if (!sender_take_pulled(connection, message->value)) {
            connection_abort(connection, WEIR_PROTOCOL, "an answer to nothing that was announced");
            return;
        }
        lane_post_receives(&connection->lanes[0], &buffer, 1);
        break;
    case MESSAGE_CREDIT:
    case MESSAGE_KIND_END:
        lane_post_receives(&connection->lanes[0], &buffer, 1);
        break;
    }
    sender_advance(connection);
}

static void take_immediate(struct weir_connection *connection, uint32_t buffer,
                           const struct ibv_wc *completion)
{
    struct message message = {
        .kind = MESSAGE_NOTICE,
        .length = completion->byte_len,
        .value = ntohl(completion->imm_data),
    };
    take_message(connection, buffer, &message);
}

void receiver_take(struct weir_connection *connection, uint32_t index,
                   const struct ibv_wc *completion)
{
    if (connection->state == CONNECTION_ABORTING || connection->state == CONNECTION_ENDED) {
        return;
    }
    if (completion->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        take_immediate(connection, index, completion);
        return;
    }
    struct message_limits limits = {connection->local.eager_length,
                                    connection->local.message_length_max};
    struct message message;
    const char *wrong = message_parse(buffers_receive(&connection->buffers, index),
                                      completion->byte_len, &limits, &message);
    if (wrong == NULL && !credit_learn(&connection->credit, message.credit_limit)) {
        wrong = "a grant of credit that cannot be";
    }
    if (wrong != NULL) {
        connection_abort(connection, WEIR_PROTOCOL, "%s", wrong);
        return;
    }
    take_message(connection, index, &message);
}
