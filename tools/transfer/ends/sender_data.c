#include "tools/transfer/ends/sender_private.h"

bool sender_receive_region(struct sender *sender, const struct message *message,
                           const char **ret_reason)
{
    if (sender->memory != NULL) {
        *ret_reason = "a second region";
        return false;
    }
    sender->remote = message->region.remote;
    sender->remote_chunk_length = message->region.chunk_length;
    sender->remote_chunk_count = message->region.chunk_count;
    sender->chunk_length = message->region.chunk_length < SENDER_CHUNK_LENGTH
                               ? message->region.chunk_length
                               : SENDER_CHUNK_LENGTH;
    static _Thread_local struct weir_error error;
    struct weir_remote unused;
    uint16_t count = sender->remote_chunk_count < SENDER_CHUNK_COUNT ? sender->remote_chunk_count
                                                                     : SENDER_CHUNK_COUNT;
    size_t length = (size_t)sender->chunk_length * count;
    sender->memory =
        sender->link->operations->allocate(sender->link, length, WEIR_LOCAL, &unused, &error);
    if (sender->memory == NULL) {
        sender->lacks_memory = true;
        *ret_reason = error.message;
        return false;
    }
    for (uint16_t i = 0; i < count; i++) {
        sender->local.numbers[sender->local.count++] = i;
    }
    for (uint16_t i = 0; i < sender->remote_chunk_count; i++) {
        sender->granted.numbers[sender->granted.count++] = i;
        sender->is_granted[i] = true;
    }
    return true;
}

bool sender_receive_grant(struct sender *sender, uint16_t chunk, const char **ret_reason)
{
    if (chunk >= sender->remote_chunk_count || sender->is_granted[chunk]) {
        *ret_reason = "a grant of a chunk that was not in use";
        return false;
    }
    sender->is_granted[chunk] = true;
    sender->granted.numbers[sender->granted.count++] = chunk;
    return true;
}

bool sender_has_room(const struct sender *sender)
{
    return sender->local.count > 0;
}

/* The oldest that has been read. */
static struct chunk_ahead take_chunk(struct read_ahead *ahead)
{
    struct chunk_ahead chunk = ahead->chunks[ahead->first];
    ahead->first = (ahead->first + 1) % SENDER_CHUNK_COUNT;
    ahead->count--;
    ahead->bytes -= chunk.length;
    return chunk;
}

enum problem_code sender_read_chunk(struct sender *sender, uint64_t end, const char **ret_text)
{
    struct source *source = &sender->file.source;
    struct read_ahead *ahead = &sender->ahead;
    uint16_t number = sender->local.numbers[sender->local.count - 1];
    uint8_t *bytes = sender->memory + (size_t)number * sender->chunk_length;
    uint64_t left = end - source->position;
    size_t length = left < sender->chunk_length ? (size_t)left : sender->chunk_length;
    length = pace_piece(&sender->pace, length);
    enum problem_code code = source_read(source, bytes, length, sender->chunk_length, ret_text);
    if (code != PROBLEM_NONE) {
        return code;
    }
    pieces_data(&sender->pieces, bytes, length);
    sender->local.count--;
    ahead->chunks[(ahead->first + ahead->count) % SENDER_CHUNK_COUNT] =
        (struct chunk_ahead){.number = number, .length = length};
    ahead->count++;
    ahead->bytes += length;
    return PROBLEM_NONE;
}

bool sender_put_chunk(struct sender *sender)
{
    if (sender->ahead.count == 0 || sender->granted.count == 0) {
        return false;
    }
    struct chunk_ahead local = take_chunk(&sender->ahead);
    uint16_t remote = sender->granted.numbers[--sender->granted.count];
    const struct link_put put = {
        .offset = (size_t)local.number * sender->chunk_length,
        .length = local.length,
        .remote = sender->remote,
        .remote_offset = (uint64_t)remote * sender->remote_chunk_length,
        .notice = notice_pack(remote, sender->sequence++),
    };
    sender->is_granted[remote] = false;
    sender->link->operations->put(sender->link, &put);
    sender->options.tally->bytes += local.length;
    pace_spend(&sender->pace, local.length);
    return true;
}

void sender_put_done(struct sender *sender, size_t offset)
{
    sender->local.numbers[sender->local.count++] = (uint16_t)(offset / sender->chunk_length);
}

void sender_drop_chunks(struct sender *sender)
{
    while (sender->ahead.count > 0) {
        sender->local.numbers[sender->local.count++] = take_chunk(&sender->ahead).number;
    }
}
