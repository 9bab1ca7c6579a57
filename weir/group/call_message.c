/* Packing and parsing. */
#include "weir/group/call_message.h"

#include "weir/bytes.h"

#define REQUEST_MAGIC 0x6771 /* "gq" */
#define REPLY_MAGIC   0x6772 /* "gr" */
#define VERSION       1

void call_request_pack(const struct call_request *request, uint8_t ret_bytes[CALL_REQUEST_LENGTH])
{
    put_u16(ret_bytes, REQUEST_MAGIC);
    ret_bytes[2] = VERSION;
    ret_bytes[3] = (uint8_t)request->radix;
    put_u32(ret_bytes + 4, request->caller_rank);
    put_u64(ret_bytes + 8, request->caller);
    put_u64(ret_bytes + 16, request->number);
    put_u64(ret_bytes + 24, request->procedure);
    put_u32(ret_bytes + 32, request->total_ms);
}

const char *call_request_parse(const uint8_t *bytes, size_t length,
                               struct call_request *ret_request)
{
    if (length < CALL_REQUEST_LENGTH || get_u16(bytes) != REQUEST_MAGIC) {
        return "a request that is none of a group";
    }
    if (bytes[2] != VERSION) {
        return "another version of group";
    }
    struct call_request request = {
        .radix = bytes[3],
        .caller_rank = get_u32(bytes + 4),
        .caller = get_u64(bytes + 8),
        .number = get_u64(bytes + 16),
        .procedure = get_u64(bytes + 24),
        .total_ms = get_u32(bytes + 32),
    };
    if (request.radix < CALL_RADIX_LEAST || request.radix > CALL_RADIX_MOST) {
        return "a tree of an impossible radix";
    }
    size_t taken;
    const char *wrong = ranks_parse(bytes + CALL_REQUEST_LENGTH, length - CALL_REQUEST_LENGTH,
                                    WEIR_GROUP_SIZE_MAX, &request.below, &taken);
    if (wrong != NULL) {
        return wrong;
    }
    request.bytes = bytes + CALL_REQUEST_LENGTH + taken;
    request.length = length - CALL_REQUEST_LENGTH - taken;
    *ret_request = request;
    return NULL;
}

void call_reply_pack(const struct call_reply *reply, uint8_t ret_bytes[CALL_REPLY_LENGTH])
{
    put_u16(ret_bytes, REPLY_MAGIC);
    ret_bytes[2] = VERSION;
    ret_bytes[3] = reply->has_bytes;
}

const char *call_reply_parse(const uint8_t *bytes, size_t length, const struct ranks *asked,
                             struct call_reply *ret_reply)
{
    if (length < CALL_REPLY_LENGTH || get_u16(bytes) != REPLY_MAGIC) {
        return "a reply that is none of a group";
    }
    if (bytes[2] != VERSION || bytes[3] > 1) {
        return "another version of group";
    }
    struct call_reply reply = {.has_bytes = bytes[3] == 1};
    size_t taken;
    const char *wrong = failures_parse(bytes + CALL_REPLY_LENGTH, length - CALL_REPLY_LENGTH, asked,
                                       &reply.failures, &taken);
    if (wrong != NULL) {
        return wrong;
    }
    reply.bytes = bytes + CALL_REPLY_LENGTH + taken;
    reply.length = length - CALL_REPLY_LENGTH - taken;
    if ((!reply.has_bytes && reply.length > 0) ||
        (reply.has_bytes && reply.failures.total == asked->total)) {
        failures_fini(&reply.failures);
        return "a reply with bytes of nobody";
    }
    *ret_reply = reply;
    return NULL;
}
