/* Packing and parsing of channel messages. */
#include "weir/channel/message.h"

#include <string.h>

#include "weir/bytes.h"

#define MAGIC 0x5752

size_t message_pack(const struct message *message, uint8_t ret_bytes[MESSAGE_ANNOUNCE_LENGTH])
{
    put_u16(ret_bytes, MAGIC);
    ret_bytes[2] = (uint8_t)message->kind;
    ret_bytes[3] = 0;
    put_u32(ret_bytes + 4, message->credit_limit);
    put_u32(ret_bytes + 8, message->length);
    put_u32(ret_bytes + 12, message->value);
    if (message->kind != MESSAGE_ANNOUNCE) {
        return MESSAGE_HEADER_LENGTH;
    }
    put_u64(ret_bytes + 16, message->address);
    put_u32(ret_bytes + 24, message->key);
    return MESSAGE_ANNOUNCE_LENGTH;
}

/* Bytes that must follow the header; -1: no such kind. */
static int64_t payload_length(const struct message *message)
{
    switch (message->kind) {
    case MESSAGE_EAGER:
    case MESSAGE_ABORT:
        return message->length;
    case MESSAGE_ANNOUNCE:
        return MESSAGE_ANNOUNCE_LENGTH - MESSAGE_HEADER_LENGTH;
    case MESSAGE_PULLED:
    case MESSAGE_NOTICE:
    case MESSAGE_CREDIT:
    case MESSAGE_BYE:
        return 0;
    case MESSAGE_KIND_END:
        break;
    }
    return -1;
}

static const char *check_length(const struct message *message, const struct message_limits *limits)
{
    switch (message->kind) {
    case MESSAGE_EAGER:
        return message->length > limits->eager_length ? "an eager message too long"
               : message->length > limits->length_max ? "a message longer than agreed"
                                                      : NULL;
    case MESSAGE_ANNOUNCE:
        return message->length > 0 && message->length <= limits->length_max
                   ? NULL
                   : "a message longer than agreed";
    case MESSAGE_NOTICE:
        return message->length <= MESSAGE_LENGTH_MAX ? NULL : "a notice of an impossible put";
    case MESSAGE_ABORT:
        return message->length <= MESSAGE_TEXT_MAX ? NULL : "a reason too long";
    default:
        return message->length == 0 ? NULL : "a length where there is none";
    }
}

const char *message_parse(const uint8_t *bytes, size_t length, const struct message_limits *limits,
                          struct message *ret_message)
{
    if (length < MESSAGE_HEADER_LENGTH) {
        return "a message shorter than its header";
    }
    if (get_u16(bytes) != MAGIC || bytes[3] != 0) {
        return "a message that does not begin as one";
    }
    if (bytes[2] < MESSAGE_EAGER || bytes[2] >= MESSAGE_KIND_END) {
        return "a message of unknown kind";
    }
    struct message message = {
        .kind = (enum message_kind)bytes[2],
        .credit_limit = get_u32(bytes + 4),
        .length = get_u32(bytes + 8),
        .value = get_u32(bytes + 12),
        .payload = bytes + MESSAGE_HEADER_LENGTH,
    };
    const char *wrong = check_length(&message, limits);
    if (wrong != NULL) {
        return wrong;
    }
    if (payload_length(&message) != (int64_t)(length - MESSAGE_HEADER_LENGTH)) {
        return "a message of another length than it says";
    }
    if (message.kind == MESSAGE_ANNOUNCE) {
        message.address = get_u64(bytes + 16);
        message.key = get_u32(bytes + 24);
    }
    *ret_message = message;
    return NULL;
}

bool message_needs_credit(enum message_kind kind)
{
    return kind == MESSAGE_EAGER || kind == MESSAGE_ANNOUNCE || kind == MESSAGE_NOTICE;
}
