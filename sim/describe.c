#include "sim/describe.h"

#include <stdarg.h>
#include <stdio.h>

#include "rnic/wire/mad.h"
#include "rnic/wire/report.h"

struct text {
    char *at;
    size_t left;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->at, text->left, format, arguments);
    va_end(arguments);
    if (length > 0 && (size_t)length < text->left) {
        text->at += length;
        text->left -= (size_t)length;
    }
}

static const char *nak_name(uint8_t code)
{
    static const char *const names[] = {
        [NAK_SEQUENCE] = "sequence",
        [NAK_INVALID_REQUEST] = "invalid_request",
        [NAK_REMOTE_ACCESS] = "remote_access",
        [NAK_REMOTE_OPERATION] = "remote_operation",
        [NAK_INVALID_RD_REQUEST] = "invalid_rd_request",
    };
    return code < sizeof names / sizeof names[0] ? names[code] : "?";
}

static void add_name(struct text *text, const struct packet *packet)
{
    if (packet->info->operation == OPERATION_ACKNOWLEDGE) {
        if (packet->aeth.kind == AETH_ACK) {
            add(text, "ACK");
        } else if (packet->aeth.kind == AETH_RNR_NAK) {
            add(text, "RNR_NAK");
        } else {
            add(text, "NAK %s", nak_name(packet->aeth.value));
        }
        return;
    }
    static const char *const services[8] = {
        [SERVICE_UC] = "UC_", [SERVICE_RD] = "RD_", [SERVICE_UD] = "UD_", [SERVICE_XRC] = "XRC_"};
    const char *service = services[packet->info->service & 7];
    add(text, "%s%s", service == NULL ? "" : service, packet->info->name);
}

static bool add_management(struct text *text, const struct packet *packet, bool detail)
{
    struct cm_message message;
    if (packet->info->service != SERVICE_UD || !qpn_equal(packet->destination, QPN_MANAGEMENT) ||
        cm_message_parse(packet->payload, packet->payload_length, &message) != STATUS_OK) {
        return false;
    }
    add(text, "%s", cm_message_kind_name(message.kind));
    if (message.kind == CM_MESSAGE_REJ) {
        add(text, " reason=%u", message.reject_reason);
    } else if (message.kind == CM_MESSAGE_SIDR_REP) {
        add(text, " status=%u", message.sidr_status);
    }
    if (detail) {
        add(text, " local=%x remote=%x", message.local_id, message.remote_id);
    }
    return true;
}

/* "REPORT psn=8 expected=9 +1 +3 asks" */
static bool describe_report(unsigned from, unsigned to, const uint8_t *bytes, uint32_t length,
                            bool detail, char ret_text[DESCRIPTION_MAX])
{
    struct text text = {ret_text, DESCRIPTION_MAX};
    struct report report;
    if (!report_is_one(bytes, length) || report_parse(bytes, length, &report) != REFUSED_NOT) {
        return false;
    }
    add(&text, "%c>%c REPORT psn=%u expected=%u", 'A' + (int)from, 'A' + (int)to,
        report.acknowledged.value, report.expected.value);
    for (uint32_t i = 0; i < report.bitmap_length * 8; i++) {
        if ((report.bitmap[i / 8] >> i % 8 & 1) != 0) {
            add(&text, " +%u", i);
        }
    }
    if (report.asks) {
        add(&text, " asks");
    }
    if (detail) {
        add(&text, " qp=%u duplicates=%u", report.destination.value, report.duplicates);
    }
    return true;
}

/* `packet` NULL: it did not parse. */
static void describe(unsigned from, unsigned to, const struct packet *packet, uint32_t length,
                     bool detail, char ret_text[DESCRIPTION_MAX])
{
    struct text text = {ret_text, DESCRIPTION_MAX};
    add(&text, "%c>%c ", 'A' + (int)from, 'A' + (int)to);
    if (packet == NULL) {
        add(&text, "unparsable length=%u", length);
        return;
    }
    if (add_management(&text, packet, detail)) {
        return;
    }
    add_name(&text, packet);
    if (packet->info->operation != OPERATION_CONGESTION) {
        add(&text, " psn=%u", packet->psn.value);
    }
    if (packet->info->has_reth) {
        add(&text, " length=%u", packet->dma_length);
    }
    if (packet->segment_shift != 0) {
        add(&text, " referred=%u", packet->payload_length);
    }
    if (detail) {
        add(&text, " qp=%u", packet->destination.value);
        if (packet->info->has_payload) {
            add(&text, " payload=%u", packet->payload_length);
        }
        if (packet->info->has_aeth) {
            add(&text, " syndrome=%u.%u msn=%u", packet->aeth.kind, packet->aeth.value,
                packet->aeth.msn);
        }
        if (packet->ack_request) {
            add(&text, " ackreq");
        }
    }
}

void describe_bytes(unsigned from, unsigned to, const uint8_t *bytes, uint32_t length, bool detail,
                    char ret_text[DESCRIPTION_MAX])
{
    struct packet packet;
    if (!describe_report(from, to, bytes, length, detail, ret_text)) {
        bool parsed = packet_parse(bytes, length, &packet) == REFUSED_NOT;
        describe(from, to, parsed ? &packet : NULL, length, detail, ret_text);
    }
}

void describe_frame(struct simulator *simulator, const struct frame *frame, enum fate fate)
{
    if (simulator->trace == NULL) {
        return;
    }
    static const char *const fates[] = {
        [FATE_PASS] = "",
        [FATE_LOST] = " lost",
        [FATE_OVERFLOWED] = " lost",
        [FATE_CORRUPTED] = " corrupted",
        [FATE_DUPLICATED] = " duplicated",
        [FATE_DELAYED] = " delayed",
        [FATE_MARKED] = " marked",
        [FATE_UNREADABLE] = " unreadable",
        [FATE_REFUSED] = " refused",
    };
    char text[DESCRIPTION_MAX];
    struct packet packet;
    bool detail = simulator->trace_detail;
    if (!describe_report(frame->from, frame->to, frame->bytes, frame->length, detail, text)) {
        bool parsed = network_parse(frame, &packet) == REFUSED_NOT;
        describe(frame->from, frame->to, parsed ? &packet : NULL, frame->length, detail, text);
    }
    char carried[32] = "";
    if (frame->acknowledges) {
        (void)snprintf(carried, sizeof carried, " acknowledges=%u", frame->acknowledged.value);
    }
    simulator_note(simulator, "%s%s%s", text, carried, fates[fate]);
}
