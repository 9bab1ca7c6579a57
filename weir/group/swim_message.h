/* What members tell each other of who lives, and the checks on what a peer said.
 *
 * Pure functions of bytes.
 *
 *      0 u16 magic          4 u32 from: its rank    20 u32 own: what the sender says of itself
 *      2 u8  version        8 u32 size              24 u32 salt: of the digests
 *      3 u8  kind          12 u32 subject           28 u16 news
 *                          16 u32 held: how the     30 u16 digests
 *                                 sender holds it   32 u16 block, 34 u16 entries of it
 *     36 news: u32 rank, u32 standing; digests: u16 each; entries: u32 standings
 *
 * PING and its answer ACK have the subject that is pinged; ASK asks to ping the subject for the
 * sender, and is answered by ACK, or NACK if the subject did not answer.
 *
 * A standing is an incarnation and a state in one number, such that of two standings of a member
 * the newer holds: its incarnation is greater (modulo 2^30), or it is the same and the state is. Of
 * any two that differ exactly one is newer, also where they are half of all numbers apart.
 * Suspicions are nobody else's business: what is suspect goes over the wire as alive. */
#ifndef WEIR_GROUP_SWIM_MESSAGE_H
#define WEIR_GROUP_SWIM_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SWIM_NEWS_MAX      48u
#define SWIM_BLOCK         256u /* ranks of which a digest is taken together */
#define SWIM_HEADER_LENGTH 36u
#define SWIM_SIZE_MAX      65536u
#define SWIM_MESSAGE_MAX                                                                           \
    (SWIM_HEADER_LENGTH + 8 * SWIM_NEWS_MAX + 2 * (SWIM_SIZE_MAX / SWIM_BLOCK) + 4 * SWIM_BLOCK)
#define SWIM_NOBODY UINT32_MAX /* from: of a client */

enum swim_state {
    SWIM_ALIVE,
    SWIM_SUSPECT,
    SWIM_DEAD,
    SWIM_LEFT,
};

static inline uint32_t swim_standing(uint32_t incarnation, enum swim_state state)
{
    return incarnation << 2 | (uint32_t)state;
}

static inline enum swim_state swim_state_of(uint32_t standing)
{
    return (enum swim_state)(standing & 3);
}

static inline uint32_t swim_incarnation_of(uint32_t standing)
{
    return standing >> 2;
}

/* What others are told of it. */
static inline uint32_t swim_told(uint32_t standing)
{
    return swim_state_of(standing) == SWIM_SUSPECT ? standing - SWIM_SUSPECT : standing;
}

static inline bool swim_is_newer(uint32_t standing, uint32_t than)
{
    uint32_t ahead = standing - than;
    return ahead == UINT32_C(1) << 31 ? standing > than : (int32_t)ahead > 0;
}

enum swim_kind {
    SWIM_PING = 1,
    SWIM_ASK,
    SWIM_ACK,
    SWIM_NACK,
    SWIM_KIND_END,
};

struct swim_item {
    uint32_t rank, standing;
};

struct swim_message {
    enum swim_kind kind;
    uint32_t from, size, subject, held, own, salt;
    unsigned news_count, digest_count, block, entry_count;
    /* Packed: swim_message_news and so on. */
    const uint8_t *news, *digests, *entries;
};

static inline uint32_t swim_blocks(uint32_t size)
{
    return (size + SWIM_BLOCK - 1) / SWIM_BLOCK;
}

/* All but news, digests and entries, which follow. */
void swim_header_pack(const struct swim_message *message, uint8_t ret_bytes[SWIM_HEADER_LENGTH]);
/* NULL, or what is wrong with it in a group of that size. */
const char *swim_message_parse(const uint8_t *bytes, size_t length, uint32_t size,
                               struct swim_message *ret_message);
struct swim_item swim_message_news(const struct swim_message *message, unsigned index);
uint16_t swim_message_digest(const struct swim_message *message, unsigned index);
uint32_t swim_message_entry(const struct swim_message *message, unsigned index);

#endif
