#include "rnic/transport/train.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/transport/port.h"
#include "rnic/wire/packet.h"

uint32_t train_emit_singly(struct packet_sink *sink, const struct train *train)
{
    uint8_t header[PACKET_HEADER_MAX];
    struct psn first = packet_psn(train->header);
    CHECK(train->header_length <= sizeof header);
    memcpy(header, train->header, train->header_length);
    for (uint32_t i = 0; i < train->count; i++) {
        struct fragment payload = {train->bytes + (size_t)i * train->payload_length,
                                   train->payload_length};
        struct outgoing outgoing = {
            .path = train->path,
            .header = header,
            .header_length = train->header_length,
            .fragments = &payload,
            .fragment_count = 1,
            .payload_length = train->payload_length,
        };
        packet_put_psn(header, psn_add(first, i));
        if (!sink->emit(sink, &outgoing)) {
            return i;
        }
    }
    return train->count;
}
