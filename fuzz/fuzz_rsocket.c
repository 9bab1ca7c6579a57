/* What an rsocket hears from its peer: the private data of the set-up, immediate data, and the
 * headers of datagrams. The first byte says which; what parses is built again and parses to the
 * same. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "rnic/base/check.h"
#include "rnic/rdmacm/rsocket_codec.h"

static bool same_place(const struct rsocket_place *one, const struct rsocket_place *other)
{
    return one->address == other->address && one->key == other->key && one->length == other->length;
}

static void try_hello(const uint8_t *data, size_t size)
{
    struct rsocket_hello hello, again;
    if (!rsocket_hello_parse(data, size, &hello)) {
        return;
    }
    CHECK(hello.table.length > 0);
    CHECK(hello.has_mappings || hello.mappings == 0);
    CHECK(rsocket_round_mappings(hello.mappings) == hello.mappings);
    uint8_t bytes[RSOCKET_HELLO_LENGTH];
    rsocket_hello_build(&hello, bytes);
    CHECK(rsocket_hello_parse(bytes, sizeof bytes, &again));
    CHECK(again.is_big_endian == hello.is_big_endian && again.credits == hello.credits &&
          again.has_mappings == hello.has_mappings && again.mappings == hello.mappings &&
          same_place(&again.table, &hello.table) && same_place(&again.buffer, &hello.buffer));
}

static void try_message(const uint8_t *data, size_t size)
{
    uint32_t immediate;
    if (size < sizeof immediate) {
        return;
    }
    memcpy(&immediate, data, sizeof immediate);
    struct rsocket_message message = rsocket_message_decode(immediate);
    CHECK(message.operation < 8 && message.value <= RSOCKET_VALUE_MAX);
    CHECK(rsocket_message_encode((enum rsocket_operation)message.operation, message.value) ==
          immediate);
}

static void try_datagram(const uint8_t *data, size_t size)
{
    struct sockaddr_storage source;
    size_t length = rsocket_datagram_parse(data, size, &source);
    if (length == 0) {
        return;
    }
    CHECK(length <= size && length <= RSOCKET_DATAGRAM_HEADER_MAX);
    uint8_t bytes[RSOCKET_DATAGRAM_HEADER_MAX];
    CHECK(rsocket_datagram_build((const struct sockaddr *)&source, bytes) == length);
    CHECK(memcmp(bytes, data, length) == 0);
}

static void try_udp(const struct sockaddr *source, const uint8_t *data, size_t size)
{
    struct rsocket_udp_header header, again;
    size_t length = rsocket_udp_parse(data, size, source, &header);
    if (length == 0) {
        return;
    }
    CHECK(length <= size && length <= RSOCKET_UDP_HEADER_MAX);
    uint8_t bytes[RSOCKET_UDP_HEADER_MAX];
    CHECK(rsocket_udp_build(&header, source, bytes) == length);
    CHECK(rsocket_udp_parse(bytes, length, source, &again) == length);
    CHECK(again.operation == header.operation && again.qpn == header.qpn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sockaddr_in ipv4 = {.sin_family = AF_INET};
    static const struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6};
    if (size == 0) {
        return 0;
    }
    switch (data[0] % 5) {
    case 0:
        try_hello(data + 1, size - 1);
        break;
    case 1:
        try_message(data + 1, size - 1);
        break;
    case 2:
        try_datagram(data + 1, size - 1);
        break;
    case 3:
        try_udp((const struct sockaddr *)&ipv4, data + 1, size - 1);
        break;
    default:
        try_udp((const struct sockaddr *)&ipv6, data + 1, size - 1);
        break;
    }
    return 0;
}
