#include <string.h>

#include "tools/transfer/ends/sender_private.h"

bool sender_receive_proven(struct sender *sender, const struct message *message,
                           const char **ret_reason)
{
    struct claims *claims = &sender->file.claims;
    uint32_t id = message->proven.id;
    bool current = sender->state == SENDER_FILE && id == sender->last_id;
    if (id > sender->last_id) {
        *ret_reason = "pieces of a file that was not sent";
        return false;
    }
    if (!current) { /* it was given up meanwhile */
        return true;
    }
    if (!claims->awaited) {
        *ret_reason = "pieces of a file that nobody asked about";
        return false;
    }
    if (message->type == MESSAGE_PROVEN_ALL) {
        claims->awaited = false;
        return true;
    }
    const struct piece piece = {.offset = message->proven.offset, .length = message->proven.length};
    if (claims->count == CLAIMS_MAX || piece.offset < claims->end ||
        piece.length > pieces_length(sender->file.source.size) ||
        piece.offset + piece.length > sender->file.source.size) {
        *ret_reason = "more pieces than there can be, or not in order";
        return false;
    }
    struct piece *place = &claims->list[(claims->first + claims->count++) % CLAIMS_MAX];
    *place = piece;
    memcpy(place->digest, message->proven.digest, DIGEST_LENGTH);
    claims->end = piece.offset + piece.length;
    return true;
}

static void drop(struct claims *claims)
{
    claims->first = (claims->first + 1) % CLAIMS_MAX;
    claims->count--;
    claims->read = 0;
}

/* Reads a part of our file's piece. CLAIMED: all of it has the digest, and the position is behind
 * it then. */
static enum claimed go_over(struct sender *sender, const struct piece *piece,
                            enum problem_code *ret_code, const char **ret_text)
{
    struct source *source = &sender->file.source;
    uint64_t *done = &sender->file.claims.read;
    uint8_t digest[DIGEST_LENGTH];
    uint64_t left = piece->length - *done;
    uint64_t stop = left < GONE_OVER_AT_ONCE ? piece->length : *done + GONE_OVER_AT_ONCE;
    if (*done == 0) {
        digest_start(sender->digest);
    }
    source->position = piece->offset + *done;
    while (*done < stop) {
        left = stop - *done;
        size_t length = left < EAGER_LENGTH_MAX ? (size_t)left : EAGER_LENGTH_MAX;
        *ret_code = source_read(source, sender->eager, length, length, ret_text);
        if (*ret_code != PROBLEM_NONE) {
            return CLAIMED_UNREAD;
        }
        digest_data(sender->digest, sender->eager, length);
        sender->gone_over += length;
        *done += length;
    }
    source->position = piece->offset;
    if (*done < piece->length) {
        return CLAIMED_SO_FAR;
    }
    digest_result(sender->digest, digest);
    if (memcmp(digest, piece->digest, DIGEST_LENGTH) != 0) {
        return CLAIMED_NOT;
    }
    source->position += piece->length;
    return CLAIMED;
}

enum claimed sender_claimed(struct sender *sender, uint64_t *end, enum problem_code *ret_code,
                            const char **ret_text)
{
    struct claims *claims = &sender->file.claims;
    const struct source *source = &sender->file.source;
    struct message message = {.type = MESSAGE_KEEP};
    for (; claims->count > 0; drop(claims)) {
        const struct piece *piece = &claims->list[claims->first];
        if (piece->offset > source->position) {
            *end = piece->offset < *end ? piece->offset : *end;
            return CLAIMED_NOT;
        }
        bool whole =
            piece->offset == source->position && piece->length <= source->data_end - piece->offset;
        enum claimed claimed = whole ? go_over(sender, piece, ret_code, ret_text) : CLAIMED_NOT;
        if (claimed == CLAIMED) {
            message.keep.length = piece->length;
            pieces_keep(&sender->pieces, piece);
            sender->options.tally->bytes += piece->length;
            sender->options.tally->kept += piece->length;
            drop(claims);
            sender_send_plain(sender, &message);
        }
        if (claimed != CLAIMED_NOT) {
            return claimed;
        }
    }
    return claims->awaited ? CLAIMED_LATER : CLAIMED_NOT;
}
