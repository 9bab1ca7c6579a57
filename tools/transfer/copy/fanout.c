#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/transfer/copy/fanout_private.h"
#include "tools/transfer/wire/digest.h"

static const struct link_operations operations;
static const struct link_events member_events;

struct fanout *fanout_create(const struct fanout_options *options)
{
    struct fanout *fanout = calloc(1, sizeof(*fanout));
    struct member *members = calloc(options->count, sizeof(*members));
    if (fanout == NULL || members == NULL) {
        free(fanout);
        free(members);
        return NULL;
    }
    fanout->link.operations = &operations;
    fanout->options = *options;
    fanout->members = members;
    for (unsigned i = 0; i < options->count; i++) {
        members[i] = (struct member){.fanout = fanout,
                                     .number = i,
                                     .alive = true,
                                     .before = FED_BY_NOBODY,
                                     .fed_by = FED_BY_NOBODY};
    }
    return fanout;
}

struct link *fanout_link(struct fanout *fanout)
{
    return &fanout->link;
}

void fanout_destroy(struct fanout *fanout)
{
    if (fanout == NULL) {
        return;
    }
    fanout_end_feed(fanout);
    if (fanout->lender != NULL) {
        fanout_drop(fanout, feed_link(fanout->lender));
        feed_destroy(fanout->lender);
        fanout->memory = NULL;
    }
    for (unsigned i = 0; i < fanout->options.count; i++) {
        struct member *member = &fanout->members[i];
        if (member->link != NULL) {
            fanout_drop(fanout, member->link);
        }
        fanout_forget(member);
        explicit_bzero(&member->token, sizeof(member->token));
    }
    stream_clear(&fanout->stream);
    explicit_bzero(&fanout->target, sizeof(fanout->target));
    free(fanout->memory);
    free(fanout->members);
    free(fanout);
}

void fanout_tell(struct fanout *fanout, const struct message *message, struct span data)
{
    size_t length = protocol_pack(message, fanout->packed);
    if (data.length > 0 && data.length <= sizeof(fanout->packed) - length) {
        memcpy(fanout->packed + length, data.bytes, data.length);
        length += data.length;
    }
    if (!fanout->closed) {
        fanout->link.events->received(fanout->link.user, fanout->packed, length);
    }
}

bool fanout_say_hop(struct member *member, const struct hop_message *message)
{
    uint8_t bytes[HOP_LENGTH_MAX];
    const struct weir_piece piece = {bytes, hop_pack(message, bytes)};
    return member->link != NULL && member->link->operations->send(member->link, &piece, 1);
}

void fanout_say(struct member *member, const struct message *message)
{
    uint8_t head[MESSAGE_HEAD_MAX];
    const struct weir_piece piece = {head, protocol_pack(message, head)};
    if (member->link != NULL) {
        member->link->operations->send(member->link, &piece, 1);
    }
}

void fanout_note(char why[HOP_WHY_LENGTH], const char *text)
{
    size_t length = strnlen(text, HOP_WHY_LENGTH - 1);
    memmove(why, text, length);
    why[length] = 0;
}

void fanout_fail(struct member *member, enum session_outcome outcome, const char *why)
{
    if (!member->alive) {
        return;
    }
    member->alive = false;
    if (!member->summed) { /* else it has all, and only feeds others no more */
        member->outcome = outcome;
        fanout_note(member->why, why);
    }
    if (member->link != NULL) {
        member->link->operations->abort(member->link, why);
    }
}

/* Everybody's greeting is the session's, but for the path. */
static void greet(struct member *member)
{
    const struct hop_message join = {.type = HOP_JOIN, .version = HOP_VERSION};
    const struct fanout *fanout = member->fanout;
    const char *path = fanout->options.members[member->number].path;
    struct message hello;
    if (protocol_parse(fanout->hello, fanout->hello_length, &hello)) {
        hello.hello.path = (struct span){path, strlen(path)};
        fanout_say_hop(member, &join);
        fanout_say(member, &hello);
    }
}

static void on_opened(void *user)
{
    struct member *member = user;
    member->opened = true;
    member->since_s = member->fanout->now_s;
    greet(member);
}

