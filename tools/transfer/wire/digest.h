/* Digests of contents: XXH3, 128 bits, over the data in order, as xxh128sum prints it. The one of a
 * large file is over its pieces (pieces.h): each counts as a record of its place, length and
 * digest, and a hole as one of its place and length, so that 100 GiB of nothing cost nothing. */
#ifndef TOOLS_TRANSFER_DIGEST_H
#define TOOLS_TRANSFER_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#include "tools/transfer/wire/protocol.h"

struct digest;

struct digest *digest_create(void); /* NULL: no memory */
void digest_destroy(struct digest *digest);
void digest_start(struct digest *digest);
void digest_data(struct digest *digest, const void *bytes, size_t length);
void digest_hole(struct digest *digest, uint64_t offset, uint64_t length);
void digest_piece(struct digest *digest, uint64_t offset, uint64_t length,
                  const uint8_t piece[DIGEST_LENGTH]);
void digest_result(const struct digest *digest, uint8_t ret_digest[DIGEST_LENGTH]);

void digest_of(const void *bytes, size_t length, uint8_t ret_digest[DIGEST_LENGTH]);

#endif
