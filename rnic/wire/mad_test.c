#include "rnic/wire/mad.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/random.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/samples.h"

static const enum cm_message_kind kinds[] = {
    CM_MESSAGE_REQ,  CM_MESSAGE_MRA,  CM_MESSAGE_REJ,      CM_MESSAGE_REP,      CM_MESSAGE_RTU,
    CM_MESSAGE_DREQ, CM_MESSAGE_DREP, CM_MESSAGE_SIDR_REQ, CM_MESSAGE_SIDR_REP,
};
#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

/* The first CM message of a kind among the samples, over IPv4 or IPv6. */
static struct cm_message find_message(enum cm_message_kind kind, bool is_ipv4)
{
    struct cm_message message = {0};
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct sample_view view = sample_view(&samples[i]);
        struct packet packet;
        assert_int_equal(packet_parse(view.bth, view.length, &packet), REFUSED_NOT);
        if (gid_is_ipv4(&view.path.local) == is_ipv4 &&
            cm_message_parse(packet.payload, packet.payload_length, &message) == STATUS_OK &&
            message.kind == kind) {
            return message;
        }
    }
    fail();
    return message;
}

static void real_messages_build_back(void **state)
{
    uint32_t count = 0;
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        struct sample_view view = sample_view(&samples[i]);
        struct packet packet;
        assert_int_equal(packet_parse(view.bth, view.length, &packet), REFUSED_NOT);
        if (!qpn_equal(packet.destination, QPN_MANAGEMENT)) {
            continue;
        }
        struct cm_message message;
        uint8_t mad[MAD_LENGTH];
        assert_int_equal(cm_message_parse(packet.payload, packet.payload_length, &message),
                         STATUS_OK);
        cm_message_build(&message, mad);
        assert_memory_equal(mad, packet.payload, MAD_LENGTH);
        count++;
    }
    assert_int_equal(count, 7);
}

/* tshark reads the frame likewise, but for the flow label: it takes 8 bits too few. */
static void a_real_req(void **state)
{
    struct cm_message req = find_message(CM_MESSAGE_REQ, true);
    assert_int_equal(req.local_id, 0x221c17f1);
    assert_true(req.service_id == rdma_cm_service_id(0x106, 0x1c06));
    assert_true(req.local_ca_guid == UINT64_C(0x505400fffe770002));
    assert_int_equal(req.local_qpn.value, 0x11);
    assert_int_equal(req.responder_resources, 1);
    assert_int_equal(req.initiator_depth, 1);
    assert_int_equal(req.remote_response_timeout, 0x14);
    assert_int_equal(req.transport_service, 0);
    assert_false(req.flow_control);
    assert_int_equal(req.starting_psn.value, 0x630108);
    assert_int_equal(req.local_response_timeout, 0x14);
    assert_int_equal(req.retry_count, 7);
    assert_int_equal(req.pkey.value, 0xffff);
    assert_int_equal(req.path_mtu, PATH_MTU_1024);
    assert_int_equal(req.rnr_retry_count, 7);
    assert_int_equal(req.max_cm_retries, 15);
    assert_false(req.shared_receive_queue);
    assert_int_equal(req.path.local.bytes[15], 2);
    assert_int_equal(req.path.remote.bytes[15], 3);
    assert_int_equal(req.path.flow_label, 0x55b12);
    assert_int_equal(req.packet_rate, 0);
    assert_int_equal(req.path.traffic_class, 0);
    assert_int_equal(req.path.hop_limit, 64);
    assert_int_equal(req.service_level, 0);
    assert_int_equal(req.ack_timeout, 0x13);

    struct rdma_cm_header header;
    assert_int_equal(rdma_cm_header_parse(req.private_data, &header), STATUS_OK);
    assert_int_equal(header.ip_version, 4);
    assert_int_equal(header.port, 0xaf74);
    assert_true(gid_equal(&header.source, &req.path.local));
    assert_true(gid_equal(&header.destination, &req.path.remote));
    uint8_t bytes[RDMA_CM_HEADER_LENGTH];
    rdma_cm_header_build(&header, bytes);
    assert_memory_equal(bytes, req.private_data, sizeof bytes);
}