static void hear_greeting(struct member *member, const struct message *message)
{
    if (message->type == MESSAGE_WELCOME && message->welcome.version == PROTOCOL_VERSION) {
        member->welcome = true;
        memcpy(member->device, message->welcome.device.bytes, message->welcome.device.length);
    } else if (message->type == MESSAGE_REFUSED) {
        char text[TEXT_LENGTH_MAX + 1];
        memcpy(text, message->refused.text.bytes, message->refused.text.length);
        text[message->refused.text.length] = 0;
        fanout_fail(member, SESSION_REFUSED, text);
    } else {
        fanout_fail(member, SESSION_BROKEN, "it broke the protocol: no welcome");
    }
}

static void on_received(void *user, const void *bytes, size_t length)
{
    struct member *member = user;
    struct message message;
    struct hop_message hop;
    if (!member->alive) {
        return;
    }
    if (hop_is_one(bytes, length)) {
        if (hop_parse(bytes, length, &hop)) {
            fanout_hear_hop(member, &hop);
        } else {
            fanout_fail(member, SESSION_BROKEN, "it broke the protocol: a malformed message");
        }
    } else if (!protocol_parse(bytes, length, &message)) {
        fanout_fail(member, SESSION_BROKEN, "it broke the protocol: a malformed message");
    } else if (!member->welcome) {
        hear_greeting(member, &message);
    } else {
        fanout_hear(member, &message);
    }
}

static void on_noticed(void *user, uint32_t notice, size_t length)
{
    fanout_fail(user, SESSION_BROKEN, "it broke the protocol: data without being asked");
}

static void on_put_done(void *user, size_t offset)
{
}

/* One that was never reached may have another address: fanout_pump looks. */
static void on_closed(void *user, const struct weir_error *reason)
{
    struct member *member = user;
    fanout_drop(member->fanout, member->link);
    member->link = NULL;
    if (member->opened) {
        fanout_fail(member, SESSION_LOST, reason->message);
    } else if (member->alive) {
        fanout_note(member->why, reason->message);
    }
}

static const struct link_events member_events = {
    .opened = on_opened,
    .received = on_received,
    .noticed = on_noticed,
    .put_done = on_put_done,
    .closed = on_closed,
};

static void connect_to(struct fanout *fanout)
{
    for (unsigned i = 0; i < fanout->options.count && !fanout->closing; i++) {
        struct member *member = &fanout->members[i];
        char why[HOP_WHY_LENGTH] = "";
        if (!member->alive || member->link != NULL) {
            continue;
        }
        member->link = fanout->options.connect(fanout->options.dialer.user, i, why);
        if (member->link != NULL) {
            member->link->events = &member_events;
            member->link->user = member;
        } else {
            const char *text = member->why[0] != 0 ? member->why : why;
            fanout_fail(member, SESSION_UNREACHED, text[0] != 0 ? text : "it has no address");
        }
    }
}

/* The transfer begins when of each it is known whether it takes part. */
static void start(struct fanout *fanout)
{
    bool any = false;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        const struct member *member = &fanout->members[i];
        any |= member->alive;
        if (member->alive && (!member->welcome || !member->awaits)) {
            return;
        }
    }
    if (!any) {
        return;
    }
    fanout->started = true;
    struct message message = {.type = MESSAGE_WELCOME, .welcome = {.version = PROTOCOL_VERSION}};
    fanout_tell(fanout, &message, (struct span){NULL, 0});
}

/* The sender may have chunks as soon as somebody is fed. */
static void give_memory(struct fanout *fanout)
{
    struct message message = {.type = MESSAGE_REGION};
    if (fanout->has_memory || fanout->feed == NULL || !feed_has_begun(fanout->feed)) {
        return;
    }
    fanout->has_memory = true;
    message.region.chunk_length = HOP_CHUNK_LENGTH;
    message.region.chunk_count = HOP_CHUNK_COUNT;
    message.region.remote.length = (uint64_t)HOP_CHUNK_LENGTH * HOP_CHUNK_COUNT;
    fanout_tell(fanout, &message, (struct span){NULL, 0});
}

