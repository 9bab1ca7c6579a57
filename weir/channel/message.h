/* What stands at the front of every SEND of a channel, and the checks on what a peer sent.
 *
 * Pure functions of bytes. Not here: what a message makes happen (receiver.h), credit (credit.h).
 *
 *     0  u16 magic      4  u32 credit limit   12  u32 value
 *     2  u8  kind       8  u32 length         16  ANNOUNCE: u64 address, u32 key; else payload
 *     3  u8  zero */
#ifndef WEIR_CHANNEL_MESSAGE_H
#define WEIR_CHANNEL_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MESSAGE_HEADER_LENGTH   16
#define MESSAGE_ANNOUNCE_LENGTH 28
#define MESSAGE_TEXT_MAX        200
#define MESSAGE_LENGTH_MAX      ((uint32_t)1 << 31)

enum message_kind {
    MESSAGE_EAGER = 1, /* `length` bytes follow */
    MESSAGE_ANNOUNCE,  /* `length` bytes wait at address, key; `value` names them */
    MESSAGE_PULLED,    /* the receiver has read what `value` names */
    MESSAGE_NOTICE,    /* a put of `length` bytes is in place; `value` is its notice */
    MESSAGE_CREDIT,    /* nothing but the credit limit */
    MESSAGE_BYE,       /* the last that needs credit has been sent; `value` 1: yours has arrived */
    MESSAGE_ABORT,     /* the end; `value` is the reason's status, `length` bytes of text follow */
    MESSAGE_KIND_END,
};

struct message {
    enum message_kind kind;
    uint32_t credit_limit;
    uint32_t length;
    uint32_t value;
    uint64_t address;
    uint32_t key;
    const uint8_t *payload; /* parsed: in the bytes given; packed: not looked at */
};

/* Bounds of what this side takes. */
struct message_limits {
    uint32_t eager_length;
    uint32_t length_max;
};

/* Writes the header (not the payload); returns its length. */
size_t message_pack(const struct message *message, uint8_t ret_bytes[MESSAGE_ANNOUNCE_LENGTH]);
/* NULL if the bytes are a message within the limits, else what is wrong with them. */
const char *message_parse(const uint8_t *bytes, size_t length, const struct message_limits *limits,
                          struct message *ret_message);
/* True for kinds that use up one of the receiver's credits. */
bool message_needs_credit(enum message_kind kind);

#endif
