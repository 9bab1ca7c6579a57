/* Mistakes that no device makes: packets of our own making, against an established queue pair. */
#include "rnic/wire/opcode.h"
#include "test/interop/tour/case.h"

#define RC(form) .used = true, .opcode = OPCODE(SERVICE_RC, form)
#define UC(form) .used = true, .opcode = OPCODE(SERVICE_UC, form)
#define MTU      TOUR_MTU
#define AWAITED_SEND(at)                                                                           \
    {                                                                                              \
        RC(FORM_SEND_ONLY), .psn = (at), .payload = 64, .awaited = true                            \
    }
#define GOOD_SEND(at)                                                                              \
    {                                                                                              \
        RC(FORM_SEND_ONLY), .psn = (at), .payload = 64                                             \
    }

/* [IBA 9.9.3] */
#define INVALID                                                                                    \
    {                                                                                              \
        .responder = "WR_FLUSH_ERR", .event = "QP_REQ_ERR", .states = "RTS/ERR", .answers = "INV"  \
    }
#define INVALID_ACCESS                                                                             \
    {                                                                                              \
        .responder = "WR_FLUSH_ERR", .event = "QP_ACCESS_ERR", .states = "RTS/ERR",                \
        .answers = "INV"                                                                           \
    }
#define INVALID_LENGTH                                                                             \
    {                                                                                              \
        .responder = "LOC_LEN_ERR", .states = "RTS/ERR", .answers = "INV"                          \
    }
/* What came before the good message has been dropped without a word. */
#define DROPPED                                                                                    \
    {                                                                                              \
        .responder = "SUCCESS", .answers = "ACK"                                                   \
    }

