/* Each packet of the captures, taken apart into structs and built anew, is the same byte for byte,
 * ICRC included; and a flipped bit is refused, or comes out again, or stands in a field that its
 * receiver has to ignore by the specification. Usage: rebuild_test FOLDER */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/bytes.h"
#include "test/captures/frame.h"
#include "test/captures/pcap.h"

static const char *folder;

/* The recordings and how many packets of each opcode they hold. */
struct expected {
    const char *name;
    uint32_t count;
    const char *opcodes; /* in the order of their numbers */
};

static const struct expected captures[] = {
    {"cm-rping", 68,
     "RC SEND_ONLY 22, RC WRITE_ONLY 3, RC READ_REQUEST 3, RC READ_RESPONSE_ONLY 3, RC ACKNOWLEDGE "
     "25, UD SEND_ONLY 12"},
    {"ipv6-mtu4096", 53,
     "RC SEND_ONLY 8, RC WRITE_FIRST 7, RC WRITE_MIDDLE 5, RC WRITE_LAST 7, RC READ_REQUEST 2, RC "
     "READ_RESPONSE_FIRST 2, RC READ_RESPONSE_LAST 2, RC ACKNOWLEDGE 15, UD SEND_ONLY 5"},
    {"nvme-rdma", 378,
     "RC SEND_FIRST 1, RC SEND_LAST 1, RC SEND_ONLY 70, RC WRITE_FIRST 19, RC WRITE_MIDDLE 71, RC "
     "WRITE_LAST 19, RC WRITE_ONLY 2, RC READ_REQUEST 4, RC READ_RESPONSE_FIRST 2, RC "
     "READ_RESPONSE_MIDDLE 28, RC READ_RESPONSE_LAST 2, RC READ_RESPONSE_ONLY 2, RC ACKNOWLEDGE "
     "117, RC SEND_ONLY_INVALIDATE 25, UD SEND_ONLY 15"},
    {"rc-loss", 80,
     "RC WRITE_FIRST 6, RC WRITE_MIDDLE 19, RC WRITE_LAST 7, RC READ_REQUEST 10, RC "
     "READ_RESPONSE_FIRST 6, RC READ_RESPONSE_MIDDLE 18, RC READ_RESPONSE_LAST 6, RC ACKNOWLEDGE "
     "8"},
    {"rc-ops-naks", 52,
     "RC SEND_FIRST 1, RC SEND_LAST_IMMEDIATE 1, RC SEND_ONLY 3, RC WRITE_FIRST 4, RC WRITE_MIDDLE "
     "3, RC WRITE_LAST 3, RC WRITE_LAST_IMMEDIATE 1, RC WRITE_ONLY 6, RC WRITE_ONLY_IMMEDIATE 1, "
     "RC READ_REQUEST 4, RC READ_RESPONSE_FIRST 2, RC READ_RESPONSE_MIDDLE 1, RC "
     "READ_RESPONSE_LAST 2, RC READ_RESPONSE_ONLY 1, RC ACKNOWLEDGE 16, RC FETCH_ADD 1, RC "
     "SEND_ONLY_INVALIDATE 2"},
    {"rc-rnr", 48, "RC SEND_ONLY 30, RC ACKNOWLEDGE 18"},
    {"rc-send", 36,
     "RC SEND_FIRST 6, RC SEND_MIDDLE 6, RC SEND_LAST 6, RC SEND_ONLY 6, RC ACKNOWLEDGE 12"},
    {"rc-write-read-atomic", 80,
     "RC WRITE_FIRST 5, RC WRITE_MIDDLE 5, RC WRITE_LAST 5, RC WRITE_ONLY 10, RC READ_REQUEST 5, "
     "RC READ_RESPONSE_FIRST 5, RC READ_RESPONSE_MIDDLE 5, RC READ_RESPONSE_LAST 5, RC ACKNOWLEDGE "
     "15, RC ATOMIC_ACKNOWLEDGE 10, RC COMPARE_SWAP 5, RC FETCH_ADD 5"},
    {"ud-uc-srq", 32,
     "RC SEND_ONLY 8, RC ACKNOWLEDGE 8, UC SEND_FIRST 4, UC SEND_MIDDLE 4, UC SEND_LAST 4, UD "
     "SEND_ONLY 4"},
};

