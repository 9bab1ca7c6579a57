/* What a member of a group may send: who lives, calls, replies to them. What parses is within the
 * limits, points into what was sent, and packs to the same bytes again. The first byte chooses the
 * parser, the second the group. */
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "rnic/base/check.h"
#include "weir/group/call_message.h"
#include "weir/group/swim_message.h"

static void check_swim(uint32_t size, const uint8_t *data, size_t length)
{
    struct swim_message message;
    if (swim_message_parse(data, length, size, &message) != NULL) {
        return;
    }
    uint8_t bytes[SWIM_HEADER_LENGTH];
    swim_header_pack(&message, bytes);
    CHECK(memcmp(bytes, data, sizeof(bytes)) == 0);
    CHECK(message.entries + 4 * message.entry_count == data + length);
    CHECK(message.subject < size && (message.from < size || message.from == SWIM_NOBODY));
    for (unsigned i = 0; i < message.news_count; i++) {
        CHECK(swim_message_news(&message, i).rank < size);
    }
    for (unsigned i = 0; i < message.digest_count; i++) {
        CHECK(swim_message_digest(&message, i) ==
              (message.digests[2 * i] << 8 | message.digests[2 * i + 1]));
    }
    for (unsigned i = 0; i < message.entry_count; i++) {
        CHECK(message.block * SWIM_BLOCK + i < size);
        CHECK((uint8_t)swim_message_entry(&message, i) == message.entries[4 * i + 3]);
    }
}

static void check_ranks(const struct ranks *ranks)
{
    uint64_t least = 0, total = 0;
    for (size_t i = ranks->begin; i < ranks->end; i++) {
        CHECK(ranks->ranges[i].first >= least && ranks->ranges[i].count > 0);
        least = (uint64_t)ranks->ranges[i].first + ranks->ranges[i].count + 1;
        total += ranks->ranges[i].count;
    }
    CHECK(least <= WEIR_GROUP_SIZE_MAX + 1 && total == ranks->total);
}

static void check_request(const uint8_t *data, size_t length)
{
    struct call_request request;
    if (call_request_parse(data, length, &request) != NULL) {
        return;
    }
    uint8_t header[CALL_REQUEST_LENGTH];
    size_t packed = ranks_packed_length(&request.below);
    uint8_t *ranks = malloc(packed);
    check_ranks(&request.below);
    call_request_pack(&request, header);
    ranks_pack(&request.below, ranks);
    CHECK(memcmp(header, data, sizeof(header)) == 0);
    CHECK(memcmp(ranks, data + sizeof(header), packed) == 0);
    CHECK(request.bytes + request.length == data + length);
    CHECK(request.bytes == data + sizeof(header) + packed);
    free(ranks);
    ranks_fini(&request.below);
}

static void check_reply(uint32_t size, const uint8_t *data, size_t length)
{
    struct ranks asked = {0};
    struct call_reply reply;
    CHECK(ranks_add(&asked, 3, size) && ranks_add(&asked, size + 10, 5));
    if (call_reply_parse(data, length, &asked, &reply) == NULL) {
        uint32_t total = 0;
        for (size_t i = 0; i < reply.failures.count; i++) {
            const struct weir_group_failure *failure = &reply.failures.entries[i];
            CHECK(ranks_has(&asked, failure->first));
            CHECK(ranks_has(&asked, failure->first + failure->count - 1));
            CHECK(failure->status != WEIR_OK && failure->status < WEIR_STATUS_COUNT);
            total += failure->count;
        }
        CHECK(total == reply.failures.total && total <= asked.total);
        CHECK(reply.bytes + reply.length == data + length);
        CHECK(reply.has_bytes ? total < asked.total : reply.length == 0);
        failures_fini(&reply.failures);
    }
    ranks_fini(&asked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    uint32_t members = data[1] == 255 ? WEIR_GROUP_SIZE_MAX : 1 + data[1] * 3u;
    switch (data[0] % 3) {
    case 0:
        check_swim(members, data + 2, size - 2);
        break;
    case 1:
        check_request(data + 2, size - 2);
        break;
    default:
        check_reply(members, data + 2, size - 2);
        break;
    }
    return 0;
}
