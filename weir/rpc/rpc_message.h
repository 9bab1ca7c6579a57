/* What client and server say to each other, and the checks on what a peer said.
 *
 * Pure functions of bytes. Each message is one of a channel's:
 *
 *     0  u8  version, kind: 4 bits each      4  u32 value
 *     1  u8  time left, of requests          8  NAMED: u32 high half of the procedure's number
 *     2  u16 bulks: 4 bits, place: 12           then bulks; then, as in others, bytes
 *
 * The short ones are 8 bytes, for with them a call of 8 bytes, or its reply, is one cache line
 * where it goes through memory.
 *
 * A place is the client's, for a call in flight; it is taken until the one answer has come.
 * WELCOME, the server's first, has in `value` how many there are, and the numbers of procedures as
 * bytes. REQUEST has the low half of such a number in `value`; of another procedure it is NAMED.
 * Each has one answer: REPLY, REFUSED (value: code; bytes: words), UNKNOWN, BUSY, or CANCELED if
 * CANCEL came before another. */
#ifndef WEIR_RPC_MESSAGE_H
#define WEIR_RPC_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include <weir/rpc.h>

#define RPC_HEADER_LENGTH 8
#define RPC_NAMED_LENGTH  12
#define RPC_BULK_LENGTH   (WEIR_REMOTE_LENGTH + 4)
#define RPC_HEADER_MAX    (RPC_NAMED_LENGTH + WEIR_BULK_MAX * RPC_BULK_LENGTH)
#define RPC_WORDS_MAX     200
#define RPC_PLACES_MAX    4096
#define RPC_NUMBER_LENGTH 8
#define RPC_NUMBERS_MAX   512 /* in a WELCOME */

#define RPC_TIME_MAX_MS (31u << 14)

enum rpc_kind {
    RPC_WELCOME = 1, /* from servers */
    RPC_REPLY,
    RPC_REFUSED,
    RPC_UNKNOWN,
    RPC_BUSY,
    RPC_CANCELED,
    RPC_REQUEST, /* from clients */
    RPC_NAMED,
    RPC_CANCEL,
    RPC_KIND_END,
};

struct rpc_bulk {
    struct weir_remote remote;
    unsigned rights;
};

struct rpc_message {
    enum rpc_kind kind;
    unsigned place;
    uint32_t value;
    uint64_t procedure;  /* REQUEST: its low half */
    unsigned timeout_ms; /* told with 4 bits after the first; RPC_TIME_MAX_MS: so much, or more */
    unsigned bulk_count;
    struct rpc_bulk bulk[WEIR_BULK_MAX];
    const uint8_t *bytes;
    size_t length;
};

/* Header and bulks; the bytes follow as a piece of their own. Returns the length. */
size_t rpc_message_pack(const struct rpc_message *message, uint8_t ret_bytes[RPC_HEADER_MAX]);
/* NULL, or what is wrong with it. Only what `ret_message->kind` has is set. */
const char *rpc_message_parse(const uint8_t *bytes, size_t length, struct rpc_message *ret_message);

#endif
