#include "tools/transfer/chain/feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct feed {
    struct link *link;
    const struct stream *stream;
    uint8_t id[HOP_ID_LENGTH];
    bool began, failed, closed;
    char why[HOP_WHY_LENGTH];
    uint64_t position; /* of the next frame */
    uint64_t from;     /* the first that was wanted here */
    uint64_t acked;    /* all behind have what is before it */
    uint32_t chunk_length;
    unsigned chunk_count;
    struct weir_remote remote;
    uint8_t *memory;            /* as many chunks as the other has */
    bool is_lent;               /* the frames lie in it themselves */
    uint64_t bytes;             /* of chunks put */
    uint64_t chunks, released;  /* put on this link, and of these taken by all */
    bool busy[CHUNK_COUNT_MAX]; /* is read by a put */
};

static void fail(struct feed *feed, const char *why)
{
    if (!feed->failed) {
        feed->failed = true;
        snprintf(feed->why, sizeof(feed->why), "%s", why);
        feed->link->operations->abort(feed->link, why);
    }
}

static bool say(struct feed *feed, const struct hop_message *message)
{
    uint8_t bytes[HOP_LENGTH_MAX];
    const struct weir_piece piece = {bytes, hop_pack(message, bytes)};
    return feed->link->operations->send(feed->link, &piece, 1);
}

static void on_opened(void *user)
{
    struct feed *feed = user;
    struct hop_message message = {.type = HOP_ATTACH};
    memcpy(message.ready.id, feed->id, HOP_ID_LENGTH);
    say(feed, &message);
    feed->link->operations->flush(feed->link);
}

static void begin(struct feed *feed, const struct hop_message *message)
{
    struct weir_error error = {.message = "no memory"};
    struct weir_remote unused;
    size_t length = (size_t)message->take.chunk_length * message->take.chunk_count;
    if (feed->began || message->take.chunk_length < HOP_CHUNK_LENGTH ||
        length > 4u * HOP_CHUNK_LENGTH * HOP_CHUNK_COUNT) {
        fail(feed, "its memory for chunks is not of use");
        return;
    }
    if (message->take.position < feed->stream->begin) {
        fail(feed, "it is too far behind");
        return;
    }
    if (message->take.position > feed->stream->end) {
        fail(feed, "it says that it has what it was not given");
        return;
    }
    feed->memory =
        feed->link->operations->allocate(feed->link, length, WEIR_LOCAL, &unused, &error);
    if (feed->memory == NULL) {
        fail(feed, error.message);
        return;
    }
    feed->position = feed->from = message->take.position;
    feed->acked = feed->stream->begin; /* those behind it may have less than it has */
    feed->chunk_length = message->take.chunk_length;
    feed->chunk_count = message->take.chunk_count;
    feed->remote = message->take.remote;
    feed->began = true;
}

/* The room of the chunks among the frames that are taken is free, if they were put here. */
static void acknowledge(struct feed *feed, uint64_t acked)
{
    if (!feed->began || acked > feed->position) {
        fail(feed, "it says that it has what it was not given");
        return;
    }
    for (; feed->acked < acked; feed->acked++) {
        feed->released +=
            feed->acked >= feed->from && stream_at(feed->stream, feed->acked)->is_chunk;
    }
}

static void on_received(void *user, const void *bytes, size_t length)
{
    struct feed *feed = user;
    struct hop_message message;
    if (feed->failed) {
        return;
    }
    bool sound = hop_parse(bytes, length, &message);
    if (sound && message.type == HOP_TAKE) {
        begin(feed, &message);
    } else if (sound && message.type == HOP_ACK) {
        acknowledge(feed, message.acked);
    } else {
        fail(feed, "it broke the protocol of a chain");
    }
}

static void on_noticed(void *user, uint32_t notice, size_t length)
{
    fail(user, "it put data where none was wanted");
}

static void on_put_done(void *user, size_t offset)
{
    struct feed *feed = user;
    feed->busy[offset / feed->chunk_length] = false;
}

static void on_closed(void *user, const struct weir_error *reason)
{
    struct feed *feed = user;
    feed->closed = true;
    if (!feed->failed) {
        snprintf(feed->why, sizeof(feed->why), "%s", reason->message);
    }
}

