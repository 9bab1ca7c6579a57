/* What a client or a server of rpc may send. What parses is within the limits, points into what was
 * sent, and packs to the same bytes again. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "rnic/base/check.h"
#include "weir/rpc/rpc_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rpc_message message;
    memset(&message, 0xee, sizeof(message));
    if (rpc_message_parse(data, size, &message) != NULL) {
        return 0;
    }
    uint8_t bytes[RPC_HEADER_MAX];
    if (message.kind == RPC_REQUEST || message.kind == RPC_NAMED) {
        CHECK(message.bulk_count <= WEIR_BULK_MAX && message.timeout_ms <= RPC_TIME_MAX_MS);
        for (unsigned i = 0; i < message.bulk_count; i++) {
            const struct weir_remote *remote = &message.bulk[i].remote;
            CHECK(message.bulk[i].rights >= 1 && message.bulk[i].rights <= 3);
            CHECK(remote->length > 0 && remote->address + remote->length >= remote->length);
        }
    }
    size_t header = rpc_message_pack(&message, bytes);
    CHECK(header <= size && memcmp(bytes, data, header) == 0);
    CHECK(message.bytes == data + header && message.length == size - header);
    CHECK(message.place < RPC_PLACES_MAX);
    CHECK(message.kind != RPC_WELCOME || message.length % RPC_NUMBER_LENGTH == 0);
    CHECK(message.kind != RPC_REFUSED || message.length <= RPC_WORDS_MAX);
    return 0;
}
