/* Sending on a stream: bytes go by RDMA WRITE to where the peer wants them next, each write with a
 * message that says how many. Short ones travel inline, others through the send buffer, so that
 * the application's memory is free when the call returns.
 *
 * A long send begins with a small write and grows from there: the peer copies while the wire is
 * busy with the next. */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "rnic/rdmacm/rsocket.h"

uint32_t stream_room(const struct stream *stream)
{
    return stream->base.sizes.send_buffer -
           (atomic_load(&stream->bytes_posted) - atomic_load(&stream->bytes_done));
}

static void take(struct stream_cursor *cursor, uint8_t *to, uint32_t length)
{
    while (length > 0) {
        size_t left = cursor->piece->iov_len - cursor->offset;
        size_t part = left < length ? left : length;
        if (part > 0) {
            memcpy(to, (const uint8_t *)cursor->piece->iov_base + cursor->offset, part);
        }
        to += part;
        length -= (uint32_t)part;
        cursor->offset += part;
        if (cursor->offset == cursor->piece->iov_len && length > 0) {
            cursor->piece++;
            cursor->offset = 0;
        }
    }
}

/* Copies into the ring; returns the number of pieces. */
static int stage(struct stream *stream, struct stream_cursor *cursor, uint32_t length,
                 struct ibv_sge *ret_pieces)
{
    uint32_t size = stream->base.sizes.send_buffer;
    uint32_t first = size - stream->send_place < length ? size - stream->send_place : length;
    uint32_t key = stream->send_region->lkey;
    uint8_t *place = stream->send_buffer + stream->send_place;
    take(cursor, place, first);
    ret_pieces[0] = (struct ibv_sge){(uintptr_t)place, first, key};
    take(cursor, stream->send_buffer, length - first);
    ret_pieces[1] = (struct ibv_sge){(uintptr_t)stream->send_buffer, length - first, key};
    stream->send_place = (stream->send_place + length) % size;
    return first == length ? 1 : 2;
}

int stream_write(struct stream *stream, const struct stream_write *write,
                 struct stream_cursor *cursor)
{
    uint8_t short_bytes[LOW_WATER];
    struct ibv_sge pieces[2] = {{.addr = (uintptr_t)short_bytes, .length = write->length}};
    struct ibv_send_wr *bad;
    struct ibv_send_wr work = {
        .opcode = write->has_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
        .imm_data = write->has_immediate ? htobe32(write->immediate) : 0,
        .sg_list = pieces,
        .num_sge = 1,
        .wr = {.rdma = {.remote_addr = write->address, .rkey = write->key}},
    };
    uint32_t staged = 0;
    if (write->length <= stream->base.sizes.inline_data && write->length <= sizeof short_bytes) {
        take(cursor, short_bytes, write->length);
        work.send_flags = IBV_SEND_INLINE;
    } else {
        staged = write->length;
        work.num_sge = stage(stream, cursor, staged, pieces);
    }
    work.wr_id = stream_work_id(STREAM_SEND, staged);
    atomic_fetch_add(&stream->bytes_posted, staged);
    atomic_fetch_add(&stream->sends_posted, 1);
    if (write->has_immediate) {
        atomic_fetch_add(&stream->sent, 1);
    }
    int error = ibv_post_send(stream->id->qp, &work, &bad);
    if (error != 0) {
        stream_break(stream, STREAM_BROKEN, error);
    }
    return cma_error(error);
}

int stream_wait_for_room(struct stream *stream, int flags)
{
    if (!stream_can_send(stream) &&
        stream_wait(stream, rsocket_blocks(&stream->base, flags), stream_can_send_or_never) != 0) {
        return -1;
    }
    return atomic_load(&stream->is_writable) ? 0 : cma_error(ECONNRESET);
}

static uint32_t smaller(uint32_t a, uint64_t b)
{
    return b < a ? (uint32_t)b : a;
}

/* To the current target; it is used up before the message leaves, for the peer may fill it again
 * as soon as it has that. Returns the number of bytes, 0 and errno. */
__attribute__((no_sanitize("thread"))) /* as has_target in rsocket_queue.c */
static uint32_t
send_some(struct stream *stream, struct stream_cursor *cursor, uint32_t most)
{
    volatile struct rsocket_place *target = &stream->targets[stream->target];
    const uint32_t target_length = target->length;
    struct stream_write write = {
        .address = target->address,
        .key = target->key,
        .length = smaller(smaller(most, stream_room(stream)), target_length),
        .has_immediate = true,
    };
    write.immediate = rsocket_message_encode(RSOCKET_DATA, write.length);
    target->address = write.address + write.length;
    target->length = target_length - write.length;
    if (target_length == write.length) {
        stream->target = (stream->target + 1) % RSOCKET_TARGETS;
    }
    return stream_write(stream, &write, cursor) == 0 ? write.length : 0;
}

ssize_t stream_send(struct stream *stream, const struct iovec *pieces, int count, int flags)
{
    struct stream_cursor cursor = {.piece = pieces};
    size_t length = 0;
    size_t sent = 0;
    uint32_t transfer = FIRST_TRANSFER;
    for (int i = 0; i < count; i++) {
        length += pieces[i].iov_len;
    }
    RSOCKET_HOLDS(held, &stream->send_lock);
    int result = stream_send_mappings(stream, flags);
    while (result == 0 && sent < length) {
        result = stream_wait_for_room(stream, flags);
        if (result != 0) {
            break;
        }
        uint32_t part = send_some(stream, &cursor, smaller(transfer, length - sent));
        result = part == 0 ? -1 : 0;
        sent += part;
        transfer = transfer < TRANSFER_MAX ? transfer * 2 : transfer;
    }
    return result != 0 && sent == 0 ? -1 : (ssize_t)sent;
}
