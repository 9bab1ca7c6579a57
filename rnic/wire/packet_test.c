#include "rnic/wire/packet.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/random.h"
#include "rnic/wire/samples.h"

/* Headers, payload and pad of a packet; returns the length. */
static uint32_t assemble(const struct packet *packet, uint8_t *bytes)
{
    uint32_t length = packet_build(packet, bytes);
    uint32_t pad = packet_pad(packet->payload_length);
    if (packet->payload_length != 0) {
        memcpy(bytes + length, packet->payload, packet->payload_length);
    }
    memset(bytes + length + packet->payload_length, 0, pad);
    return length + packet->payload_length + pad;
}

static void real_packets_parse_and_build_back(void **state)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct sample_view view = sample_view(&samples[i]);
        struct packet packet;
        assert_int_equal(packet_parse(view.bth, view.length, &packet), REFUSED_NOT);
        char text[128];
        assert_int_equal(packet_describe(&packet, text, sizeof text), strlen(samples[i].text));
        assert_string_equal(text, samples[i].text);
        uint8_t bytes[512];
        assert_int_equal(assemble(&packet, bytes), view.length);
        assert_memory_equal(bytes, view.bth, view.length);
    }
}

static void real_packets_cut_anywhere_are_refused(void **state)
{
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct sample_view view = sample_view(&samples[i]);
        struct packet whole;
        assert_int_equal(packet_parse(view.bth, view.length, &whole), REFUSED_NOT);
        for (uint32_t length = 0; length < whole.info->header_length; length++) {
            struct packet packet = {.dma_length = 77};
            assert_int_equal(packet_parse(view.bth, length, &packet), REFUSED_TRUNCATED);
            assert_int_equal(packet.dma_length, 77);
        }
    }
}

/* A packet of one opcode with random values in all fields that its headers carry. */
static struct packet random_packet(struct random *random, uint8_t opcode, const uint8_t *payload)
{
    const struct opcode_info *info = opcode_lookup(opcode);
    struct packet packet = {
        .opcode = opcode,
        .info = info,
        .solicited = random_below(random, 2) != 0,
        .migration_request = random_below(random, 2) != 0,
        .ack_request = random_below(random, 2) != 0,
        .fecn = random_below(random, 2) != 0,
        .becn = random_below(random, 2) != 0,
        .tag = (uint16_t)random_below(random, PACKET_TAG_MAX + 1),
        .pkey = {(uint16_t)random_u64(random)},
        .destination = {(uint32_t)random_below(random, 1 << 24)},
        .psn = {(uint32_t)random_below(random, 1 << 24)},
        .payload = payload,
        .payload_length = info->has_payload ? (uint32_t)random_below(random, 4097) : 0,
    };
    if (info->has_reth || info->has_atomic) {
        packet.remote_address = random_u64(random);
        packet.remote_key.value = (uint32_t)random_u64(random);
    }
    packet.dma_length = info->has_reth ? (uint32_t)random_u64(random) : 0;
    packet.swap_or_add = info->has_atomic ? random_u64(random) : 0;
    packet.compare = info->has_atomic ? random_u64(random) : 0;
    if (info->has_aeth) {
        packet.aeth.kind = (enum aeth_kind)random_below(random, 4);
        packet.aeth.value = (uint8_t)random_below(random, 32);
        packet.aeth.msn = (uint32_t)random_below(random, 1 << 24);
    }
    packet.original = info->has_atomic_ack ? random_u64(random) : 0;
    packet.immediate = info->has_immediate ? (uint32_t)random_u64(random) : 0;
    packet.invalidate.value = info->has_invalidate ? (uint32_t)random_u64(random) : 0;
    if (info->has_deth) {
        packet.qkey.value = (uint32_t)random_u64(random);
        packet.source.value = (uint32_t)random_below(random, 1 << 24);
    }
    packet.xrc_srq = info->has_xrceth ? (uint32_t)random_below(random, 1 << 24) : 0;
    return packet;
}

static void assert_packets_equal(const struct packet *a, const struct packet *b)
{
    assert_ptr_equal(a->info, b->info);
    assert_int_equal(a->opcode, b->opcode);
    assert_int_equal(a->solicited, b->solicited);
    assert_int_equal(a->migration_request, b->migration_request);
    assert_int_equal(a->ack_request, b->ack_request);
    assert_int_equal(a->fecn, b->fecn);
    assert_int_equal(a->becn, b->becn);
    assert_int_equal(a->tag, b->tag);
    assert_int_equal(a->pkey.value, b->pkey.value);
    assert_int_equal(a->destination.value, b->destination.value);
    assert_int_equal(a->psn.value, b->psn.value);
    assert_true(a->remote_address == b->remote_address);
    assert_int_equal(a->remote_key.value, b->remote_key.value);
    assert_int_equal(a->dma_length, b->dma_length);
    assert_true(a->swap_or_add == b->swap_or_add);
    assert_true(a->compare == b->compare);
    assert_int_equal(a->aeth.kind, b->aeth.kind);
    assert_int_equal(a->aeth.value, b->aeth.value);
    assert_int_equal(a->aeth.msn, b->aeth.msn);
    assert_true(a->original == b->original);
    assert_int_equal(a->immediate, b->immediate);
    assert_int_equal(a->invalidate.value, b->invalidate.value);
    assert_int_equal(a->qkey.value, b->qkey.value);
    assert_int_equal(a->source.value, b->source.value);
    assert_int_equal(a->xrc_srq, b->xrc_srq);
    assert_int_equal(a->payload_length, b->payload_length);
    assert_memory_equal(a->payload, b->payload, a->payload_length);
}