static void a_real_rep_rej_and_dreq(void **state)
{
    struct cm_message rep = find_message(CM_MESSAGE_REP, true);
    assert_int_equal(rep.local_id, 0x54805701);
    assert_int_equal(rep.remote_id, 0x221c17f1);
    assert_int_equal(rep.local_qpn.value, 0x11);
    assert_int_equal(rep.starting_psn.value, 0x85be16);
    assert_int_equal(rep.responder_resources, 1);
    assert_int_equal(rep.target_ack_delay, 15);
    assert_int_equal(rep.failover_accepted, 0);
    assert_int_equal(rep.rnr_retry_count, 7);
    assert_true(rep.local_ca_guid == UINT64_C(0x505400fffe770003));

    struct cm_message rej = find_message(CM_MESSAGE_REJ, true);
    assert_int_equal(rej.local_id, 0);
    assert_int_equal(rej.remote_id, 0x231c17f1);
    assert_int_equal(rej.reject_reason, CM_REJECT_INVALID_SERVICE_ID);
    assert_int_equal(rej.answered, 0);

    struct cm_message dreq = find_message(CM_MESSAGE_DREQ, true);
    assert_int_equal(dreq.local_id, 0x221c17f1);
    assert_int_equal(dreq.local_qpn.value, 0x11);
}

static void rdma_cm_header_over_ipv6(void **state)
{
    struct cm_message req = find_message(CM_MESSAGE_REQ, false);
    struct rdma_cm_header header;
    assert_int_equal(rdma_cm_header_parse(req.private_data, &header), STATUS_OK);
    assert_int_equal(header.ip_version, 6);
    assert_true(gid_equal(&header.source, &req.path.local));
    assert_true(gid_equal(&header.destination, &req.path.remote));
    uint8_t bytes[RDMA_CM_HEADER_LENGTH];
    rdma_cm_header_build(&header, bytes);
    assert_memory_equal(bytes, req.private_data, sizeof bytes);
    bytes[1] = 5 << 4;
    assert_int_equal(rdma_cm_header_parse(bytes, &header), STATUS_MALFORMED);
    bytes[1] = 4 << 4;
    bytes[0] = 1;
    assert_int_equal(rdma_cm_header_parse(bytes, &header), STATUS_MALFORMED);
}

/* From random bytes: what is parsed, is built and parsed again to the same. */
static void every_kind_keeps_its_fields(void **state)
{
    struct random random;
    random_seed(&random, 7);
    for (uint32_t round = 0; round < 2000; round++) {
        enum cm_message_kind kind = kinds[round % KIND_COUNT];
        uint8_t mad[MAD_LENGTH], again[MAD_LENGTH];
        for (size_t i = 0; i < sizeof mad; i++) {
            mad[i] = (uint8_t)random_u64(&random);
        }
        static const uint8_t start[4] = {1, 7, 2, 3};
        memcpy(mad, start, sizeof start);
        bytes_store_u16(mad + 16, (uint16_t)kind);
        mad[24 + 93] |= 2; /* a hop limit that is not 0 */
        struct cm_message first, second;
        assert_int_equal(cm_message_parse(mad, sizeof mad, &first), STATUS_OK);
        cm_message_build(&first, again);
        assert_int_equal(cm_message_parse(again, sizeof again, &second), STATUS_OK);
        assert_memory_equal(&first, &second, sizeof first);
        uint32_t private_max = cm_message_private_max(kind);
        assert_memory_equal(again + MAD_LENGTH - private_max, mad + MAD_LENGTH - private_max,
                            private_max);
        assert_memory_equal(again + 8, mad + 8, 8);
    }
}

