#include <string.h>

#include "tools/transfer/ends/receiver_private.h"

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
        if (!receiver->is_granted[chunk] && !receiver->is_taken[chunk] &&
            link->backlog_count < GRANT_BACKLOG_MAX) {
            receiver->is_granted[chunk] = true;
            message.grant.chunk = chunk;
            receiver_send(receiver, &message);
        }
    }
}

static int write_bytes(struct receiver *receiver, const uint8_t *bytes, size_t length,
                       uint64_t position)
{
    struct current_file *file = &receiver->file;
    int error = place_write(&file->place, bytes, length, position);
    if (file->waits && receiver_let_go(receiver, error, file->place.name)) {
        error = place_write(&file->place, bytes, length, position);
    }
    return error;
}

/* The rule: where another can write to the bytes than the one whose word their digest is, they are
 * fetched once, proven, and then used. Nobody can, here, so they are written from where they lie.
 * Those of a link that carries data are out of everybody's reach (relay.c). To a chunk that was
 * granted writes the peer that says the file's digest, and where chunks are sealed, that one alone
 * can have others opened over it: what it changes meanwhile is its own to choose. The digest is
 * taken of what stands there when it has been written, so an accident before that is seen.
 * What the journal and --verify note is therefore what such a peer may have made of it; neither
 * is believed before the file has been read (receiver_read_piece). */
static int write_data(struct receiver *receiver, const struct writer_piece *piece)
{
    int error = 0;
    for (size_t done = 0; done < piece->length && error == 0;) {
        size_t left = piece->length - done;
        size_t count = left < CACHED_LENGTH ? left : CACHED_LENGTH;
        const uint8_t *bytes = piece->bytes + done;
        error = write_bytes(receiver, bytes, count, piece->position + done);
        if (error == 0) { /* a piece is noted when it has been written */
            pieces_data(&receiver->pieces, bytes, count);
            error = receiver->resuming.journal.lost;
        }
        done += count;
    }
    return error;
}

static int write_piece(void *user, const struct writer_piece *piece)
{
    struct receiver *receiver = user;
    if (piece->bytes != NULL) {
        return write_data(receiver, piece);
    }
    int error = place_hole(&receiver->file.place, piece->position, piece->length);
    pieces_hole(&receiver->pieces, piece->length);
    return error;
}

static void piece_done(void *user)
{
    struct link *link = ((struct receiver *)user)->options.link;
    if (link->operations->wake != NULL) {
        link->operations->wake(link);
    }
}

/* A thread pays where unsealing keeps the other one busy. Else that one does nothing but write, for
 * the engine has a thread of its own. What a link carries does not last. */
static bool writes_behind(const struct receiver *receiver)
{
    const struct link *link = receiver->options.link;
    return receiver->file.size >= BEHIND_LENGTH_MIN && receiver->resuming.claims.count == 0 &&
           link->is_private && !link->carries_data;
}

void receiver_write_behind(struct receiver *receiver)
{
    if (!writes_behind(receiver)) {
        return;
    }
    const struct writer_options options = {
        .work = write_piece, .done = piece_done, .user = receiver};
    if (receiver->writer == NULL) {
        receiver->writer = writer_create(&options);
    }
    receiver->file.behind = receiver->writer != NULL;
}

/* 0 or an errno, which for the writer comes later. */
static int put(struct receiver *receiver, const struct writer_piece *piece)
{
    if (!receiver->file.behind) {
        int error = receiver_overwrite(receiver, piece->length);
        return error != 0 ? error : write_piece(receiver, piece);
    }
    while (!writer_give(receiver->writer, piece)) {
        receiver_settle(receiver);
        if (receiver->file.discarded) {
            return 0;
        }
    }
    if (piece->bytes != NULL) {
        receiver->is_taken[piece->chunk] = true;
    }
    return 0;
}

void receiver_take_part(struct receiver *receiver, const struct writer_piece *piece)
{
    struct current_file *file = &receiver->file;
    int error = file->discarded ? 0 : put(receiver, piece);
    if (error != 0) {
        receiver_discard_file(receiver, error);
    }
    if (!file->discarded) {
        receiver->options.tally->bytes += piece->length;
    }
    file->position += piece->length;
}

void receiver_take_back(struct receiver *receiver)
{
    struct writer_piece piece;
    int error = 0;
    if (receiver->options.link->operations->wake == NULL) { /* nobody would say when there is one */
        writer_wait(receiver->writer);
    }
    while (receiver->writer != NULL && writer_take(receiver->writer, &piece)) {
        if (piece.bytes != NULL) {
            receiver->is_taken[piece.chunk] = false;
        }
        if (piece.error != 0) { /* all that was given behind it comes back now */
            error = piece.error;
            writer_wait(receiver->writer);
        }
    }
    if (error != 0 && !receiver->file.discarded) {
        receiver_discard_file(receiver, error);
    }
}

bool receiver_is_writing(const struct receiver *receiver)
{
    return writer_is_at_work(receiver->writer);
}

void receiver_settle(struct receiver *receiver)
{
    writer_wait(receiver->writer);
    receiver_take_back(receiver);
}

bool receiver_notice(struct receiver *receiver, uint32_t notice, size_t length,
                     const char **ret_reason)
{
    if (!notice_is_allowed(receiver, notice, length, ret_reason)) {
        return false;
    }
    uint16_t chunk = notice_chunk(notice);
    const struct writer_piece piece = {.bytes =
                                           receiver->memory + (size_t)chunk * RECEIVER_CHUNK_LENGTH,
                                       .length = length,
                                       .position = receiver->file.position,
                                       .chunk = chunk};
    receiver->sequence++;
    receiver->is_granted[chunk] = false;
    receiver_take_part(receiver, &piece);
    receiver_take_back(receiver);
    receiver_grant(receiver);
    return true;
}

bool receiver_data(struct receiver *receiver, const void *bytes, size_t length,
                   const char **ret_reason)
{
    if (!data_is_allowed(receiver, length, ret_reason)) {
        return false;
    }
    const struct writer_piece piece = {
        .bytes = bytes, .length = length, .position = receiver->file.position};
    receiver_take_part(receiver, &piece);
    return true;
}
