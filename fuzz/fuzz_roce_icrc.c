/* One byte of flags (1: IPv6, 2: sent with DF, 4: DF in the hint), identification and hint, an ICRC
 * to judge, then a packet from the BTH on. What was sent is found, and what is accepted fits. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "rnic/base/bytes.h"
#include "rnic/base/check.h"
#include "rnic/wire/packet.h"
#include "rnic/wire/roce.h"

static struct path make_path(bool is_ipv6)
{
    struct path path = {.source_port = 55410};
    memset(path.local.bytes + 10, 0xff, 2);
    memset(path.remote.bytes + 10, 0xff, 2);
    path.local.bytes[0] = path.remote.bytes[0] = is_ipv6 ? 0xfd : 0;
    path.local.bytes[15] = 1;
    path.remote.bytes[15] = 2;
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes_reader reader = bytes_reader(data, size);
    uint8_t flags = bytes_get_u8(&reader);
    struct roce_ip sent = {bytes_get_u16(&reader), (flags & 2) != 0};
    struct roce_ip hint = {bytes_get_u16(&reader), (flags & 4) != 0};
    uint32_t claimed = bytes_get_u32(&reader);
    if (reader.failed) {
        return 0;
    }
    struct path path = make_path((flags & 1) != 0);
    size_t length = bytes_left(&reader);
    struct roce_ip found = hint;
    if (roce_icrc_verify(&path, &hint, reader.position, length, claimed, &found)) {
        CHECK(roce_icrc(&path, &found, reader.position, length) == claimed);
    }
    if (length < BTH_LENGTH || length > UINT16_MAX - 52) {
        return 0;
    }
    uint32_t icrc = roce_icrc(&path, &sent, reader.position, length);
    CHECK(roce_icrc_verify(&path, &hint, reader.position, length, icrc, &found));
    struct roce_series series = {0};
    for (int i = 0; i < 3; i++) { /* the third time by the short way */
        CHECK(roce_icrc_in_series(&series, &path, &sent, reader.position, length) == icrc);
    }
    if ((flags & 1) == 0) {
        CHECK(found.identification == sent.identification);
        CHECK(found.dont_fragment == sent.dont_fragment);
    }
    return 0;
}
