/* Receiving on a stream: the bytes are already here, in the receive buffer, in the order of the
 * messages; they are copied out and their room becomes the peer's again. */
#include <errno.h>
#include <string.h>

#include "rnic/rdmacm/rsocket.h"

/* Where a reader stands. */
struct reader {
    uint32_t head;   /* the message */
    uint32_t length; /* what is left of it */
    uint32_t place;  /* in the buffer */
};

static void copy(const struct stream *stream, struct reader *reader, uint8_t *to, uint32_t length)
{
    uint32_t size = stream->base.sizes.receive_buffer;
    uint32_t first = size - reader->place < length ? size - reader->place : length;
    memcpy(to, stream->receive_buffer + reader->place, first);
    memcpy(to + first, stream->receive_buffer, length - first);
    reader->place = (reader->place + length) % size;
}

/* Takes up to `length` bytes of what is there; `keep` leaves them for the next. */
static size_t take(struct stream *stream, uint8_t *to, size_t length, bool keep)
{
    uint32_t capacity = stream->base.sizes.receive_queue + 1u;
    struct reader reader = {atomic_load(&stream->lengths_head), 0, stream->read_place};
    size_t taken = 0;
    while (taken < length && reader.head != atomic_load(&stream->lengths_tail)) {
        uint32_t left = stream->lengths[reader.head];
        uint32_t part = length - taken < left ? (uint32_t)(length - taken) : left;
        copy(stream, &reader, to + taken, part);
        taken += part;
        if (!keep) {
            stream->lengths[reader.head] -= part;
            atomic_fetch_add(&stream->bytes_read, part);
        }
        if (part == left) {
            reader.head = (reader.head + 1) % capacity;
            if (!keep) {
                atomic_store(&stream->lengths_head, reader.head);
                atomic_fetch_add(&stream->messages_read, 1);
            }
        }
    }
    if (!keep) {
        stream->read_place = reader.place;
    }
    return taken;
}

/* Without data: the end, or that the connection broke. */
static int at_end(struct stream *stream)
{
    return atomic_load(&stream->state) == STREAM_BROKEN ? cma_error(ECONNRESET) : 0;
}

/* Fills one piece. -1 and errno only where nothing was taken. */
static ssize_t receive_piece(struct stream *stream, const struct iovec *piece, bool blocks,
                             int flags)
{
    size_t taken = 0;
    int result = 0;
    do {
        if (!stream_has_data(stream)) {
            result = stream_wait(stream, blocks, stream_has_data_or_never);
            if (result != 0) {
                break;
            }
            if (!stream_has_data(stream)) {
                result = at_end(stream);
                break;
            }
        }
        bool keep = (flags & MSG_PEEK) != 0;
        taken += take(stream, (uint8_t *)piece->iov_base + taken, piece->iov_len - taken, keep);
        if (keep) {
            break;
        }
    } while (taken < piece->iov_len && (flags & MSG_WAITALL) != 0);
    return result != 0 && taken == 0 ? -1 : (ssize_t)taken;
}

ssize_t stream_receive(struct stream *stream, const struct iovec *pieces, int count, int flags)
{
    ssize_t taken = 0;
    bool blocks = rsocket_blocks(&stream->base, flags);
    RSOCKET_HOLDS(held, &stream->receive_lock);
    for (int i = 0; i < count; i++) {
        if (pieces[i].iov_len == 0) {
            continue;
        }
        /* After the first bytes only what is there, unless all are wanted. */
        bool waits = blocks && (taken == 0 || (flags & MSG_WAITALL) != 0);
        ssize_t part = receive_piece(stream, &pieces[i], waits, flags);
        if (part < 0) {
            taken = taken == 0 ? -1 : taken;
            break;
        }
        taken += part;
        if ((size_t)part < pieces[i].iov_len || (flags & MSG_PEEK) != 0) {
            break;
        }
    }
    return taken;
}
