/* Bytes from the BTH on: what parses is built and parsed again to the same packet. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "rnic/base/check.h"
#include "rnic/wire/packet.h"

/* Without the bytes that may lie between fields. */
static void check_equal(const struct packet *a, const struct packet *b)
{
    CHECK(a->opcode == b->opcode && a->info == b->info);
    CHECK(a->solicited == b->solicited && a->migration_request == b->migration_request);
    CHECK(a->ack_request == b->ack_request && a->fecn == b->fecn && a->becn == b->becn);
    CHECK(a->pkey.value == b->pkey.value && a->psn.value == b->psn.value);
    CHECK(qpn_equal(a->destination, b->destination) && qpn_equal(a->source, b->source));
    CHECK(a->remote_address == b->remote_address);
    CHECK(a->remote_key.value == b->remote_key.value && a->dma_length == b->dma_length);
    CHECK(a->swap_or_add == b->swap_or_add && a->compare == b->compare);
    CHECK(a->aeth.kind == b->aeth.kind && a->aeth.value == b->aeth.value);
    CHECK(a->aeth.msn == b->aeth.msn && a->original == b->original);
    CHECK(a->immediate == b->immediate && a->invalidate.value == b->invalidate.value);
    CHECK(a->qkey.value == b->qkey.value && a->xrc_srq == b->xrc_srq);
    CHECK(a->payload_length == b->payload_length);
    CHECK(memcmp(a->payload, b->payload, a->payload_length) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct packet packet, again;
    enum packet_refusal refusal = packet_parse(data, size, &packet);
    if (refusal != REFUSED_NOT) {
        CHECK(strcmp(packet_refusal_name(refusal), "unknown") != 0);
        return 0;
    }
    CHECK(packet.payload >= data && packet.payload + packet.payload_length <= data + size);

    uint8_t bytes[PACKET_HEADER_MAX + PACKET_PAYLOAD_MAX];
    uint32_t header_length = packet_build(&packet, bytes);
    uint32_t pad = packet_pad(packet.payload_length);
    CHECK(header_length + packet.payload_length + pad == size);
    memcpy(bytes + header_length, packet.payload, packet.payload_length);
    memset(bytes + header_length + packet.payload_length, 0, pad);
    CHECK(packet_parse(bytes, size, &again) == REFUSED_NOT);
    check_equal(&packet, &again);

    char text[32];
    size_t needed = packet_describe(&packet, text, sizeof text);
    size_t length = strlen(text);
    CHECK(length == (needed < sizeof text ? needed : sizeof text - 1));
    return 0;
}
