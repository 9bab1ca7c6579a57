#include "tools/transfer/wire/channel_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/wire/pack.h"
#include "tools/trust/guard.h"

#define SEALED_LENGTH_MAX GUARD_SEALED_LENGTH(PACK_LENGTH_MAX)

/* Messages of the link's own, which no message of a transfer has the type of. The first that a
 * server with a guard seals: it has let the client in, who knows only then. */
#define MESSAGE_LET_IN 0xfe
/* Before each put of a sealed chunk: where it lies in the receiver's memory, its length, the notice
 * that will come with it, and its tag. */
#define MESSAGE_SEALED_CHUNK 0xff
#define SEALED_CHUNK_LENGTH  (1 + 8 + 4 + 4 + TAG_LENGTH)

struct sealed_chunk {
    uint64_t offset;
    uint32_t length; /* 0: none is announced */
    uint32_t notice;
    uint8_t tag[TAG_LENGTH];
};

struct channel_link {
    struct link link; /* first: a link is its channel_link */
    struct weir_connection *connection;
    struct weir_poller *poller; /* the connection's */
    struct weir_memory *memory;
    struct outgoing *outgoing; /* not on its way yet; NULL: none */
    struct outgoing *spare; /* as many as were on their way at once: memory that was used before */
    struct guard *guard;    /* NULL: none */
    bool has_heard;         /* a message */
    struct channel_link_door door;
    bool connected, is_open; /* open: the user has been told */
    enum weir_status status; /* when it has closed: why */
    char why[160];           /* the guard did not let the peer in, or stopped it later; or "" */
    uint8_t *plain;          /* what the user has for `memory`, where chunks are sealed */
    size_t length;           /* of it */
    struct sealed_chunk announced;
    uint8_t opened[PACK_LENGTH_MAX];
};

/* Messages under way. */
struct outgoing {
    struct outgoing *next; /* spare */
    size_t length;         /* of the messages alone */
    struct pack pack;
    uint8_t sealed[]; /* with a guard: the pack, as it goes */
};

const struct weir_channel_options channel_link_options = {
    .bootstrap = WEIR_BOOTSTRAP_CM,
    .eager_length = SEALED_LENGTH_MAX,
    .eager_buffers = 64,
    .message_length_max = SEALED_LENGTH_MAX,
};

static struct channel_link *channel_of(struct link *link)
{
    return (struct channel_link *)link;
}

static void discard(struct link *link, struct outgoing *outgoing)
{
    link->backlog_length -= outgoing->length;
    link->backlog_count -= outgoing->pack.count;
    outgoing->next = channel_of(link)->spare;
    channel_of(link)->spare = outgoing;
}

static void sent(struct weir_connection *connection, enum weir_status status, void *argument)
{
    discard(weir_user(connection), argument);
}

static void channel_abort(struct link *link, const char *reason)
{
    if (channel_of(link)->connection != NULL) {
        weir_abort(channel_of(link)->connection, reason);
    }
}

/* What cannot be sent although the link lives would be missed by nobody: then it ends. */
static bool has_left(struct channel_link *channel, enum weir_status status)
{
    char reason[80];
    if (status != WEIR_OK && status != WEIR_STATE) {
        snprintf(reason, sizeof(reason), "a message could not be sent (%s)",
                 weir_status_name(status));
        channel_abort(&channel->link, reason);
    }
    return status == WEIR_OK;
}

static enum weir_status send_pack(struct channel_link *channel, struct outgoing *outgoing)
{
    struct span bytes = pack_bytes(&outgoing->pack);
    if (channel->guard != NULL) {
        size_t length = 0;
        if (!guard_close(channel->guard, bytes.bytes, bytes.length, outgoing->sealed, &length)) {
            return WEIR_NO_MEMORY;
        }
        bytes = (struct span){outgoing->sealed, length};
    }
    return weir_send(channel->connection, bytes.bytes, bytes.length, sent, outgoing);
}

static bool channel_flush(struct link *link)
{
    struct channel_link *channel = channel_of(link);
    struct outgoing *outgoing = channel->outgoing;
    channel->outgoing = NULL;
    if (outgoing == NULL) {
        return true;
    }
    if (channel->connection != NULL && has_left(channel, send_pack(channel, outgoing))) {
        return true;
    }
    discard(link, outgoing);
    return false;
}