static void what_is_not_a_cm_message(void **state)
{
    struct cm_message message = find_message(CM_MESSAGE_RTU, true), result = {.local_id = 77};
    uint8_t mad[MAD_LENGTH + 1];
    cm_message_build(&message, mad);
    assert_int_equal(cm_message_parse(mad, MAD_LENGTH - 1, &result), STATUS_MALFORMED);
    assert_int_equal(cm_message_parse(mad, MAD_LENGTH + 1, &result), STATUS_MALFORMED);
    for (int i = 0; i < 4; i++) {
        mad[i] ^= 0x40;
        assert_int_equal(cm_message_parse(mad, MAD_LENGTH, &result), STATUS_MALFORMED);
        mad[i] ^= 0x40;
    }
    bytes_store_u16(mad + 16, 0x0019); /* LAP */
    assert_int_equal(cm_message_parse(mad, MAD_LENGTH, &result), STATUS_MALFORMED);
    assert_int_equal(result.local_id, 77);
}

/* Field by field, since no sample has them. [IBA 12.11.1, 12.11.2] */
static void sidr_messages(void **state)
{
    struct cm_message message = {.kind = CM_MESSAGE_SIDR_REQ,
                                 .local_id = 0x01020304,
                                 .pkey = PKEY_DEFAULT,
                                 .service_id = UINT64_C(0x01111c06),
                                 .private_data = {0xaa}};
    uint8_t mad[MAD_LENGTH];
    cm_message_build(&message, mad);
    assert_memory_equal(mad + 24, "\1\2\3\4\xff\xff\0\0\0\0\0\0\1\x11\x1c\6\xaa", 17);

    message = (struct cm_message){.kind = CM_MESSAGE_SIDR_REP,
                                  .remote_id = 0x01020304,
                                  .sidr_status = CM_SIDR_REJECTED,
                                  .ece = {.vendor_id = 0x0002c9, .options = 5},
                                  .local_qpn = {0x112233},
                                  .local_qkey = {0x1234567},
                                  .service_id = UINT64_C(0x01111c06),
                                  .private_data = {0xbb}};
    cm_message_build(&message, mad);
    assert_memory_equal(mad + 20, "\0\0\0\5", 4);
    assert_memory_equal(mad + 24, "\1\2\3\4\2\0\0\2\x11\x22\x33\xc9", 12);
    assert_memory_equal(mad + 36, "\0\0\0\0\1\x11\x1c\6\1\x23\x45\x67", 12);
    assert_int_equal(mad[24 + 96], 0xbb);
}

/* The kernel's rule: a routed path has permissive LIDs, one link none. */
static void hop_limit_decides_about_lids(void **state)
{
    struct cm_message message = {.kind = CM_MESSAGE_REQ};
    uint8_t mad[MAD_LENGTH];
    cm_message_build(&message, mad);
    assert_int_equal(mad[24 + 93], 64);
    assert_memory_equal(mad + 24 + 52, "\xff\xff\xff\xff", 4);
    assert_int_equal(mad[24 + 94], 0);
    message.path.hop_limit = 1;
    cm_message_build(&message, mad);
    assert_memory_equal(mad + 24 + 52, "\0\0\0\0", 4);
    assert_int_equal(mad[24 + 94], 0x08);
}

static void an_oversized_reject_info_is_cut(void **state)
{
    struct cm_message message = {.kind = CM_MESSAGE_REJ, .reject_info_length = 127};
    uint8_t mad[MAD_LENGTH];
    cm_message_build(&message, mad);
    assert_int_equal(cm_message_parse(mad, MAD_LENGTH, &message), STATUS_OK);
    assert_int_equal(message.reject_info_length, sizeof message.reject_info);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_messages_build_back),
        cmocka_unit_test(a_real_req),
        cmocka_unit_test(a_real_rep_rej_and_dreq),
        cmocka_unit_test(rdma_cm_header_over_ipv6),
        cmocka_unit_test(every_kind_keeps_its_fields),
        cmocka_unit_test(what_is_not_a_cm_message),
        cmocka_unit_test(hop_limit_decides_about_lids),
        cmocka_unit_test(an_oversized_reject_info_is_cut),
        cmocka_unit_test(sidr_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
