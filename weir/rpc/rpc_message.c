/* Packing and parsing of what client and server say. */
#include "weir/rpc/rpc_message.h"

#include "weir/bytes.h"

#define VERSION 1

/* Small numbers, and from 16 on a power of two with the 4 bits after the first. */
static uint8_t pack_time(unsigned timeout_ms)
{
    unsigned exponent = 0;
    timeout_ms = timeout_ms < RPC_TIME_MAX_MS ? timeout_ms : RPC_TIME_MAX_MS;
    while (timeout_ms >> exponent > 31) {
        exponent++;
    }
    return (uint8_t)(timeout_ms < 16 ? timeout_ms
                                     : (exponent + 1) << 4 | (timeout_ms >> exponent & 15));
}

static unsigned unpack_time(uint8_t byte)
{
    return byte < 16 ? byte : (16u | (byte & 15)) << ((byte >> 4) - 1);
}

static bool is_request(enum rpc_kind kind)
{
    return kind == RPC_REQUEST || kind == RPC_NAMED;
}

size_t rpc_message_pack(const struct rpc_message *message, uint8_t ret_bytes[RPC_HEADER_MAX])
{
    bool has_procedure = is_request(message->kind);
    ret_bytes[0] = (uint8_t)(VERSION << 4 | message->kind);
    ret_bytes[1] = has_procedure ? pack_time(message->timeout_ms) : 0;
    put_u16(ret_bytes + 2, (uint16_t)(message->bulk_count << 12 | message->place));
    put_u32(ret_bytes + 4, has_procedure ? (uint32_t)message->procedure : message->value);
    uint8_t *at = ret_bytes + RPC_HEADER_LENGTH;
    if (message->kind == RPC_NAMED) {
        put_u32(at, (uint32_t)(message->procedure >> 32));
        at = ret_bytes + RPC_NAMED_LENGTH;
    }
    for (unsigned i = 0; i < message->bulk_count; i++) {
        weir_remote_pack(&message->bulk[i].remote, at);
        put_u32(at + WEIR_REMOTE_LENGTH, message->bulk[i].rights);
        at += RPC_BULK_LENGTH;
    }
    return (size_t)(at - ret_bytes);
}

static const char *parse_bulk(const uint8_t *bytes, struct rpc_bulk *ret_bulk)
{
    struct weir_remote remote = weir_remote_unpack(bytes);
    unsigned rights = get_u32(bytes + WEIR_REMOTE_LENGTH);
    if (rights == 0 || (rights & ~(unsigned)(WEIR_REMOTE_READ | WEIR_REMOTE_WRITE)) != 0) {
        return "bulk with rights that there are not";
    }
    if (remote.length == 0 || remote.length > UINT64_MAX - remote.address) {
        return "bulk of an impossible length";
    }
    *ret_bulk = (struct rpc_bulk){remote, rights};
    return NULL;
}

static const char *parse_request(const uint8_t *bytes, size_t length,
                                 struct rpc_message *ret_message)
{
    size_t header = ret_message->kind == RPC_NAMED ? RPC_NAMED_LENGTH : RPC_HEADER_LENGTH;
    size_t bulks = ret_message->bulk_count * RPC_BULK_LENGTH;
    if (ret_message->bulk_count > WEIR_BULK_MAX) {
        return "a request with too many bulks";
    }
    if (length < header + bulks) {
        return "a request shorter than its header";
    }
    ret_message->timeout_ms = unpack_time(bytes[1]);
    ret_message->procedure = ret_message->value;
    if (ret_message->kind == RPC_NAMED) {
        ret_message->procedure |= (uint64_t)get_u32(bytes + RPC_HEADER_LENGTH) << 32;
    }
    const char *wrong = NULL;
    for (unsigned i = 0; wrong == NULL && i < ret_message->bulk_count; i++) {
        wrong = parse_bulk(bytes + header + i * RPC_BULK_LENGTH, &ret_message->bulk[i]);
    }
    ret_message->bytes = bytes + header + bulks;
    ret_message->length = length - header - bulks;
    return wrong;
}

static const char *check_welcome(const struct rpc_message *message)
{
    if (message->value < 1 || message->value > RPC_PLACES_MAX) {
        return "a welcome for an impossible number of requests";
    }
    return message->length % RPC_NUMBER_LENGTH != 0 ||
                   message->length > RPC_NUMBERS_MAX * RPC_NUMBER_LENGTH
               ? "a welcome to an impossible number of procedures"
               : NULL;
}

/* What has neither value nor bytes says so, that a later version may. */
static const char *check(const struct rpc_message *message)
{
    switch (message->kind) {
    case RPC_WELCOME:
        return check_welcome(message);
    case RPC_REPLY:
        return message->value != 0 ? "a reply with a value" : NULL;
    case RPC_REFUSED:
        return message->length > RPC_WORDS_MAX ? "a refusal too long" : NULL;
    default:
        return message->value != 0 || message->length > 0 ? "an answer with more than it may have"
                                                          : NULL;
    }
}

const char *rpc_message_parse(const uint8_t *bytes, size_t length, struct rpc_message *ret_message)
{
    if (length < RPC_HEADER_LENGTH) {
        return "a message that is none of rpc";
    }
    if (bytes[0] >> 4 != VERSION) {
        return "another version of rpc, or none";
    }
    unsigned kind = bytes[0] & 15;
    if (kind < RPC_WELCOME || kind >= RPC_KIND_END) {
        return "a message of unknown kind";
    }
    ret_message->kind = (enum rpc_kind)kind;
    ret_message->place = get_u16(bytes + 2) & 0xfff;
    ret_message->bulk_count = get_u16(bytes + 2) >> 12;
    ret_message->value = get_u32(bytes + 4);
    if (is_request(ret_message->kind)) {
        return parse_request(bytes, length, ret_message);
    }
    if (bytes[1] != 0 || ret_message->bulk_count != 0) {
        return "an answer with more than it may have";
    }
    ret_message->bytes = bytes + RPC_HEADER_LENGTH;
    ret_message->length = length - RPC_HEADER_LENGTH;
    return check(ret_message);
}