/* What all have taken: the sender may use its chunks again. */
static void release(struct fanout *fanout)
{
    struct stream *stream = &fanout->stream;
    uint64_t acked = fanout->feed != NULL ? feed_acked(fanout->feed) : 0;
    while (stream->begin < acked && stream->begin < stream->end) {
        const struct frame frame = *stream_at(stream, stream->begin);
        if (frame.is_chunk && feed_uses(fanout->feed, frame.bytes)) {
            break; /* until the put is known to be through */
        }
        stream_drop(stream);
        fanout->link.backlog_length = stream->messages_length;
        if (frame.is_chunk && !fanout->closed) {
            struct message message = {.type = MESSAGE_GRANT};
            message.grant.chunk = (uint16_t)(frame.mark >> 48);
            fanout->link.events->put_done(fanout->link.user,
                                          (size_t)(frame.mark & ((1ull << 48) - 1)));
            fanout_tell(fanout, &message, (struct span){NULL, 0});
        }
    }
}

/* Nobody is left, or all have gone after the end. */
static void end_if_alone(struct fanout *fanout)
{
    struct weir_error error = {.status = WEIR_PEER_LOST};
    for (unsigned i = 0; i < fanout->options.count; i++) {
        const struct member *member = &fanout->members[i];
        if (member->alive || member->link != NULL) {
            return;
        }
        if (member->why[0] != 0) {
            snprintf(error.message, sizeof(error.message), "%.100s: %.200s",
                     fanout->options.members[i].name, member->why);
        }
    }
    fanout_end_feed(fanout);
    fanout->closed = true;
    fanout->link.events->closed(fanout->link.user, &error);
}

/* Who is done and waits for others, or waits for a disk here, is not to take us for dead. */
static void say_alive(struct fanout *fanout)
{
    if (!fanout->started || fanout->now_s - fanout->alive_s < ALIVE_INTERVAL_S) {
        return;
    }
    fanout->alive_s = fanout->now_s;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        fanout_say(&fanout->members[i], &(struct message){.type = MESSAGE_ALIVE});
    }
}

/* While this process itself was held up, nobody could be heard. */
static void look_at_clock(struct fanout *fanout)
{
    time_t now_s = fanout->options.clock_s(fanout->options.dialer.user);
    time_t passed_s = now_s - fanout->now_s;
    for (unsigned i = 0; i < fanout->options.count && passed_s > 1; i++) {
        fanout->members[i].since_s += passed_s;
    }
    fanout->now_s = now_s;
}

void fanout_pump(struct fanout *fanout)
{
    if (fanout->closed) {
        return;
    }
    if (!fanout->said_open) {
        fanout->said_open = true;
        fanout->link.events->opened(fanout->link.user);
    }
    look_at_clock(fanout);
    connect_to(fanout);
    fanout_limit(fanout);
    if (!fanout->started) {
        start(fanout);
    }
    if (fanout->started && !fanout->closing) {
        fanout_arrange(fanout);
        fanout_feed(fanout);
        give_memory(fanout);
        release(fanout);
        fanout_merge(fanout);
        say_alive(fanout);
    }
    for (unsigned i = 0; i < fanout->options.count; i++) {
        struct link *link = fanout->members[i].link;
        if (link != NULL) {
            link->operations->flush(link);
        }
    }
    end_if_alone(fanout);
}

/* What the session says goes to all, but for the greeting, which each gets when it is there, and an
 * answer to one of them. */
static void look_at(struct fanout *fanout, const void *bytes, size_t length)
{
    struct message message;
    uint8_t type = *(const uint8_t *)bytes;
    bool counts = type == MESSAGE_ASK || type == MESSAGE_FINISHED || fanout->resumes ||
                  (type == MESSAGE_ENTRY && fanout->deletes);
    if (!counts || !protocol_parse(bytes, length, &message)) {
        return;
    }
    if (message.type == MESSAGE_ENTRY && message.entry.kind == ENTRY_DIRECTORY) {
        fanout->is_sent[message.entry.source] = true; /* one in it came, so it did */
    }
    if (message.type == MESSAGE_ASK) {
        fanout->asked += message.ask.names;
    } else if (message.type == MESSAGE_FINISHED) {
        fanout->finished = true;
        fanout->entries = message.finished.entries;
    } else if (fanout->resumes) {
        fanout_look_at_file(fanout, &message);
    }
}

static void keep_hello(struct fanout *fanout, const void *bytes, size_t length)
{
    struct message message;
    fanout->hello_length = length;
    memcpy(fanout->hello, bytes, length);
    if (protocol_parse(bytes, length, &message)) {
        fanout->resumes = (message.hello.wishes.bits & WISH_RESUME) != 0;
        fanout->deletes = (message.hello.wishes.bits & WISH_DELETE) != 0;
    }
}