#define CAPTURE_COUNT (sizeof captures / sizeof captures[0])

static struct pcap open_capture(const char *name)
{
    char path[4096];
    struct pcap pcap;
    (void)snprintf(path, sizeof path, "%s/%s.pcap", folder, name);
    const char *wrong = pcap_read(path, &pcap);
    if (wrong != NULL) {
        fail_msg("%s: %s", path, wrong);
    }
    return pcap;
}

static void rebuild(const char *name, uint32_t number, const struct pcap_frame *captured,
                    struct frame *ret_frame)
{
    const char *refused = frame_parse(captured->bytes, captured->length, ret_frame);
    if (refused != NULL) {
        fail_msg("%s: frame %u is refused: %s", name, number, refused);
    }
    uint8_t built[FRAME_MAX];
    uint32_t length = frame_build(ret_frame, built);
    for (uint32_t i = 0; i < length && i < captured->length; i++) {
        if (built[i] != captured->bytes[i]) {
            fail_msg("%s: frame %u, byte %u: captured %02x, built %02x", name, number, i,
                     captured->bytes[i], built[i]);
        }
    }
    assert_int_equal(length, captured->length);
}

/* "RC SEND_FIRST 6, RC SEND_MIDDLE 6" */
static void describe_opcodes(const uint32_t counts[256], char *ret_text, size_t capacity)
{
    static const char *const services[] = {"RC", "UC", "RD", "UD", "CNP", "XRC"};
    size_t length = 0;
    ret_text[0] = '\0';
    for (int opcode = 0; opcode < 256; opcode++) {
        if (counts[opcode] != 0) {
            const struct opcode_info *info = opcode_lookup((uint8_t)opcode);
            length += (size_t)snprintf(ret_text + length, capacity - length, "%s%s %s %u",
                                       length == 0 ? "" : ", ", services[info->service], info->name,
                                       counts[opcode]);
            assert_true(length < capacity);
        }
    }
}

static void every_packet_is_built_anew(void **state)
{
    uint32_t total = 0;
    for (size_t i = 0; i < CAPTURE_COUNT; i++) {
        struct pcap pcap = open_capture(captures[i].name);
        uint32_t counts[256] = {0};
        char text[2048];
        for (uint32_t k = 0; k < pcap.count; k++) {
            struct frame frame;
            rebuild(captures[i].name, k + 1, &pcap.frames[k], &frame);
            counts[frame.packet.opcode]++;
        }
        describe_opcodes(counts, text, sizeof text);
        print_message("%s: %u packets: %s\n", captures[i].name, pcap.count, text);
        assert_int_equal(pcap.count, captures[i].count);
        assert_string_equal(text, captures[i].opcodes);
        total += pcap.count;
        pcap_free(&pcap);
    }
    print_message("%u of %u captures, %u packets\n", (unsigned)CAPTURE_COUNT,
                  (unsigned)CAPTURE_COUNT, total);
}

/* Bits that a receiver ignores: what a sender sets there is not seen, and when built anew they are
 * 0 or follow from other fields. The only ones that may be lost. */
enum value {
    VALUE_ZERO,
    VALUE_HOP_LIMIT, /* 0 stands for 64 */
    VALUE_LID,       /* permissive where the hop limit is above 1 */
    VALUE_SUBNET_LOCAL,
};

enum part {
    PART_BTH,
    PART_XRCETH,
    PART_DETH,
    PART_AETH,
    PART_MAD,
    PART_PAD, /* as many bytes as there are */
};

struct ignored {
    const char *what;
    enum part part;
    uint16_t kind; /* of the MAD; 0: any */
    uint16_t first, last;
    uint8_t mask;
    enum value value;
    uint32_t seen;
};