const struct tour_case packet_cases[] = {
    /* the order of opcodes */
    {"middle_without_first", "9.7.4.1.2", .at_each_mtu = true,
     .script = {{RC(FORM_SEND_MIDDLE), .payload = MTU}}, .expected = INVALID},
    {"last_without_first", "9.7.4.1.2", .script = {{RC(FORM_WRITE_LAST), .payload = 64}},
     .expected = INVALID},
    {"only_after_first", "9.7.4.1.2", .at_each_mtu = true,
     .script = {{RC(FORM_SEND_FIRST), .payload = MTU, .silent = true}, GOOD_SEND(1)},
     .expected = INVALID},
    {"last_of_another_operation", "9.7.4.1.2", .at_each_mtu = true,
     .script = {{RC(FORM_SEND_FIRST), .payload = MTU, .silent = true},
                {RC(FORM_WRITE_LAST), .psn = 1, .payload = 64}},
     .expected = INVALID},
    {"read_within_a_message", "9.7.4.1.2", .at_each_mtu = true,
     .script = {{RC(FORM_SEND_FIRST), .payload = MTU, .silent = true},
                {RC(FORM_READ_REQUEST), .psn = 1, .dma_length = 64}},
     .expected = INVALID},
    {"opcode_of_another_service", "9.6.1.2",
     .script = {{UC(FORM_SEND_ONLY), .payload = 64}, GOOD_SEND(0)}, .expected = DROPPED},
    {"opcode_that_does_not_exist", "9.7.4.1.3",
     .script = {{RC(FORM_SEND_ONLY), .payload = 64, .flaw = FLAW_OPCODE, .value = 0x1f},
                GOOD_SEND(0)},
     .expected = DROPPED},
    {"misaligned_atomic_packet", "9.4.5", .aim = AIM_MISALIGNED, .script = {{RC(FORM_FETCH_ADD)}},
     .expected = INVALID_ACCESS},

    /* packet sequence numbers; what follows the gap is not executed */
    {"psn_ahead", "9.7.5.2.2", .script = {AWAITED_SEND(5), GOOD_SEND(0)},
     .expected = {.responder = "SUCCESS", .answers = "SEQ,ACK"}},
    {"psn_far_ahead", "9.7.5.2.2", .script = {AWAITED_SEND(0x7fffff), GOOD_SEND(0)},
     .expected = {.responder = "SUCCESS", .answers = "SEQ,ACK"}},
    {"psn_of_the_past", "9.7.5.1.4", .script = {GOOD_SEND(-1)}, .expected = {.answers = "ACK"}},
    {"psn_far_past", "9.7.5.1.4", .script = {GOOD_SEND(-0x800000)}, .expected = {.answers = "ACK"}},
    {"duplicate_send", "9.7.5.1.4", .script = {GOOD_SEND(0), GOOD_SEND(0)},
     .expected = {.responder = "SUCCESS", .answers = "ACK"}},
    {"duplicate_read", "9.7.5.1.4",
     .script = {{RC(FORM_READ_REQUEST), .dma_length = 64},
                {RC(FORM_READ_REQUEST), .dma_length = 64}},
     .expected = {.answers = "READ"}},
    {"duplicate_atomic", "9.7.5.1.4", .script = {{RC(FORM_FETCH_ADD)}, {RC(FORM_FETCH_ADD)}},
     .expected = {.answers = "ATOMIC", .memory = "written"}},
    {"duplicate_read_never_asked", "9.7.5.1.4",
     .script = {{RC(FORM_READ_REQUEST), .psn = -1, .dma_length = 64}, GOOD_SEND(0)},
     .expected = DROPPED},
    {"two_gaps_one_nak", "9.7.5.2.2", .script = {GOOD_SEND(3), AWAITED_SEND(4), GOOD_SEND(0)},
     .expected = {.responder = "SUCCESS", .answers = "SEQ,ACK"}},

    /* lengths */
    {"first_longer_than_mtu", "9.7.4.1.6", .at_each_mtu = true, .mtus = MTU_HALF_OF_RESPONDER,
     .script = {{RC(FORM_SEND_FIRST), .payload = MTU}}, .expected = INVALID_LENGTH},
    {"only_longer_than_mtu", "9.7.4.1.6", .at_each_mtu = true, .mtus = MTU_HALF_OF_RESPONDER,
     .script = {{RC(FORM_WRITE_ONLY), .payload = MTU}}, .expected = INVALID_ACCESS},
    {"first_shorter_than_mtu", "9.7.4.1.6", .at_each_mtu = true,
     .script = {{RC(FORM_SEND_FIRST), .payload = 512}}, .expected = INVALID_LENGTH},
    {"middle_shorter_than_mtu", "9.7.4.1.6", .at_each_mtu = true,
     .script = {{RC(FORM_SEND_FIRST), .payload = MTU, .silent = true},
                {RC(FORM_SEND_MIDDLE), .psn = 1, .payload = 512}},
     .expected = INVALID_LENGTH},
    {"empty_last", "9.7.4.1.6", .at_each_mtu = true,
     .script = {{RC(FORM_SEND_FIRST), .payload = MTU, .silent = true},
                {RC(FORM_SEND_LAST), .psn = 1}},
     .expected = INVALID_LENGTH},
    {"write_announces_more", "9.7.4.1.6",
     .script = {{RC(FORM_WRITE_ONLY), .payload = 64, .dma_length = 128}},
     .expected = INVALID_ACCESS},
    {"write_announces_less", "9.7.4.1.6",
     .script = {{RC(FORM_WRITE_ONLY), .payload = 64, .dma_length = 32}},
     .expected = INVALID_ACCESS},
    {"write_ends_early", "9.7.4.1.6", .at_each_mtu = true,
     .script = {{RC(FORM_WRITE_FIRST), .payload = MTU, .dma_length = 3000, .silent = true},
                {RC(FORM_WRITE_LAST), .psn = 1, .payload = 64}},
     .expected = {.responder = "WR_FLUSH_ERR",
                  .event = "QP_ACCESS_ERR",
                  .states = "RTS/ERR",
                  .answers = "INV",
                  .memory = "written"}},
    {"write_goes_on", "9.7.4.1.6", .at_each_mtu = true,
     .script = {{RC(FORM_WRITE_FIRST), .payload = MTU, .dma_length = 1500, .silent = true},
                {RC(FORM_WRITE_MIDDLE), .psn = 1, .payload = MTU}},
     .expected = {.responder = "WR_FLUSH_ERR",
                  .event = "QP_ACCESS_ERR",
                  .states = "RTS/ERR",
                  .answers = "INV",
                  .memory = "written"}},
    {"read_longer_than_2_31", "9.7.4.1.6",
     .script = {{RC(FORM_READ_REQUEST), .dma_length = 0x80000001u}}, .expected = INVALID_ACCESS},
    {"write_longer_than_2_31", "9.7.4.1.6", .at_each_mtu = true,
     .script = {{RC(FORM_WRITE_FIRST), .payload = MTU, .dma_length = 0x80000001u}},
     .expected = INVALID_ACCESS},

    /* packets that are not even well formed: as if they had been lost */
    {"cut_within_its_headers", "9.6.1.1",
     .script = {{RC(FORM_WRITE_ONLY), .dma_length = 64, .flaw = FLAW_CUT, .value = 8},
                GOOD_SEND(0)},
     .expected = DROPPED},
    {"only_a_base_header_of_a_read", "9.6.1.1",
     .script = {{RC(FORM_READ_REQUEST), .dma_length = 64, .flaw = FLAW_CUT, .value = 16},
                GOOD_SEND(0)},
     .expected = DROPPED},
    {"read_with_payload", "9.6.1.1",
     .script = {{RC(FORM_READ_REQUEST), .dma_length = 64, .flaw = FLAW_LONGER, .value = 64},
                GOOD_SEND(0)},
     .expected = DROPPED},
    {"pad_without_payload", "9.6.1.1",
     .script = {{RC(FORM_SEND_ONLY), .flaw = FLAW_PAD, .value = 3}, GOOD_SEND(0)},
     .expected = DROPPED},
    {"not_a_multiple_of_four", "9.6.1.1",
     .script = {{RC(FORM_SEND_ONLY), .payload = 64, .flaw = FLAW_CUT, .value = 1}, GOOD_SEND(0)},
     .expected = DROPPED},
    {"wrong_icrc", "9.6.1.1",
     .script = {{RC(FORM_SEND_ONLY), .payload = 64, .flaw = FLAW_ICRC}, GOOD_SEND(0)},
     .expected = DROPPED},
    {"wrong_version", "9.6.1.2",
     .script = {{RC(FORM_SEND_ONLY), .payload = 64, .flaw = FLAW_VERSION, .value = 1},
                GOOD_SEND(0)},
     .expected = DROPPED},
    {"wrong_partition", "9.6.1.2",
     .script = {{RC(FORM_SEND_ONLY), .payload = 64, .flaw = FLAW_PKEY, .value = 0x8123},
                GOOD_SEND(0)},
     .expected = DROPPED},
    {"wrong_queue_pair", "9.6.1.2",
     .script = {{RC(FORM_SEND_ONLY), .payload = 64, .flaw = FLAW_QPN}, GOOD_SEND(0)},
     .expected = DROPPED},
    {0},
};
