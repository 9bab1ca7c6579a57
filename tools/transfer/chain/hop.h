/* What the members of a fan-out (docs/fanout.md) say to each other beside the transfer: messages
 * and their bytes.
 *
 * On the connection between the source and a receiver, which carries a transfer's greeting and all
 * that a receiver answers: the source says JOIN before its HELLO; the receiver READY, each time it
 * needs somebody to feed it, with a secret for that one alone, and FED when it has come. The source
 * says RENEW when that one does not count any more, come or not; FORWARD to whom is to feed
 * another, LAST to whom is to feed nobody; the receiver LOST when the one it was to feed cannot be
 * reached or is gone.
 *
 * On the connection by which one feeds the next: ATTACH, answered by TAKE, which says from where on
 * and gives memory for chunks; then the frames of the stream in order: a transfer's messages as
 * they are, and before each put CHUNK, with its digest. ACK when frames have been taken, there and
 * by all that are fed from there.
 *
 * Bytes: one octet of type, which is none of a transfer's, then fields in big-endian. */
#ifndef TOOLS_TRANSFER_HOP_H
#define TOOLS_TRANSFER_HOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/transfer/wire/protocol.h"
#include "tools/trust/secret.h"

#define HOP_VERSION        1
#define HOP_ID_LENGTH      16
#define HOP_NAME_LENGTH    (4 + 2 * HOP_ID_LENGTH + 1) /* with its NUL */
#define HOP_ADDRESSES_MAX  8
#define HOP_ADDRESS_LENGTH 280
#define HOP_WHY_LENGTH     512
#define HOP_LENGTH_MAX     (64 + HOP_ADDRESSES_MAX * HOP_ADDRESS_LENGTH)
/* Of the memory that a receiver gives to whom feeds it. What is under way in a chain of any length
 * is bounded by these: everybody holds what the last has not taken. */
#define HOP_CHUNK_LENGTH (512u << 10)
#define HOP_CHUNK_COUNT  32

enum hop_type {
    HOP_JOIN = 0xe0,
    HOP_READY,
    HOP_FED,
    HOP_RENEW,
    HOP_FORWARD,
    HOP_LAST,
    HOP_LOST,
    HOP_ATTACH,
    HOP_TAKE,
    HOP_CHUNK,
    HOP_ACK,
};

/* By what a receiver knows who is to feed it. */
struct hop_token {
    uint8_t id[HOP_ID_LENGTH];
    struct secret secret;
    bool guarded; /* the secret must be proven; else the id is enough */
};

/* Whom to feed. */
struct hop_target {
    struct hop_token token;
    bool encrypt;
    unsigned address_count;
    char addresses[HOP_ADDRESSES_MAX][HOP_ADDRESS_LENGTH]; /* "HOST:PORT", the best first */
};

struct hop_message {
    enum hop_type type;
    union {
        uint16_t version;       /* JOIN */
        struct hop_token ready; /* READY; its id alone in FED, RENEW, LOST and ATTACH */
        struct hop_target forward;
        struct {
            uint64_t position; /* of the first frame that is wanted */
            uint32_t chunk_length;
            uint16_t chunk_count;
            struct weir_remote remote;
        } take;
        struct {
            uint32_t length;
            uint8_t digest[DIGEST_LENGTH];
        } chunk;
        uint64_t acked; /* ACK: all frames before this position */
    };
    char why[HOP_WHY_LENGTH]; /* LOST, and READY: of the one that fed before; "" */
};

/* The bytes begin as none of a transfer's messages does. */
bool hop_is_one(const void *bytes, size_t length);
/* True if they are one whole, well-formed message. */
bool hop_parse(const void *bytes, size_t length, struct hop_message *ret_message);
size_t hop_pack(const struct hop_message *message, uint8_t ret_bytes[HOP_LENGTH_MAX]);
/* What the secret of this id is called. */
void hop_name(const uint8_t id[HOP_ID_LENGTH], char ret_name[HOP_NAME_LENGTH]);

#endif
