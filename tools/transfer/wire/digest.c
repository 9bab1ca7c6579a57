#include "tools/transfer/wire/digest.h"

#include <string.h>
#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h> /* the widest registers that this processor has */
#endif

/* struct digest is never defined: it is the library's state, which is aligned by its allocator. */
static XXH3_state_t *state_of(struct digest *digest)
{
    return (XXH3_state_t *)digest;
}

struct digest *digest_create(void)
{
    struct digest *digest = (struct digest *)XXH3_createState();
    if (digest != NULL) {
        digest_start(digest);
    }
    return digest;
}

void digest_destroy(struct digest *digest)
{
    XXH3_freeState(state_of(digest));
}

void digest_start(struct digest *digest)
{
    XXH3_128bits_reset(state_of(digest));
}

void digest_data(struct digest *digest, const void *bytes, size_t length)
{
    XXH3_128bits_update(state_of(digest), bytes, length);
}

static void add_record(struct digest *digest, const char kind[4], uint64_t offset, uint64_t length)
{
    uint8_t record[20];
    memcpy(record, kind, 4);
    for (unsigned i = 0; i < 8; i++) {
        record[4 + i] = (uint8_t)(offset >> (56 - 8 * i));
        record[12 + i] = (uint8_t)(length >> (56 - 8 * i));
    }
    XXH3_128bits_update(state_of(digest), record, sizeof(record));
}

void digest_hole(struct digest *digest, uint64_t offset, uint64_t length)
{
    add_record(digest, "hole", offset, length);
}

void digest_piece(struct digest *digest, uint64_t offset, uint64_t length,
                  const uint8_t piece[DIGEST_LENGTH])
{
    add_record(digest, "data", offset, length);
    digest_data(digest, piece, DIGEST_LENGTH);
}

static void canonical(XXH128_hash_t hash, uint8_t ret_digest[DIGEST_LENGTH])
{
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    memcpy(ret_digest, bytes.digest, DIGEST_LENGTH);
}

void digest_result(const struct digest *digest, uint8_t ret_digest[DIGEST_LENGTH])
{
    canonical(XXH3_128bits_digest((const XXH3_state_t *)(const void *)digest), ret_digest);
}

void digest_of(const void *bytes, size_t length, uint8_t ret_digest[DIGEST_LENGTH])
{
    canonical(XXH3_128bits(bytes, length), ret_digest);
}
