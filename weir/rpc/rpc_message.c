/* Packing and parsing of what client and server say. */
#include "weir/rpc/rpc_message.h"

#include "weir/bytes.h"

#define MAGIC   0x7270 /* "rp" */
#define VERSION 1

size_t rpc_message_pack(const struct rpc_message *message, uint8_t ret_bytes[RPC_HEADER_MAX])
{
    put_u16(ret_bytes, MAGIC);
    ret_bytes[2] = VERSION;
    ret_bytes[3] = (uint8_t)message->kind;
    put_u32(ret_bytes + 4, message->value);
    put_u64(ret_bytes + 8, message->call);
    if (message->kind != RPC_REQUEST) {
        return RPC_HEADER_LENGTH;
    }
    put_u64(ret_bytes + 16, message->procedure);
    put_u32(ret_bytes + 24, message->bulk_count);
    uint8_t *at = ret_bytes + RPC_REQUEST_LENGTH;
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
    if (length < RPC_REQUEST_LENGTH) {
        return "a request shorter than its header";
    }
    ret_message->procedure = get_u64(bytes + 16);
    ret_message->bulk_count = get_u32(bytes + 24);
    if (ret_message->bulk_count > WEIR_BULK_MAX) {
        return "a request with too many bulks";
    }
    size_t header = RPC_REQUEST_LENGTH + ret_message->bulk_count * RPC_BULK_LENGTH;
    if (length < header) {
        return "a request shorter than its bulks";
    }
    const char *wrong = NULL;
    for (unsigned i = 0; wrong == NULL && i < ret_message->bulk_count; i++) {
        wrong = parse_bulk(bytes + RPC_REQUEST_LENGTH + i * RPC_BULK_LENGTH, &ret_message->bulk[i]);
    }
    ret_message->bytes = bytes + header;
    ret_message->length = length - header;
    return wrong;
}

/* What has neither value nor bytes says so, that a later version may. */
static const char *check(const struct rpc_message *message)
{
    switch (message->kind) {
    case RPC_WELCOME:
        return message->value < 1 || message->value > RPC_WINDOW_MAX || message->length > 0
                   ? "a welcome for an impossible number of requests"
                   : NULL;
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
    if (length < RPC_HEADER_LENGTH || get_u16(bytes) != MAGIC) {
        return "a message that is none of rpc";
    }
    if (bytes[2] != VERSION) {
        return "another version of rpc";
    }
    if (bytes[3] < RPC_WELCOME || bytes[3] >= RPC_KIND_END) {
        return "a message of unknown kind";
    }
    ret_message->kind = (enum rpc_kind)bytes[3];
    ret_message->value = get_u32(bytes + 4);
    ret_message->call = get_u64(bytes + 8);
    if (ret_message->kind == RPC_REQUEST) {
        return parse_request(bytes, length, ret_message);
    }
    ret_message->bytes = bytes + RPC_HEADER_LENGTH;
    ret_message->length = length - RPC_HEADER_LENGTH;
    return check(ret_message);
}