static struct ignored ignored[] = {
    {"XRCETH: reserved [IBA A14]", PART_XRCETH, 0, 0, 0, 0xff, VALUE_ZERO, 0},
    {"DETH: reserved [IBA 9.3.2]", PART_DETH, 0, 4, 4, 0xff, VALUE_ZERO, 0},
    {"AETH: reserved bit of the syndrome [IBA 9.7.5.1.2]", PART_AETH, 0, 0, 0, 0x80, VALUE_ZERO, 0},
    {"pad bytes, when a wrong pad count makes them of payload", PART_PAD, 0, 0, 2, 0xff, VALUE_ZERO,
     0},
    {"MAD: status and class specific, no use in a Send [IBA 13.4.3]", PART_MAD, 0, 4, 7, 0xff,
     VALUE_ZERO, 0},
    {"MAD: reserved behind the attribute [IBA 13.4.3]", PART_MAD, 0, 18, 19, 0xff, VALUE_ZERO, 0},
    {"REQ: reserved", PART_MAD, CM_MESSAGE_REQ, 28, 28, 0xff, VALUE_ZERO, 0},
    {"REQ: reserved", PART_MAD, CM_MESSAGE_REQ, 48, 51, 0xff, VALUE_ZERO, 0},
    {"REQ: local EECN, of reliable datagrams", PART_MAD, CM_MESSAGE_REQ, 60, 62, 0xff, VALUE_ZERO,
     0},
    {"REQ: remote EECN, of reliable datagrams", PART_MAD, CM_MESSAGE_REQ, 64, 66, 0xff, VALUE_ZERO,
     0},
    {"REQ: RDC exists, of reliable datagrams", PART_MAD, CM_MESSAGE_REQ, 74, 74, 0x08, VALUE_ZERO,
     0},
    {"REQ: hop limit 0 stands for 64", PART_MAD, CM_MESSAGE_REQ, 117, 117, 0xff, VALUE_HOP_LIMIT,
     0},
    {"REQ: LIDs, which RoCE has not, follow from the hop limit", PART_MAD, CM_MESSAGE_REQ, 76, 79,
     0xff, VALUE_LID, 0},
    {"REQ: subnet local follows from the hop limit", PART_MAD, CM_MESSAGE_REQ, 118, 118, 0x08,
     VALUE_SUBNET_LOCAL, 0},
    {"REQ: reserved behind the flow label", PART_MAD, CM_MESSAGE_REQ, 114, 114, 0x0f, VALUE_ZERO,
     0},
    {"REQ: reserved behind the flow label", PART_MAD, CM_MESSAGE_REQ, 115, 115, 0xc0, VALUE_ZERO,
     0},
    {"REQ: reserved behind subnet local", PART_MAD, CM_MESSAGE_REQ, 118, 118, 0x07, VALUE_ZERO, 0},
    {"REQ: reserved behind the ACK timeout", PART_MAD, CM_MESSAGE_REQ, 119, 119, 0x07, VALUE_ZERO,
     0},
    {"REQ: alternate path, which is not taken", PART_MAD, CM_MESSAGE_REQ, 120, 163, 0xff,
     VALUE_ZERO, 0},
    {"rdma_cm: reserved nibble [IBA A11.6]", PART_MAD, CM_MESSAGE_REQ, 165, 165, 0x0f, VALUE_ZERO,
     0},
    {"rdma_cm: before an IPv4 address", PART_MAD, CM_MESSAGE_REQ, 168, 179, 0xff, VALUE_ZERO, 0},
    {"rdma_cm: before an IPv4 address", PART_MAD, CM_MESSAGE_REQ, 184, 195, 0xff, VALUE_ZERO, 0},
    {"REP: reserved behind SRQ", PART_MAD, CM_MESSAGE_REP, 51, 51, 0x0f, VALUE_ZERO, 0},
    {"REJ: reserved behind what it answers", PART_MAD, CM_MESSAGE_REJ, 32, 32, 0x3f, VALUE_ZERO, 0},
    {"REJ: reserved behind the length of the information", PART_MAD, CM_MESSAGE_REJ, 33, 33, 0x01,
     VALUE_ZERO, 0},
    {"DREQ: reserved", PART_MAD, CM_MESSAGE_DREQ, 35, 35, 0xff, VALUE_ZERO, 0},
    {"SIDR_REQ: reserved", PART_MAD, CM_MESSAGE_SIDR_REQ, 30, 31, 0xff, VALUE_ZERO, 0},
};

