/* A large file's digest, taken piece by piece: each piece has one of its own, and the file's is
 * that of these in order. So what was proven of a file counts without being sent again, and the
 * bytes are gone through once.
 *
 * A piece ends where the offset is a multiple of pieces_length, where a hole begins, and at the
 * file's end: both ends of a transfer cut alike, however the bytes come. */
#ifndef TOOLS_TRANSFER_PIECES_H
#define TOOLS_TRANSFER_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/transfer/wire/digest.h"

#define PIECE_LENGTH_MIN (4u << 20)
#define PIECES_MAX       (1u << 18) /* of a file without holes */

struct piece {
    uint64_t offset, length;
    uint8_t digest[DIGEST_LENGTH];
};

struct pieces {
    struct digest *piece, *file;
    uint64_t length_max;
    uint64_t begin, position; /* of the piece under way */
    /* NULL, or told of each piece of data that is over. */
    void (*ended)(void *user, const struct piece *piece);
    void *user;
};

/* Of a file of this size: a power of two. */
uint64_t pieces_length(uint64_t size);

/* False: no memory. */
bool pieces_init(struct pieces *pieces);
void pieces_fini(struct pieces *pieces);
void pieces_start(struct pieces *pieces, uint64_t size);
void pieces_data(struct pieces *pieces, const void *bytes, size_t length);
void pieces_hole(struct pieces *pieces, uint64_t length);
/* The piece that begins here is known. */
void pieces_keep(struct pieces *pieces, const struct piece *piece);
/* The file's. */
void pieces_result(struct pieces *pieces, uint8_t ret_digest[DIGEST_LENGTH]);

#endif
