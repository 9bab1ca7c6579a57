/* A MAD: what parses is built, parsed and built again to the same bytes; likewise the rdma_cm
 * header in a REQ. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "rnic/base/check.h"
#include "rnic/wire/mad.h"

static void check_rdma_cm_header(const uint8_t *private_data)
{
    struct rdma_cm_header header;
    if (rdma_cm_header_parse(private_data, &header) != STATUS_OK) {
        return;
    }
    uint8_t first[RDMA_CM_HEADER_LENGTH], second[RDMA_CM_HEADER_LENGTH];
    rdma_cm_header_build(&header, first);
    CHECK(rdma_cm_header_parse(first, &header) == STATUS_OK);
    rdma_cm_header_build(&header, second);
    CHECK(memcmp(first, second, sizeof first) == 0);
    CHECK(header.ip_version == 6 ||
          (gid_is_ipv4(&header.source) && gid_is_ipv4(&header.destination)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cm_message message;
    if (cm_message_parse(data, size, &message) != STATUS_OK) {
        return 0;
    }
    CHECK(strcmp(cm_message_kind_name(message.kind), "unknown") != 0);
    CHECK(message.reject_info_length <= sizeof message.reject_info);

    uint8_t first[MAD_LENGTH], second[MAD_LENGTH];
    cm_message_build(&message, first);
    CHECK(cm_message_parse(first, sizeof first, &message) == STATUS_OK);
    cm_message_build(&message, second);
    CHECK(memcmp(first, second, sizeof first) == 0);
    uint32_t private_max = cm_message_private_max(message.kind);
    CHECK(memcmp(first + MAD_LENGTH - private_max, data + MAD_LENGTH - private_max, private_max) ==
          0);
    if (message.kind == CM_MESSAGE_REQ) {
        check_rdma_cm_header(message.private_data);
    }
    return 0;
}
