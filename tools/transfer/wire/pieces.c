#include "tools/transfer/wire/pieces.h"

#include <string.h>

uint64_t pieces_length(uint64_t size)
{
    uint64_t length = PIECE_LENGTH_MIN;
    while (size / length >= PIECES_MAX) {
        length *= 2;
    }
    return length;
}

bool pieces_init(struct pieces *pieces)
{
    *pieces = (struct pieces){.piece = digest_create(), .file = digest_create()};
    if (pieces->piece == NULL || pieces->file == NULL) {
        pieces_fini(pieces);
        return false;
    }
    return true;
}

void pieces_fini(struct pieces *pieces)
{
    digest_destroy(pieces->piece);
    digest_destroy(pieces->file);
    pieces->piece = pieces->file = NULL;
}

void pieces_start(struct pieces *pieces, uint64_t size)
{
    digest_start(pieces->piece);
    digest_start(pieces->file);
    pieces->length_max = pieces_length(size);
    pieces->begin = pieces->position = 0;
}

static void end_piece(struct pieces *pieces)
{
    struct piece piece = {.offset = pieces->begin, .length = pieces->position - pieces->begin};
    if (piece.length == 0) {
        return;
    }
    digest_result(pieces->piece, piece.digest);
    digest_start(pieces->piece);
    digest_piece(pieces->file, piece.offset, piece.length, piece.digest);
    pieces->begin = pieces->position;
    if (pieces->ended != NULL) {
        pieces->ended(pieces->user, &piece);
    }
}

void pieces_data(struct pieces *pieces, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    while (length > 0) {
        uint64_t room = pieces->length_max - pieces->position % pieces->length_max;
        size_t part = length < room ? length : (size_t)room;
        digest_data(pieces->piece, at, part);
        pieces->position += part;
        at += part;
        length -= part;
        if (part == room) {
            end_piece(pieces);
        }
    }
}

void pieces_hole(struct pieces *pieces, uint64_t length)
{
    end_piece(pieces);
    digest_hole(pieces->file, pieces->position, length);
    pieces->position += length;
    pieces->begin = pieces->position;
}

void pieces_keep(struct pieces *pieces, const struct piece *piece)
{
    end_piece(pieces);
    digest_piece(pieces->file, piece->offset, piece->length, piece->digest);
    pieces->position += piece->length;
    pieces->begin = pieces->position;
}

void pieces_result(struct pieces *pieces, uint8_t ret_digest[DIGEST_LENGTH])
{
    end_piece(pieces);
    digest_result(pieces->file, ret_digest);
}