#define IGNORED_COUNT (sizeof ignored / sizeof ignored[0])

/* Offset of a part in a frame that parses; 0: it has none. */
static uint32_t part_offset(const uint8_t *bytes, const struct frame *frame,
                            const struct ignored *field)
{
    const struct opcode_info *info = frame->packet.info;
    uint32_t bth = frame_bth_offset(bytes);
    switch (field->part) {
    case PART_BTH:
        return bth;
    case PART_XRCETH:
        return info->has_xrceth ? bth + BTH_LENGTH : 0;
    case PART_DETH:
        return info->has_deth ? bth + BTH_LENGTH : 0;
    case PART_AETH:
        return info->has_aeth ? bth + BTH_LENGTH : 0;
    case PART_MAD:
        return frame->is_management &&
                       (field->kind == 0 || field->kind == (uint16_t)frame->message.kind)
                   ? bth + info->header_length
                   : 0;
    case PART_PAD:
        return bth + info->header_length + frame->packet.payload_length;
    }
    return 0;
}

/* Whether a row applies to the k-th byte of its part. Those of rdma_cm's header want the header,
 * and IPv4 in it. */
static bool applies(const struct frame *frame, const struct ignored *field, uint32_t k)
{
    if (field->part == PART_PAD) {
        return k < packet_pad(frame->packet.payload_length);
    }
    if (field->part != PART_MAD || field->kind != CM_MESSAGE_REQ || field->first < 164) {
        return true;
    }
    return frame->has_rdma_cm_header && (field->first == 165 || frame->rdma_cm.ip_version == 4);
}

static void put(uint8_t *byte, uint8_t mask, uint8_t value, struct ignored *field)
{
    field->seen += (*byte & mask) != (value & mask);
    *byte = (uint8_t)((*byte & ~mask) | (value & mask));
}

/* What a sender writes there. `mad`: where the field's MAD begins. */
static uint8_t right_value(const struct ignored *field, const uint8_t *mad)
{
    uint8_t hop_limit = field->value == VALUE_ZERO ? 0 : mad[117];
    switch (field->value) {
    case VALUE_ZERO:
        break;
    case VALUE_LID:
        return hop_limit > 1 ? 0xff : 0;
    case VALUE_SUBNET_LOCAL:
        return hop_limit > 1 ? 0 : 0x08;
    case VALUE_HOP_LIMIT:
        return hop_limit == 0 ? 64 : hop_limit;
    }
    return 0;
}

/* Makes the bytes what has to come out. */
static void ignore(uint8_t *bytes, const struct frame *frame)
{
    for (size_t i = 0; i < IGNORED_COUNT; i++) {
        struct ignored *field = &ignored[i];
        uint32_t part = part_offset(bytes, frame, field);
        for (uint32_t k = field->first; part != 0 && k <= field->last; k++) {
            if (applies(frame, field, k)) {
                put(&bytes[part + k], field->mask, right_value(field, bytes + part), field);
            }
        }
    }
}

enum fate {
    REFUSED,
    SAME,
    IGNORED,
    FATE_COUNT,
};

static const char *const fate_names[FATE_COUNT] = {"refused", "built as they are",
                                                   "ignored by rule"};

static uint32_t
    right_checksums; /* flipped bits that made a UDP checksum of none, and the right one */

