#include "tools/transfer/channel_link.h"

#include <stdlib.h>
#include <string.h>

#include "tools/transfer/pack.h"

struct channel_link {
    struct link link; /* first: a link is its channel_link */
    struct weir_fabric *fabric;
    struct weir_connection *connection;
    struct weir_memory *memory;
    struct outgoing *outgoing; /* not on its way yet; NULL: none */
};

/* Messages under way. */
struct outgoing {
    size_t length; /* of the messages alone */
    struct pack pack;
};

const struct weir_channel_options channel_link_options = {
    .bootstrap = WEIR_BOOTSTRAP_CM,
    .eager_length = PACK_LENGTH_MAX,
    .eager_buffers = 64,
    .message_length_max = PACK_LENGTH_MAX,
};

static struct channel_link *channel_of(struct link *link)
{
    return (struct channel_link *)link;
}

static void discard(struct link *link, struct outgoing *outgoing)
{
    link->backlog_length -= outgoing->length;
    link->backlog_count -= outgoing->pack.count;
    free(outgoing);
}

static void sent(struct weir_connection *connection, enum weir_status status, void *argument)
{
    discard(weir_user(connection), argument);
}

static bool channel_flush(struct link *link)
{
    struct channel_link *channel = channel_of(link);
    struct outgoing *outgoing = channel->outgoing;
    channel->outgoing = NULL;
    if (outgoing == NULL) {
        return true;
    }
    const struct span bytes = pack_bytes(&outgoing->pack);
    if (channel->connection != NULL &&
        weir_send(channel->connection, bytes.bytes, bytes.length, sent, outgoing) == WEIR_OK) {
        return true;
    }
    discard(link, outgoing);
    return false;
}

static struct outgoing *outgoing_create(void)
{
    struct outgoing *outgoing = malloc(sizeof(*outgoing));
    if (outgoing != NULL) {
        outgoing->length = outgoing->pack.length = outgoing->pack.count = 0;
    }
    return outgoing;
}

static bool channel_send(struct link *link, const struct weir_piece *pieces, unsigned count)
{
    struct channel_link *channel = channel_of(link);
    size_t length = 0;
    for (unsigned i = 0; i < count; i++) {
        length += pieces[i].length;
    }
    if (channel->outgoing != NULL && !pack_has_room(&channel->outgoing->pack, length)) {
        channel_flush(link);
    }
    if (channel->outgoing == NULL && channel->connection != NULL) {
        channel->outgoing = outgoing_create();
    }
    if (channel->outgoing == NULL || !pack_has_room(&channel->outgoing->pack, length)) {
        return false;
    }
    uint8_t *at = pack_add(&channel->outgoing->pack, length);
    for (unsigned i = 0; i < count; i++) {
        memcpy(at, pieces[i].bytes, pieces[i].length);
        at += pieces[i].length;
    }
    channel->outgoing->length += length;
    link->backlog_length += length;
    link->backlog_count++;
    return true;
}

static void put_ended(struct weir_connection *connection, enum weir_status status, void *argument)
{
    struct link *link = weir_user(connection);
    if (status == WEIR_OK) {
        link->events->put_done(link->user, (size_t)(uintptr_t)argument);
    }
}

static bool channel_put(struct link *link, const struct link_put *put)
{
    struct channel_link *channel = channel_of(link);
    channel_flush(link); /* what was said before comes before */
    const struct weir_transfer transfer = {
        .memory = channel->memory,
        .offset = put->offset,
        .length = put->length,
        .remote = put->remote,
        .remote_offset = put->remote_offset,
        .has_notice = true,
        .notice = put->notice,
    };
    return channel->connection != NULL && weir_put(channel->connection, &transfer, put_ended,
                                                   (void *)(uintptr_t)put->offset) == WEIR_OK;
}

static void *channel_allocate(struct link *link, size_t length, unsigned rights,
                              struct weir_remote *ret_remote, struct weir_error *ret_error)
{
    struct channel_link *channel = channel_of(link);
    if (weir_memory_allocate_for(channel->connection, length, rights, &channel->memory,
                                 ret_error) != WEIR_OK) {
        return NULL;
    }
    *ret_remote = weir_memory_remote(channel->memory);
    return weir_memory_bytes(channel->memory);
}

static void channel_close(struct link *link)
{
    channel_flush(link);
    if (channel_of(link)->connection != NULL) {
        weir_close(channel_of(link)->connection);
    }
}

static void channel_abort(struct link *link, const char *reason)
{
    if (channel_of(link)->connection != NULL) {
        weir_abort(channel_of(link)->connection, reason);
    }
}

static const struct link_operations operations = {
    .send = channel_send,
    .flush = channel_flush,
    .put = channel_put,
    .allocate = channel_allocate,
    .close = channel_close,
    .abort = channel_abort,
};

static void on_opened(struct weir_connection *connection, void *user)
{
    struct link *link = user;
    link->events->opened(link->user);
}

static void on_received(struct weir_connection *connection, const void *bytes, size_t length,
                        void *user)
{
    struct link *link = user;
    struct unpack unpack = unpack_start(bytes, length);
    for (struct span message; unpack_next(&unpack, &message);) {
        link->events->received(link->user, message.bytes, message.length);
    }
}

static void on_noticed(struct weir_connection *connection, uint32_t notice, size_t length,
                       void *user)
{
    struct link *link = user;
    link->events->noticed(link->user, notice, length);
}

static void on_closed(struct weir_connection *connection, const struct weir_error *reason,
                      void *user)
{
    struct link *link = user;
    channel_of(link)->connection = NULL;
    link->events->closed(link->user, reason);
}

const struct weir_handler channel_link_handler = {
    .opened = on_opened,
    .received = on_received,
    .noticed = on_noticed,
    .closed = on_closed,
};

struct link *channel_link_create(struct weir_fabric *fabric)
{
    struct channel_link *channel = calloc(1, sizeof(*channel));
    if (channel == NULL) {
        return NULL;
    }
    channel->link.operations = &operations;
    channel->fabric = fabric;
    return &channel->link;
}

void channel_link_attach(struct link *link, struct weir_connection *connection)
{
    channel_of(link)->connection = connection;
}

struct weir_connection *channel_link_connection(struct link *link)
{
    return channel_of(link)->connection;
}

void channel_link_destroy(struct link *link)
{
    if (link != NULL) {
        weir_memory_deregister(channel_of(link)->memory);
        free(channel_of(link)->outgoing);
        free(channel_of(link));
    }
}
