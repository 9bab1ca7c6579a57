#include <string.h>

#include "tools/transfer/receiver_private.h"

/* Chunks are not granted again while the peer leaves more than so many answers lying. */
#define GRANT_BACKLOG_MAX 64

static bool data_is_allowed(const struct receiver *receiver, size_t length, const char **ret_reason)
{
    const struct current_file *file = &receiver->file;
    if (receiver->state != RECEIVER_FILE) {
        *ret_reason = "data outside a file";
    } else if (length == 0 || length > RECEIVER_CHUNK_LENGTH ||
               length > file->size - file->position) {
        *ret_reason = "data beyond the end of its file";
    } else {
        return true;
    }
    return false;
}

static bool notice_is_allowed(const struct receiver *receiver, uint32_t notice, size_t length,
                              const char **ret_reason)
{
    uint16_t chunk = notice_chunk(notice);
    if (chunk >= RECEIVER_CHUNK_COUNT) {
        *ret_reason = "data in a chunk that does not exist";
    } else if (!receiver->is_granted[chunk]) {
        *ret_reason = "data in a chunk that was not granted";
    } else if (notice_sequence(notice) != receiver->sequence) {
        *ret_reason = "data out of order";
    } else {
        return data_is_allowed(receiver, length, ret_reason);
    }
    return false;
}

void receiver_grant(struct receiver *receiver)
{
    const struct link *link = receiver->options.link;
    struct message message = {.type = MESSAGE_GRANT};
    for (uint16_t chunk = 0; chunk < RECEIVER_CHUNK_COUNT; chunk++) {
        if (!receiver->is_granted[chunk] && link->backlog_count < GRANT_BACKLOG_MAX) {
            receiver->is_granted[chunk] = true;
            message.grant.chunk = chunk;
            receiver_send(receiver, &message);
        }
    }
}

/* The peer can write to a chunk at any time: each byte is fetched once, and what is written to the
 * file is what the digest was taken of. */
static int take_data(struct receiver *receiver, const uint8_t *bytes, size_t length)
{
    struct current_file *file = &receiver->file;
    int error = receiver_overwrite(receiver, length);
    for (size_t done = 0; done < length && error == 0;) {
        size_t count = length - done < PRIVATE_LENGTH ? length - done : PRIVATE_LENGTH;
        memcpy(receiver->private, bytes + done, count);
        error = place_write(&file->place, receiver->private, count, file->position + done);
        if (error == 0) { /* a piece is noted when it has been written */
            pieces_data(&receiver->pieces, receiver->private, count);
        }
        done += count;
    }
    return error;
}

static void place_data(struct receiver *receiver, const uint8_t *bytes, size_t length)
{
    struct current_file *file = &receiver->file;
    if (!file->discarded) {
        int error = take_data(receiver, bytes, length);
        if (error != 0) {
            receiver_discard_file(receiver, error);
        } else {
            receiver->options.tally->bytes += length;
        }
    }
    file->position += length;
}

bool receiver_notice(struct receiver *receiver, uint32_t notice, size_t length,
                     const char **ret_reason)
{
    if (!notice_is_allowed(receiver, notice, length, ret_reason)) {
        return false;
    }
    uint16_t chunk = notice_chunk(notice);
    receiver->sequence++;
    place_data(receiver, receiver->memory + (size_t)chunk * RECEIVER_CHUNK_LENGTH, length);
    receiver->is_granted[chunk] = false;
    receiver_grant(receiver);
    return true;
}

bool receiver_data(struct receiver *receiver, const void *bytes, size_t length,
                   const char **ret_reason)
{
    if (!data_is_allowed(receiver, length, ret_reason)) {
        return false;
    }
    place_data(receiver, bytes, length);
    return true;
}