static bool link_send(struct link *link, const struct weir_piece *pieces, unsigned count)
{
    struct fanout *fanout = (struct fanout *)link;
    uint8_t bytes[MESSAGE_LENGTH_MAX];
    size_t length = 0;
    if (fanout->asker != NULL) {
        struct link *to = fanout->asker->link;
        return to != NULL && to->operations->send(to, pieces, count);
    }
    for (unsigned i = 0; i < count; i++) {
        if (pieces[i].length > sizeof(bytes) - length) {
            return false;
        }
        memcpy(bytes + length, pieces[i].bytes, pieces[i].length);
        length += pieces[i].length;
    }
    if (bytes[0] == MESSAGE_HELLO) {
        keep_hello(fanout, bytes, length);
        return true;
    }
    look_at(fanout, bytes, length);
    bool added = stream_add_message(&fanout->stream, bytes, length);
    link->backlog_length = fanout->stream.messages_length;
    return added;
}

/* What the session has said goes now: nobody may come again for long. */
static bool link_flush(struct link *link)
{
    struct fanout *fanout = (struct fanout *)link;
    if (fanout->feed != NULL) {
        feed_pump(fanout->feed);
    }
    return true;
}

static bool link_put(struct link *link, const struct link_put *put)
{
    struct fanout *fanout = (struct fanout *)link;
    uint8_t digest[DIGEST_LENGTH];
    const uint8_t *bytes = fanout->memory + put->offset;
    uint64_t mark = (uint64_t)notice_chunk(put->notice) << 48 | put->offset;
    digest_of(bytes, put->length, digest);
    fanout->proving.position += put->length;
    return stream_add_chunk(&fanout->stream, bytes, put->length, digest, mark);
}

static void *link_allocate(struct link *link, size_t length, unsigned rights,
                           struct weir_remote *ret_remote, struct weir_error *ret_error)
{
    struct fanout *fanout = (struct fanout *)link;
    fanout->memory = fanout->feed != NULL ? feed_lend(fanout->feed, length) : NULL;
    if (fanout->memory != NULL) {
        fanout->lender = fanout->feed;
        return fanout->memory;
    }
    fanout->memory = malloc(length);
    if (fanout->memory == NULL) {
        snprintf(ret_error->message, sizeof(ret_error->message), "not enough memory");
    }
    return fanout->memory;
}

static void link_close(struct link *link)
{
    struct fanout *fanout = (struct fanout *)link;
    fanout->closing = true;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        struct member *member = &fanout->members[i];
        member->alive = false;
        if (member->link != NULL) {
            member->link->operations->close(member->link);
        }
    }
}

static void link_abort(struct link *link, const char *reason)
{
    struct fanout *fanout = (struct fanout *)link;
    fanout->closing = true;
    for (unsigned i = 0; i < fanout->options.count; i++) {
        fanout_fail(&fanout->members[i], SESSION_LOST, reason);
    }
}

/* The first one's, which carries what the source sends. */
static bool link_retransmissions(struct link *link, uint64_t *ret_count)
{
    const struct fanout *fanout = (const struct fanout *)link;
    struct link *first = fanout->feed != NULL ? feed_link(fanout->feed) : NULL;
    return first != NULL && first->operations->retransmissions != NULL &&
           first->operations->retransmissions(first, ret_count);
}

static const struct link_operations operations = {
    .send = link_send,
    .flush = link_flush,
    .put = link_put,
    .allocate = link_allocate,
    .close = link_close,
    .abort = link_abort,
    .retransmissions = link_retransmissions,
};

enum session_outcome fanout_outcome(const struct fanout *fanout, unsigned member)
{
    return fanout->members[member].outcome;
}

const char *fanout_why(const struct fanout *fanout, unsigned member)
{
    return fanout->members[member].why;
}

const char *fanout_device(const struct fanout *fanout, unsigned member)
{
    return fanout->members[member].device;
}

const struct tally *fanout_tally(const struct fanout *fanout, unsigned member)
{
    return &fanout->members[member].tally;
}

uint64_t fanout_bytes_put(const struct fanout *fanout)
{
    return fanout->put + (fanout->feed != NULL ? feed_bytes(fanout->feed) : 0);
}

unsigned fanout_feeds(const struct fanout *fanout)
{
    return fanout->feeds;
}
