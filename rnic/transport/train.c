#include "rnic/transport/train.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/transport/port.h"
#include "rnic/wire/packet.h"

void train_packet(const struct train *train, uint32_t index, uint8_t *header,
                  struct fragment *payload, struct outgoing *ret_outgoing)
{
    CHECK(train->header_length <= PACKET_HEADER_MAX);
    memcpy(header, train->header, train->header_length);
    packet_put_psn(header, psn_add(packet_psn(train->header), index));
    *payload = (struct fragment){train->bytes + (size_t)index * train->payload_length,
                                 train->payload_length};
    *ret_outgoing = (struct outgoing){
        .path = train->path,
        .header = header,
        .header_length = train->header_length,
        .fragments = payload,
        .fragment_count = 1,
        .payload_length = train->payload_length,
    };
}

uint32_t train_emit_singly(struct packet_sink *sink, const struct train *train)
{
    for (uint32_t i = 0; i < train->count; i++) {
        uint8_t header[PACKET_HEADER_MAX];
        struct fragment payload;
        struct outgoing outgoing;
        train_packet(train, i, header, &payload, &outgoing);
        if (!sink->emit(sink, &outgoing)) {
            return i;
        }
    }
    return train->count;
}
