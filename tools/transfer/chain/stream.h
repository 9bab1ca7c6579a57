/* The frames of a fan-out's stream, in order, from the first that not all have taken: who feeds
 * another can go on with whoever comes in its place.
 *
 * A frame is a message, of which there is a copy, or a chunk, whose bytes are its user's. */
#ifndef TOOLS_TRANSFER_STREAM_H
#define TOOLS_TRANSFER_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/transfer/wire/protocol.h"

struct frame {
    const uint8_t *bytes;
    uint8_t *own; /* the same, of a message; else NULL */
    uint32_t length;
    bool is_chunk;
    uint8_t digest[DIGEST_LENGTH]; /* of a chunk */
    uint64_t mark;                 /* the user's */
};

struct stream {
    struct frame *ring; /* by position */
    size_t capacity;    /* a power of two */
    uint64_t begin, end;
    size_t messages_length;
    unsigned chunks; /* among them */
};

void stream_clear(struct stream *stream);
/* False: no memory. */
bool stream_add_message(struct stream *stream, const void *bytes, size_t length);
bool stream_add_chunk(struct stream *stream, const void *bytes, size_t length,
                      const uint8_t digest[DIGEST_LENGTH], uint64_t mark);
/* From `begin` to before `end`. */
struct frame *stream_at(const struct stream *stream, uint64_t position);
/* The first is not needed any more. */
void stream_drop(struct stream *stream);

#endif
