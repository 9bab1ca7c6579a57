/* What client and server say to each other, and the checks on what a peer said.
 *
 * Pure functions of bytes. Each message is one of a channel:
 *
 *      0  u16 magic     4  u32 value
 *      2  u8  version   8  u64 call: the client's number of it, unique among those unanswered
 *      3  u8  kind     16  REQUEST: u64 procedure, u32 bulk count, bulks; then, as in others, bytes
 *
 * WELCOME, the server's first, has the most requests that the client may have unanswered in
 * `value`. Each REQUEST (value: milliseconds left) has one answer: REPLY, REFUSED (value: code;
 * bytes: words), UNKNOWN, BUSY, or CANCELED if CANCEL came before another. */
#ifndef WEIR_RPC_MESSAGE_H
#define WEIR_RPC_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include <weir/rpc.h>

#define RPC_HEADER_LENGTH  16
#define RPC_REQUEST_LENGTH 28
#define RPC_BULK_LENGTH    (WEIR_REMOTE_LENGTH + 4)
#define RPC_HEADER_MAX     (RPC_REQUEST_LENGTH + WEIR_BULK_MAX * RPC_BULK_LENGTH)
#define RPC_WORDS_MAX      200
#define RPC_WINDOW_MAX     4096

enum rpc_kind {
    RPC_WELCOME = 1, /* from servers */
    RPC_REPLY,
    RPC_REFUSED,
    RPC_UNKNOWN,
    RPC_BUSY,
    RPC_CANCELED,
    RPC_REQUEST, /* from clients */
    RPC_CANCEL,
    RPC_KIND_END,
};

struct rpc_bulk {
    struct weir_remote remote;
    unsigned rights;
};

struct rpc_message {
    enum rpc_kind kind;
    uint32_t value;
    uint64_t call;
    uint64_t procedure;
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
