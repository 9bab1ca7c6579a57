#include "tools/transfer/chain/stream.h"

#include <stdlib.h>
#include <string.h>

#define CAPACITY_MIN 256

struct frame *stream_at(const struct stream *stream, uint64_t position)
{
    return &stream->ring[position & (stream->capacity - 1)];
}

void stream_drop(struct stream *stream)
{
    struct frame *frame = stream_at(stream, stream->begin++);
    stream->messages_length -= frame->is_chunk ? 0 : frame->length;
    stream->chunks -= frame->is_chunk;
    free(frame->own);
    *frame = (struct frame){0};
}

void stream_clear(struct stream *stream)
{
    while (stream->begin < stream->end) {
        stream_drop(stream);
    }
    free(stream->ring);
    *stream = (struct stream){0};
}

static bool grow(struct stream *stream)
{
    size_t capacity = stream->capacity == 0 ? CAPACITY_MIN : 2 * stream->capacity;
    struct frame *ring = calloc(capacity, sizeof(*ring));
    if (ring == NULL) {
        return false;
    }
    for (uint64_t i = stream->begin; i < stream->end; i++) {
        ring[i & (capacity - 1)] = *stream_at(stream, i);
    }
    free(stream->ring);
    stream->ring = ring;
    stream->capacity = capacity;
    return true;
}

static bool add(struct stream *stream, const struct frame *frame)
{
    if (stream->end - stream->begin == stream->capacity && !grow(stream)) {
        return false;
    }
    *stream_at(stream, stream->end++) = *frame;
    stream->chunks += frame->is_chunk;
    return true;
}

bool stream_add_message(struct stream *stream, const void *bytes, size_t length)
{
    struct frame frame = {.own = malloc(length), .length = (uint32_t)length};
    frame.bytes = frame.own;
    if (frame.own == NULL || !add(stream, &frame)) {
        free(frame.own);
        return false;
    }
    memcpy(frame.own, bytes, length);
    stream->messages_length += length;
    return true;
}

bool stream_add_chunk(struct stream *stream, const void *bytes, size_t length,
                      const uint8_t digest[DIGEST_LENGTH], uint64_t mark)
{
    struct frame frame = {
        .bytes = bytes, .length = (uint32_t)length, .is_chunk = true, .mark = mark};
    memcpy(frame.digest, digest, DIGEST_LENGTH);
    return add(stream, &frame);
}