static void every_opcode_survives_the_wire(void **state)
{
    static uint8_t payload[PACKET_PAYLOAD_MAX], bytes[PACKET_PAYLOAD_MAX + PACKET_HEADER_MAX];
    struct random random;
    random_seed(&random, 4);
    for (size_t i = 0; i < sizeof payload; i++) {
        payload[i] = (uint8_t)random_u64(&random);
    }
    for (int opcode = 0; opcode < 256; opcode++) {
        for (int round = 0; opcode_lookup((uint8_t)opcode) != NULL && round < 50; round++) {
            struct packet sent = random_packet(&random, (uint8_t)opcode, payload), received;
            uint32_t length = assemble(&sent, bytes);
            assert_int_equal(length % 4, 0);
            assert_int_equal(packet_parse(bytes, length, &received), REFUSED_NOT);
            assert_packets_equal(&sent, &received);
        }
    }
}

static void each_refusal_has_its_reason(void **state)
{
    static uint8_t bytes[PACKET_PAYLOAD_MAX + 64];
    struct packet packet;
    bytes[0] = OPCODE(SERVICE_RC, FORM_SEND_ONLY);
    assert_int_equal(packet_parse(bytes, 12, &packet), REFUSED_NOT);
    assert_int_equal(packet_parse(bytes, 12 + 4096, &packet), REFUSED_NOT);
    assert_int_equal(packet_parse(bytes, 12 + 4100, &packet), REFUSED_PAYLOAD_LENGTH);
    assert_int_equal(packet_parse(bytes, 13, &packet), REFUSED_PAD);
    bytes[1] = 3 << 4;
    assert_int_equal(packet_parse(bytes, 12, &packet), REFUSED_PAD);
    assert_int_equal(packet_parse(bytes, 16, &packet), REFUSED_NOT);
    assert_int_equal(packet.payload_length, 1);
    bytes[1] = 1;
    assert_int_equal(packet_parse(bytes, 16, &packet), REFUSED_VERSION);
    bytes[1] = 0;
    bytes[0] = OPCODE(SERVICE_RC, FORM_ACKNOWLEDGE);
    assert_int_equal(packet_parse(bytes, 16, &packet), REFUSED_NOT);
    assert_int_equal(packet_parse(bytes, 20, &packet), REFUSED_PAYLOAD_LENGTH);
    bytes[1] = 1 << 4;
    assert_int_equal(packet_parse(bytes, 16, &packet), REFUSED_PAD);
    bytes[0] = 0x15;
    bytes[1] = 0;
    assert_int_equal(packet_parse(bytes, 16, &packet), REFUSED_OPCODE);
}

static void every_refusal_has_its_own_name(void **state)
{
    for (int i = 0; i < REFUSED_COUNT; i++) {
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(packet_refusal_name((enum packet_refusal)i),
                                    packet_refusal_name((enum packet_refusal)j));
        }
    }
    assert_string_equal(packet_refusal_name(REFUSED_NO_QP), "no_qp");
    assert_string_equal(packet_refusal_name(REFUSED_COUNT), "unknown");
}

struct flipped {
    uint8_t bytes[BTH_LENGTH + RETH_LENGTH];
    _Atomic bool done;
};

/* Another opcode every moment, as a sender may in memory that it shares with who parses. */
static void *flip(void *argument)
{
    struct flipped *flipped = argument;
    volatile uint8_t *opcode = flipped->bytes;
    while (!flipped->done) {
        *opcode = OPCODE(SERVICE_RC, FORM_READ_REQUEST);
        *opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY);
    }
    return NULL;
}

static void opcode_and_row_are_one(void **state)
{
    struct flipped flipped = {.bytes = {OPCODE(SERVICE_RC, FORM_SEND_ONLY)}};
    struct packet packet;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, flip, &flipped), 0);
    for (uint32_t i = 0; i < 300000; i++) {
        assert_int_equal(packet_parse(flipped.bytes, sizeof flipped.bytes, &packet), REFUSED_NOT);
        assert_ptr_equal(opcode_lookup(packet.opcode), packet.info);
    }
    flipped.done = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void describe_cuts_like_snprintf(void **state)
{
    struct packet packet = {.opcode = OPCODE(SERVICE_RC, FORM_SEND_ONLY)};
    char text[10];
    assert_int_equal(packet_describe(&packet, text, sizeof text),
                     strlen("SEND_ONLY qp=0 psn=0 len=0"));
    assert_string_equal(text, "SEND_ONLY");
    packet.opcode = 0xff;
    assert_int_equal(packet_describe(&packet, NULL, 0), strlen("opcode=0xff"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_packets_parse_and_build_back),
        cmocka_unit_test(real_packets_cut_anywhere_are_refused),
        cmocka_unit_test(every_opcode_survives_the_wire),
        cmocka_unit_test(each_refusal_has_its_reason),
        cmocka_unit_test(every_refusal_has_its_own_name),
        cmocka_unit_test(opcode_and_row_are_one),
        cmocka_unit_test(describe_cuts_like_snprintf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