/* A frame with one bit flipped. */
static enum fate judge(const uint8_t *bytes, uint32_t length, const uint8_t *captured)
{
    struct frame frame;
    uint8_t built[FRAME_MAX], wanted[FRAME_MAX];
    if (frame_parse(bytes, length, &frame) != NULL) {
        return REFUSED;
    }
    assert_int_equal(frame_build(&frame, built), length);
    if (memcmp(built, bytes, length) == 0) {
        right_checksums += frame.has_udp_checksum;
        return SAME;
    }
    memcpy(wanted, bytes, length);
    ignore(wanted, &frame);
    frame_seal(wanted, length);
    for (uint32_t i = 0; i < length; i++) {
        if (built[i] != wanted[i]) {
            fail_msg("byte %u: %02x was changed to %02x and came out as %02x", i, captured[i],
                     bytes[i], built[i]);
        }
    }
    return IGNORED;
}

/* Headers of every frame, and the whole of one that is not long. */
static bool is_tried(uint32_t offset, uint32_t length)
{
    return length <= 400 || offset < 120 || offset + 12 >= length;
}

static void flip_bits(bool sealed, uint32_t ret_fates[FATE_COUNT])
{
    for (size_t i = 0; i < CAPTURE_COUNT; i++) {
        struct pcap pcap = open_capture(captures[i].name);
        for (uint32_t k = 0; k < pcap.count; k++) {
            const struct pcap_frame *captured = &pcap.frames[k];
            uint8_t bytes[FRAME_MAX];
            for (uint32_t bit = ETHERNET_LENGTH * 8; bit < captured->length * 8; bit++) {
                if (is_tried(bit / 8, captured->length)) {
                    memcpy(bytes, captured->bytes, captured->length);
                    bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
                    if (sealed) {
                        frame_seal(bytes, captured->length);
                    }
                    ret_fates[judge(bytes, captured->length, captured->bytes)]++;
                }
            }
        }
        pcap_free(&pcap);
    }
    for (int i = 0; i < FATE_COUNT; i++) {
        print_message("%u %s\n", ret_fates[i], fate_names[i]);
    }
}

/* On the way: all are refused but for what the ICRC leaves out. */
static void a_bit_flipped_on_the_way_is_noticed(void **state)
{
    uint32_t fates[FATE_COUNT] = {0};
    right_checksums = 0;
    flip_bits(false, fates);
    uint32_t unprotected_ipv6 = 0, packets = 0;
    for (size_t i = 0; i < CAPTURE_COUNT; i++) {
        struct pcap pcap = open_capture(captures[i].name);
        packets += pcap.count;
        for (uint32_t k = 0; k < pcap.count; k++) {
            unprotected_ipv6 += pcap.frames[k].bytes[12] == 0x86;
        }
        pcap_free(&pcap);
    }
    /* FECN, BECN and the six reserved bits beside them, which a tag is put into; of IPv6 traffic
     * class, flow label and hop limit, which IPv4 has under its own checksum. */
    assert_int_equal(fates[SAME], 8 * packets + (8 + 20 + 8) * unprotected_ipv6 + right_checksums);
    assert_true(right_checksums <= 1);
    assert_int_equal(fates[IGNORED], 0);
}

/* By the sender, checksums and ICRC made right: nothing is lost but what is to be ignored. */
static void a_bit_set_by_the_sender_is_kept_or_refused(void **state)
{
    uint32_t fates[FATE_COUNT] = {0};
    for (size_t i = 0; i < IGNORED_COUNT; i++) {
        ignored[i].seen = 0;
    }
    uint32_t unused = 0;
    flip_bits(true, fates);
    for (size_t i = 0; i < IGNORED_COUNT; i++) {
        print_message("%6u %s\n", ignored[i].seen, ignored[i].what);
        unused += ignored[i].seen == 0;
    }
    assert_int_equal(unused, 0);
    assert_true(fates[REFUSED] > 0 && fates[SAME] > fates[IGNORED]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_packet_is_built_anew),
        cmocka_unit_test(a_bit_flipped_on_the_way_is_noticed),
        cmocka_unit_test(a_bit_set_by_the_sender_is_kept_or_refused),
    };
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
