#include "sim/short_emit.h"

#include <string.h>

#include "rnic/base/bytes.h"
#include "rnic/wire/packet.h"
#include "sim/network.h"

#define WORDS 3u

bool short_emit(struct packet_sink *sink, const struct outgoing_short *outgoing)
{
    struct network *network = ((struct network_port *)sink)->network;
    if (dice_percent(&network->ways, network->short_full)) {
        return false;
    }
    uint8_t header[BTH_LENGTH + IMMDT_LENGTH];
    for (uint32_t i = 0; i < WORDS; i++) {
        bytes_store_u32(header + sizeof(uint32_t) * i, outgoing->bth[i]);
    }
    memcpy(header + BTH_LENGTH, &outgoing->immediate, IMMDT_LENGTH);
    struct fragment fragment = {outgoing->payload, outgoing->length};
    struct outgoing any = {
        .path = outgoing->path,
        .header = header,
        .header_length = BTH_LENGTH + (outgoing->has_immediate ? IMMDT_LENGTH : 0),
        .fragments = &fragment,
        .fragment_count = outgoing->length > 0,
        .payload_length = outgoing->length,
        .acknowledges = outgoing->acknowledges,
        .acknowledged = outgoing->acknowledged,
    };
    bool sent = sink->emit(sink, &any);
    network->shorts += sent;
    return sent;
}