static const struct link_events events = {
    .opened = on_opened,
    .received = on_received,
    .noticed = on_noticed,
    .put_done = on_put_done,
    .closed = on_closed,
};

struct feed *feed_create(struct link *link, const struct stream *stream,
                         const uint8_t id[HOP_ID_LENGTH])
{
    struct feed *feed = calloc(1, sizeof(*feed));
    if (feed != NULL) {
        feed->link = link;
        feed->stream = stream;
        memcpy(feed->id, id, HOP_ID_LENGTH);
        link->events = &events;
        link->user = feed;
    }
    return feed;
}

void feed_destroy(struct feed *feed)
{
    free(feed);
}

struct link *feed_link(const struct feed *feed)
{
    return feed->link;
}

static bool lies_in_memory(const struct feed *feed, const void *bytes)
{
    uintptr_t offset = (uintptr_t)bytes - (uintptr_t)feed->memory;
    return feed->is_lent && offset < (uintptr_t)feed->chunk_length * feed->chunk_count;
}

void *feed_lend(struct feed *feed, size_t length)
{
    feed->is_lent = feed->began && length == (size_t)feed->chunk_length * feed->chunk_count &&
                    feed->chunk_length == HOP_CHUNK_LENGTH && feed->chunks == 0;
    return feed->is_lent ? feed->memory : NULL;
}

bool feed_uses(const struct feed *feed, const void *bytes)
{
    return lies_in_memory(feed, bytes) &&
           feed->busy[((const uint8_t *)bytes - feed->memory) / feed->chunk_length];
}

/* Where the frame's bytes are to be put from. */
static uint64_t place_of(struct feed *feed, const struct frame *frame, unsigned slot)
{
    if (lies_in_memory(feed, frame->bytes)) {
        return (uint64_t)(frame->bytes - feed->memory);
    }
    memcpy(feed->memory + (size_t)slot * feed->chunk_length, frame->bytes, frame->length);
    return (uint64_t)slot * feed->chunk_length;
}

/* False: there is no room for it yet. */
static bool put_chunk(struct feed *feed, const struct frame *frame)
{
    unsigned slot = (unsigned)(feed->chunks % feed->chunk_count);
    struct hop_message message = {.type = HOP_CHUNK, .chunk = {.length = frame->length}};
    bool is_free = lies_in_memory(feed, frame->bytes) || !feed->busy[slot];
    if (feed->chunks - feed->released >= feed->chunk_count || !is_free) {
        return false;
    }
    const struct link_put put = {
        .offset = place_of(feed, frame, slot),
        .length = frame->length,
        .remote = feed->remote,
        .remote_offset = (uint64_t)slot * feed->chunk_length,
        .notice = notice_pack((uint16_t)slot, (uint16_t)feed->chunks),
    };
    memcpy(message.chunk.digest, frame->digest, DIGEST_LENGTH);
    feed->busy[put.offset / feed->chunk_length] = true;
    feed->chunks++;
    feed->bytes += frame->length;
    return say(feed, &message) && feed->link->operations->put(feed->link, &put);
}

void feed_pump(struct feed *feed)
{
    const struct stream *stream = feed->stream;
    if (feed->closed) {
        return;
    }
    while (feed->began && !feed->failed && feed->position < stream->end) {
        const struct frame *frame = stream_at(stream, feed->position);
        const struct weir_piece piece = {frame->bytes, frame->length};
        if (frame->is_chunk ? !put_chunk(feed, frame)
                            : !feed->link->operations->send(feed->link, &piece, 1)) {
            break;
        }
        feed->position++;
    }
    feed->link->operations->flush(feed->link);
}

uint64_t feed_acked(const struct feed *feed)
{
    return feed->began ? feed->acked : 0;
}

uint64_t feed_bytes(const struct feed *feed)
{
    return feed->bytes;
}

bool feed_has_begun(const struct feed *feed)
{
    return feed->began;
}

bool feed_is_closed(const struct feed *feed)
{
    return feed->closed;
}

const char *feed_why(const struct feed *feed)
{
    return feed->why;
}
