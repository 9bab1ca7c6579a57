#include "tools/transfer/wire/pack.h"

#define MARK_LENGTH  1
#define FRAME_LENGTH 2

bool pack_has_room(const struct pack *pack, size_t length)
{
    size_t used = pack->count > 0 ? pack->length : MARK_LENGTH;
    return length <= MESSAGE_LENGTH_MAX && used + FRAME_LENGTH + length <= PACK_LENGTH_MAX;
}

uint8_t *pack_add(struct pack *pack, size_t length)
{
    if (pack->count == 0) {
        pack->bytes[0] = 0;
        pack->length = MARK_LENGTH;
    }
    uint8_t *at = pack->bytes + pack->length;
    at[0] = (uint8_t)(length >> 8);
    at[1] = (uint8_t)length;
    pack->length += FRAME_LENGTH + length;
    pack->count++;
    return at + FRAME_LENGTH;
}

struct span pack_bytes(const struct pack *pack)
{
    size_t skipped = pack->count == 1 ? MARK_LENGTH + FRAME_LENGTH : 0;
    return (struct span){pack->bytes + skipped, pack->length - skipped};
}

struct unpack unpack_start(const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    bool packed = length > 0 && at[0] == 0;
    size_t skipped = packed ? MARK_LENGTH : 0;
    return (struct unpack){.rest = {at + skipped, length - skipped}, .packed = packed};
}

bool unpack_next(struct unpack *unpack, struct span *ret_message)
{
    const uint8_t *at = unpack->rest.bytes;
    size_t left = unpack->rest.length;
    *ret_message = unpack->rest;
    if (left == 0) {
        return false;
    }
    if (!unpack->packed) {
        unpack->rest.length = 0;
        return true;
    }
    size_t length = left >= FRAME_LENGTH ? (size_t)at[0] << 8 | at[1] : 0;
    if (length == 0 || length > left - FRAME_LENGTH) {
        *ret_message = (struct span){at, 0};
        unpack->rest.length = 0;
        return true;
    }
    *ret_message = (struct span){at + FRAME_LENGTH, length};
    unpack->rest = (struct span){at + FRAME_LENGTH + length, left - FRAME_LENGTH - length};
    return true;
}
