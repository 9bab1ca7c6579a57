/* A journal of an interrupted copy that somebody else has written: as it comes, and with the
 * checksums, numbers and head that its writer would have given it. What is claimed lies in the
 * file, in order, and no two claims speak of the same byte.
 *
 * Input: eight octets of the file's size in big-endian, then the journal. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/transfer/disk/journal.h"

static void must(bool good)
{
    if (!good) {
        abort();
    }
}

static uint64_t number_at(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static void check(const uint8_t *bytes, size_t length, const struct journal_head *head)
{
    struct journal_claims claims;
    uint64_t end = 0;
    enum journal_state state = journal_parse(bytes, length, head, &claims);
    must(state == JOURNAL_SOUND || claims.count == 0);
    for (unsigned i = 0; i < claims.count; i++) {
        const struct journal_claim *claim = &claims.list[i];
        must(!claim->gone && claim->number < claims.records);
        must(claim->piece.offset >= end && claim->piece.length > 0);
        must(claim->piece.length <= pieces_length(head->size));
        end = claim->piece.offset + claim->piece.length;
        must(end > claim->piece.offset && end <= head->size);
    }
    must(claims.count + claims.damaged <= claims.records);
    journal_claims_clear(&claims);
}

/* The same journal as its writer would have finished it. */
static void finish(uint8_t *bytes, size_t length, const struct journal_head *head)
{
    journal_pack_head(head, bytes);
    uint8_t *at = bytes + JOURNAL_HEAD_LENGTH;
    size_t records = (length - JOURNAL_HEAD_LENGTH) / JOURNAL_RECORD_LENGTH;
    for (uint32_t i = 0; i < records; i++, at += JOURNAL_RECORD_LENGTH) {
        struct piece piece = {.offset = number_at(at + 16), .length = number_at(at + 24)};
        bool struck = (at[15] & 1) == 0;
        memcpy(piece.digest, at + 32, DIGEST_LENGTH);
        journal_pack_record(head->random, i, struck, &piece, at);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 8) {
        return 0;
    }
    const struct journal_head head = {.size = number_at(data) >> 1, .inode = 42, .random = 7};
    check(data + 8, size - 8, &head);
    if (size < 8 + JOURNAL_HEAD_LENGTH) {
        return 0;
    }
    uint8_t *bytes = malloc(size - 8);
    must(bytes != NULL);
    memcpy(bytes, data + 8, size - 8);
    finish(bytes, size - 8, &head);
    check(bytes, size - 8, &head);
    free(bytes);
    return 0;
}
