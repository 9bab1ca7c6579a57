/* Fixed fields, from the end of the BTH: revision, flags, duplicates (2); the tag's high bits,
 * expected (3); its low ones, unacked (3); 0, source (3). */
#include "rnic/wire/report.h"

#include <string.h>

#include "rnic/base/bytes.h"

#define REVISION           2u
#define FLAG_ASKS          1u
#define FLAG_ONLY_RECEIVES 2u

enum packet_refusal report_parse(const uint8_t *bytes, size_t length, struct report *ret_report)
{
    if (length < REPORT_LENGTH) {
        return REFUSED_TRUNCATED;
    }
    const uint8_t *fields = bytes + BTH_LENGTH;
    size_t rest = length - REPORT_LENGTH;
    if (fields[0] != REVISION) {
        return REFUSED_VERSION;
    }
    if (rest > REPORT_BITMAP_MAX || rest % 4 != 0) {
        return REFUSED_PAYLOAD_LENGTH;
    }
    if ((bytes_load_u16(bytes + 2) | 0x8000u) != PKEY_DEFAULT.value) {
        return REFUSED_PKEY;
    }
    *ret_report = (struct report){
        .destination = packet_destination(bytes),
        .acknowledged = {bytes_load_u24(bytes + 9)},
        .asks = (fields[1] & FLAG_ASKS) != 0,
        .only_receives = (fields[1] & FLAG_ONLY_RECEIVES) != 0,
        .duplicates = bytes_load_u16(fields + 2),
        .tag = (uint16_t)((fields[4] & 0x1fu) << 8 | fields[8]),
        .expected = {bytes_load_u24(fields + 5)},
        .unacked = {bytes_load_u24(fields + 9)},
        .source = {bytes_load_u24(fields + 13)},
        .bitmap = bytes + REPORT_LENGTH,
        .bitmap_length = (uint32_t)rest,
    };
    return REFUSED_NOT;
}

void report_build(const struct report *report, uint8_t ret_header[REPORT_LENGTH])
{
    uint8_t *fields = ret_header + BTH_LENGTH;
    memset(ret_header, 0, REPORT_LENGTH);
    ret_header[0] = REPORT_OPCODE;
    ret_header[1] = REPORT_VERSION;
    bytes_store_u16(ret_header + 2, PKEY_DEFAULT.value);
    bytes_store_u24(ret_header + 5, report->destination.value);
    bytes_store_u24(ret_header + 9, report->acknowledged.value);
    fields[0] = REVISION;
    fields[1] = (uint8_t)((report->asks ? FLAG_ASKS : 0) |
                          (report->only_receives ? FLAG_ONLY_RECEIVES : 0));
    bytes_store_u16(fields + 2, report->duplicates);
    fields[4] = (uint8_t)(report->tag >> 8);
    fields[8] = (uint8_t)report->tag;
    bytes_store_u24(fields + 5, report->expected.value);
    bytes_store_u24(fields + 9, report->unacked.value);
    bytes_store_u24(fields + 13, report->source.value);
}