static struct outgoing *outgoing_create(struct channel_link *channel)
{
    struct outgoing *outgoing = channel->spare;
    if (outgoing != NULL) {
        channel->spare = outgoing->next;
    } else {
        outgoing = malloc(sizeof(*outgoing) + (channel->guard != NULL ? SEALED_LENGTH_MAX : 0));
    }
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
        channel->outgoing = outgoing_create(channel);
        has_left(channel, channel->outgoing != NULL ? WEIR_OK : WEIR_NO_MEMORY);
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

/* Seals what is to be put on its way to the memory that it is put from. */
static bool seal_chunk(struct link *link, const struct link_put *put)
{
    struct channel_link *channel = channel_of(link);
    uint8_t message[SEALED_CHUNK_LENGTH] = {MESSAGE_SEALED_CHUNK};
    const struct weir_piece piece = {message, sizeof(message)};
    uint8_t *bytes = weir_memory_bytes(channel->memory);
    for (unsigned i = 0; i < 8; i++) {
        message[1 + i] = (uint8_t)(put->remote_offset >> 8 * (7 - i));
    }
    for (unsigned i = 0; i < 4; i++) {
        message[9 + i] = (uint8_t)(put->length >> 8 * (3 - i));
        message[13 + i] = (uint8_t)(put->notice >> 8 * (3 - i));
    }
    return put->length <= UINT32_MAX &&
           guard_close_chunk(channel->guard, channel->plain + put->offset, put->length,
                             bytes + put->offset, message + 17) &&
           channel_send(link, &piece, 1);
}

static bool channel_put(struct link *link, const struct link_put *put)
{
    struct channel_link *channel = channel_of(link);
    if (channel->plain != NULL && !seal_chunk(link, put)) {
        channel_abort(link, "a chunk could not be sealed");
        return false;
    }
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
    return channel->connection != NULL &&
           has_left(channel, weir_put(channel->connection, &transfer, put_ended,
                                      (void *)(uintptr_t)put->offset));
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
    if (channel->guard == NULL || !guard_encrypts(channel->guard)) {
        return weir_memory_bytes(channel->memory);
    }
    channel->length = length;
    channel->plain = calloc(1, length); /* a peer may have parts read that were never written */
    if (channel->plain == NULL) {
        snprintf(ret_error->message, sizeof(ret_error->message), "not enough memory");
    }
    link->is_private = true;
    return channel->plain;
}

static void channel_close(struct link *link)
{
    channel_flush(link);
    if (channel_of(link)->connection != NULL) {
        weir_close(channel_of(link)->connection);
    }
}

static void channel_wake(struct link *link)
{
    weir_wake(channel_of(link)->poller);
}

static bool channel_retransmissions(struct link *link, uint64_t *ret_count)
{
    return weir_fabric_retransmissions(weir_poller_fabric(channel_of(link)->poller), ret_count);
}

static const struct link_operations operations = {
    .send = channel_send,
    .flush = channel_flush,
    .put = channel_put,
    .allocate = channel_allocate,
    .close = channel_close,
    .abort = channel_abort,
    .retransmissions = channel_retransmissions,
    .wake = channel_wake,
};

/* Ends the connection: of the peer's proof, or of what it sealed, something is wrong. */
static void stop(struct channel_link *channel, const char *why, const char *told)
{
    if (channel->why[0] == 0) {
        snprintf(channel->why, sizeof(channel->why), "%s", why);
    }
    channel_abort(&channel->link, told);
}

/* Handshakes go as they are. */
static void say(struct channel_link *channel, const struct guard_message *message)
{
    if (message->length > 0 && channel->connection != NULL) {
        weir_send(channel->connection, message->bytes, message->length, NULL, NULL);
    }
}

/* What a peer does not take into its buffers it is given a remote key of, to fetch it by: nobody is
 * to have one before he has proven who he is, nor of anything but chunks after that. */
static bool takes_whole_messages(const uint8_t parameters[WEIR_PARAMETERS_LENGTH])
{
    static const unsigned at[] = {0, 12}; /* what the client takes so, and the server */
    bool whole = true;
    for (unsigned i = 0; i < 2; i++) {
        const uint8_t *length = parameters + at[i];
        whole &= ((uint32_t)length[0] << 24 | (uint32_t)length[1] << 16 | (uint32_t)length[2] << 8 |
                  length[3]) >= channel_link_options.eager_length;
    }
    return whole;
}

static void on_opened(struct weir_connection *connection, void *user)
{
    struct link *link = user;
    struct channel_link *channel = channel_of(link);
    uint8_t parameters[WEIR_PARAMETERS_LENGTH];
    struct guard_message message;
    channel->connected = true;
    weir_connection_parameters(connection, parameters);
    if (!takes_whole_messages(parameters)) {
        stop(channel, "it takes no messages but by fetching them, as none of ours does",
             "messages are not given away to be fetched");
        return;
    }
    if (channel->guard == NULL) {
        channel->is_open = true;
        link->events->opened(link->user);
        return;
    }
    if (!guard_begin(channel->guard, parameters, sizeof(parameters), &message)) {
        stop(channel, guard_why(channel->guard), "no handshake");
        return;
    }
    say(channel, &message);
}

/* One who begins without a handshake is told in words that every version knows. */
static void tell_to_bring_a_key(struct channel_link *channel)
{
    static const char text[] = "this server wants a key: weir cp --key FILE (weir key makes one); "
                               "or, if it has a certificate, --ca FILE";
    struct message message = {.type = MESSAGE_REFUSED};
    uint8_t head[MESSAGE_HEAD_MAX];
    message.refused.code = PROBLEM_DENIED;
    message.refused.text = (struct span){text, sizeof(text) - 1};
    weir_send(channel->connection, head, protocol_pack(&message, head), NULL, NULL);
    weir_close(channel->connection);
}

static bool is_greeting(const void *bytes, size_t length)
{
    struct unpack unpack = unpack_start(bytes, length);
    struct span message;
    return unpack_next(&unpack, &message) && message.length > 0 &&
           *(const uint8_t *)message.bytes == MESSAGE_HELLO;
}

static void open_link(struct channel_link *channel)
{
    channel->is_open = true;
    channel->link.events->opened(channel->link.user);
}

/* A server's, of a client that is who it should be. */
static void let_in(struct channel_link *channel)
{
    static const uint8_t message = MESSAGE_LET_IN;
    const struct weir_piece piece = {&message, 1};
    const char *refusal = channel->door.admit(channel->door.user, guard_name(channel->guard));
    if (refusal != NULL) {
        stop(channel, refusal, refusal);
        return;
    }
    channel_send(&channel->link, &piece, 1);
    channel_flush(&channel->link);
    open_link(channel);
}

/* A client's, which has nothing to prove any more. */
static void hear_let_in(struct channel_link *channel, const void *bytes, size_t length)
{
    if (guard_open(channel->guard, bytes, length, channel->opened, sizeof(channel->opened),
                   &length) &&
        length == 1 && channel->opened[0] == MESSAGE_LET_IN) {
        open_link(channel);
    } else {
        stop(channel, "the other side does not answer as one that wants a key",
             "the handshake is malformed");
    }
}

static void hear_handshake(struct channel_link *channel, const void *bytes, size_t length)
{
    struct guard_message reply;
    enum guard_state state;
    if (channel->why[0] != 0) {
        return; /* it is ending */
    }
    if (guard_state(channel->guard) == GUARD_PROVEN) {
        hear_let_in(channel, bytes, length);
        return;
    }
    state = guard_hear(channel->guard, bytes, length, &reply);
    say(channel, &reply);
    if (state == GUARD_PROVEN && channel->door.admit != NULL) {
        let_in(channel);
    } else if (state == GUARD_FAILED && is_greeting(bytes, length)) {
        snprintf(channel->why, sizeof(channel->why), "%s", guard_why(channel->guard));
        tell_to_bring_a_key(channel);
    } else if (state == GUARD_FAILED) {
        stop(channel, guard_why(channel->guard), guard_told(channel->guard));
    }
}

static bool take_announcement(struct channel_link *channel, struct span message)
{
    const uint8_t *at = message.bytes;
    struct sealed_chunk chunk = {0};
    if (message.length != SEALED_CHUNK_LENGTH || channel->plain == NULL ||
        channel->announced.length != 0) {
        return false;
    }
    for (unsigned i = 0; i < 8; i++) {
        chunk.offset = chunk.offset << 8 | at[1 + i];
    }
    for (unsigned i = 0; i < 4; i++) {
        chunk.length = chunk.length << 8 | at[9 + i];
        chunk.notice = chunk.notice << 8 | at[13 + i];
    }
    memcpy(chunk.tag, at + 17, TAG_LENGTH);
    if (chunk.length == 0 || chunk.length > channel->length ||
        chunk.offset > channel->length - chunk.length) {
        return false;
    }
    channel->announced = chunk;
    return true;
}

static void hear_messages(struct channel_link *channel, const void *bytes, size_t length)
{
    struct link *link = &channel->link;
    struct unpack unpack = unpack_start(bytes, length);
    for (struct span message; unpack_next(&unpack, &message);) {
        if (channel->guard == NULL || message.length == 0 ||
            *(const uint8_t *)message.bytes != MESSAGE_SEALED_CHUNK) {
            link->events->received(link->user, message.bytes, message.length);
        } else if (!take_announcement(channel, message)) {
            stop(channel, "a sealed chunk was announced wrongly", "a chunk announced wrongly");
            return;
        }
    }
}

static void on_received(struct weir_connection *connection, const void *bytes, size_t length,
                        void *user)
{
    struct channel_link *channel = channel_of(user);
    bool is_first = !channel->has_heard;
    channel->has_heard = true;
    if (channel->guard == NULL && is_first && guard_is_hello(bytes, length)) {
        stop(channel, "it wants a proof, and there is no key here",
             "this server has no keys: it runs with --insecure");
    } else if (channel->guard == NULL) {
        hear_messages(channel, bytes, length);
    } else if (!channel->is_open) {
        hear_handshake(channel, bytes, length);
    } else if (guard_open(channel->guard, bytes, length, channel->opened, sizeof(channel->opened),
                          &length)) {
        hear_messages(channel, channel->opened, length);
    } else {
        stop(channel, guard_why(channel->guard), guard_told(channel->guard));
    }
}

/* The peer can write to the memory while it is read: what is opened is a copy. */
static bool open_chunk(struct channel_link *channel, uint32_t notice, size_t length)
{
    const struct sealed_chunk chunk = channel->announced;
    const uint8_t *sealed = weir_memory_bytes(channel->memory);
    uint8_t *plain = channel->plain + chunk.offset;
    channel->announced.length = 0;
    if (chunk.length == 0 || chunk.length != length || chunk.notice != notice) {
        return false;
    }
    memcpy(plain, sealed + chunk.offset, length);
    return guard_open_chunk(channel->guard, plain, length, plain, chunk.tag);
}

static void on_noticed(struct weir_connection *connection, uint32_t notice, size_t length,
                       void *user)
{
    struct link *link = user;
    struct channel_link *channel = channel_of(link);
    if (channel->guard != NULL && !channel->is_open) {
        return;
    }
    if (channel->plain != NULL && !open_chunk(channel, notice, length)) {
        stop(channel, "a sealed chunk was changed on its way",
             "a sealed chunk was changed on its way");
        return;
    }
    link->events->noticed(link->user, notice, length);
}

/* Its key is named where it is not in the words already: whose it pretends to be. */
static void leave_outside(struct channel_link *channel, const char *why)
{
    char text[512];
    const char *name = guard_name(channel->guard);
    bool named = name[0] == 0 || strstr(why, name) != NULL;
    snprintf(text, sizeof(text), named ? "%s" : "%s (it named key '%s')", why, name);
    channel->door.left_outside(channel->door.user, text);
}

static void on_closed(struct weir_connection *connection, const struct weir_error *reason,
                      void *user)
{
    struct link *link = user;
    struct channel_link *channel = channel_of(link);
    channel->connection = NULL;
    channel->status = reason->status;
    struct weir_error error = *reason;
    if (channel->why[0] != 0) {
        snprintf(error.message, sizeof(error.message), "%s: %s", weir_peer_name(connection),
                 channel->why);
    }
    if (!channel->is_open && channel->door.left_outside != NULL) {
        leave_outside(channel, channel->why[0] != 0 ? channel->why : reason->message);
    } else {
        link->events->closed(link->user, &error);
    }
}

const struct weir_handler channel_link_handler = {
    .opened = on_opened,
    .received = on_received,
    .noticed = on_noticed,
    .closed = on_closed,
};

struct link *channel_link_create(struct guard *guard, const struct channel_link_door *door)
{
    struct channel_link *channel = calloc(1, sizeof(*channel));
    if (channel == NULL) {
        guard_destroy(guard);
        return NULL;
    }
    channel->link.operations = &operations;
    channel->guard = guard;
    if (door != NULL) {
        channel->door = *door;
    }
    return &channel->link;
}

void channel_link_attach(struct link *link, struct weir_connection *connection)
{
    channel_of(link)->connection = connection;
    channel_of(link)->poller = weir_connection_poller(connection);
}

bool channel_link_is_outside(const struct link *link)
{
    const struct channel_link *channel = (const struct channel_link *)link;
    return channel->connection != NULL && channel->connected && !channel->is_open;
}

bool channel_link_is_open(const struct link *link)
{
    const struct channel_link *channel = (const struct channel_link *)link;
    return channel->connection != NULL && channel->is_open;
}

bool channel_link_was_lost(const struct link *link)
{
    const struct channel_link *channel = (const struct channel_link *)link;
    bool greeted = channel->connected && !channel->is_open;
    bool said_no = channel->status == WEIR_DISCONNECTED || channel->status == WEIR_PROTOCOL;
    return channel->connection == NULL && channel->why[0] == 0 && !(greeted && said_no);
}

bool channel_link_was_refused(const struct link *link)
{
    const struct channel_link *channel = (const struct channel_link *)link;
    bool is_outside = channel->connection == NULL && channel->connected && !channel->is_open;
    return is_outside && !channel_link_was_lost(link);
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
        while (channel_of(link)->spare != NULL) {
            struct outgoing *spare = channel_of(link)->spare;
            channel_of(link)->spare = spare->next;
            free(spare);
        }
        if (channel_of(link)->plain != NULL) {
            explicit_bzero(channel_of(link)->plain, channel_of(link)->length);
        }
        free(channel_of(link)->plain);
        guard_destroy(channel_of(link)->guard);
        free(channel_of(link));
    }
}
