/* The name of a memory region as bytes in messages. */
#include <weir/fabric.h>

#include "weir/bytes.h"

void weir_remote_pack(const struct weir_remote *remote, uint8_t ret_bytes[WEIR_REMOTE_LENGTH])
{
    put_u64(ret_bytes, remote->address);
    put_u64(ret_bytes + 8, remote->length);
    put_u32(ret_bytes + 16, remote->key);
}

struct weir_remote weir_remote_unpack(const uint8_t bytes[WEIR_REMOTE_LENGTH])
{
    return (struct weir_remote){
        .address = get_u64(bytes),
        .length = get_u64(bytes + 8),
        .key = get_u32(bytes + 16),
    };
}
