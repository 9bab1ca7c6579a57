#include "rnic/rdmacm/rsocket_codec.h"

#include <endian.h>
#include <string.h>

#define HELLO_VERSION   1u
#define FLAG_BIG_ENDIAN 1u
#define FLAG_MAPPINGS   2u
#define SCALE_BITS      8
#define OPERATION_SHIFT 29
#define HEADER_IPV4     8u
#define HEADER_IPV6     24u
#define UDP_TAG         0x55555555u
#define UDP_HEADER_IPV4 16u
#define UDP_HEADER_IPV6 28u
#define UDP_ADDRESS     12u
#define QPN_MASK        0xffffffu

_Static_assert(sizeof(struct rsocket_place) == RSOCKET_PLACE_LENGTH, "as in a peer's memory");
_Static_assert(sizeof(struct rsocket_mapping) == RSOCKET_MAPPING_LENGTH, "as in a peer's memory");

/* Up to 128 a number stands for itself; above, the low seven bits count units of 256. */
static uint8_t scale_of(uint32_t value)
{
    const uint32_t exact = 1u << (SCALE_BITS - 1);
    const uint32_t most = (exact - 1) << SCALE_BITS;
    if (value <= exact) {
        return (uint8_t)value;
    }
    value = value > most ? most : value;
    return (uint8_t)(exact | value >> SCALE_BITS);
}

static uint32_t value_of(uint8_t scale)
{
    const uint32_t exact = 1u << (SCALE_BITS - 1);
    return scale <= exact ? scale : (scale & ~exact) << SCALE_BITS;
}

uint32_t rsocket_round_mappings(uint32_t mappings)
{
    return value_of(scale_of(mappings));
}

static void put_place(const struct rsocket_place *place, uint8_t *bytes)
{
    uint64_t address = htobe64(place->address);
    uint32_t key = htobe32(place->key);
    uint32_t length = htobe32(place->length);
    memcpy(bytes, &address, sizeof address);
    memcpy(bytes + 8, &key, sizeof key);
    memcpy(bytes + 12, &length, sizeof length);
}

static void get_place(const uint8_t *bytes, struct rsocket_place *ret_place)
{
    uint64_t address;
    uint32_t key;
    uint32_t length;
    memcpy(&address, bytes, sizeof address);
    memcpy(&key, bytes + 8, sizeof key);
    memcpy(&length, bytes + 12, sizeof length);
    *ret_place = (struct rsocket_place){be64toh(address), be32toh(key), be32toh(length)};
}

void rsocket_hello_build(const struct rsocket_hello *hello, uint8_t *ret_bytes)
{
    memset(ret_bytes, 0, RSOCKET_HELLO_LENGTH);
    ret_bytes[0] = HELLO_VERSION;
    ret_bytes[1] = (uint8_t)((hello->is_big_endian ? FLAG_BIG_ENDIAN : 0u) |
                             (hello->has_mappings ? FLAG_MAPPINGS : 0u));
    ret_bytes[2] = (uint8_t)(hello->credits >> 8);
    ret_bytes[3] = (uint8_t)hello->credits;
    ret_bytes[7] = scale_of(hello->mappings);
    put_place(&hello->table, ret_bytes + 8);
    put_place(&hello->buffer, ret_bytes + 24);
}

bool rsocket_hello_parse(const uint8_t *bytes, size_t length, struct rsocket_hello *ret_hello)
{
    struct rsocket_hello hello;
    if (length < RSOCKET_HELLO_LENGTH || bytes[0] != HELLO_VERSION) {
        return false;
    }
    hello.is_big_endian = (bytes[1] & FLAG_BIG_ENDIAN) != 0;
    hello.has_mappings = (bytes[1] & FLAG_MAPPINGS) != 0;
    hello.credits = (uint16_t)(bytes[2] << 8 | bytes[3]);
    hello.mappings = hello.has_mappings ? value_of(bytes[7]) : 0;
    get_place(bytes + 8, &hello.table);
    get_place(bytes + 24, &hello.buffer);
    if (hello.table.length == 0) {
        return false;
    }
    *ret_hello = hello;
    return true;
}

uint32_t rsocket_message_encode(enum rsocket_operation operation, uint32_t value)
{
    return (uint32_t)operation << OPERATION_SHIFT | (value & RSOCKET_VALUE_MAX);
}

struct rsocket_message rsocket_message_decode(uint32_t immediate)
{
    return (struct rsocket_message){immediate >> OPERATION_SHIFT, immediate & RSOCKET_VALUE_MAX};
}

void rsocket_place_encode(const struct rsocket_place *place, bool swap, uint8_t *ret_bytes)
{
    struct rsocket_place raw = *place;
    if (swap) {
        raw = (struct rsocket_place){
            .address = __builtin_bswap64(place->address),
            .key = __builtin_bswap32(place->key),
            .length = __builtin_bswap32(place->length),
        };
    }
    memcpy(ret_bytes, &raw, sizeof raw);
}

void rsocket_mapping_encode(const struct rsocket_mapping *mapping, bool swap, uint8_t *ret_bytes)
{
    uint64_t offset = swap ? __builtin_bswap64(mapping->offset) : mapping->offset;
    memcpy(ret_bytes, &offset, sizeof offset);
    rsocket_place_encode(&mapping->place, swap, ret_bytes + sizeof offset);
}

size_t rsocket_datagram_build(const struct sockaddr *source, uint8_t *ret_bytes)
{
    if (source->sa_family == AF_INET) {
        const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)source;
        ret_bytes[0] = 4;
        ret_bytes[1] = HEADER_IPV4;
        memcpy(ret_bytes + 2, &ipv4->sin_port, 2);
        memcpy(ret_bytes + 4, &ipv4->sin_addr, 4);
        return HEADER_IPV4;
    }
    const struct sockaddr_in6 *ipv6 = (const struct sockaddr_in6 *)source;
    ret_bytes[0] = 6;
    ret_bytes[1] = HEADER_IPV6;
    memcpy(ret_bytes + 2, &ipv6->sin6_port, 2);
    memcpy(ret_bytes + 4, &ipv6->sin6_flowinfo, 4);
    memcpy(ret_bytes + 8, &ipv6->sin6_addr, 16);
    return HEADER_IPV6;
}

size_t rsocket_datagram_parse(const uint8_t *bytes, size_t length,
                              struct sockaddr_storage *ret_source)
{
    if (length >= HEADER_IPV4 && bytes[0] == 4 && bytes[1] == HEADER_IPV4) {
        struct sockaddr_in *ipv4 = (struct sockaddr_in *)ret_source;
        *ipv4 = (struct sockaddr_in){.sin_family = AF_INET};
        memcpy(&ipv4->sin_port, bytes + 2, 2);
        memcpy(&ipv4->sin_addr, bytes + 4, 4);
        return HEADER_IPV4;
    }
    if (length >= HEADER_IPV6 && bytes[0] == 6 && bytes[1] == HEADER_IPV6) {
        struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)ret_source;
        *ipv6 = (struct sockaddr_in6){.sin6_family = AF_INET6};
        memcpy(&ipv6->sin6_port, bytes + 2, 2);
        memcpy(&ipv6->sin6_flowinfo, bytes + 4, 4);
        memcpy(&ipv6->sin6_addr, bytes + 8, 16);
        return HEADER_IPV6;
    }
    return 0;
}

size_t rsocket_udp_build(const struct rsocket_udp_header *header, const struct sockaddr *local,
                         uint8_t *ret_bytes)
{
    bool is_ipv4 = local->sa_family == AF_INET;
    uint32_t tag = htobe32(UDP_TAG);
    uint32_t qpn = htobe32(header->qpn & QPN_MASK);
    memcpy(ret_bytes, &tag, sizeof tag);
    ret_bytes[4] = is_ipv4 ? 4 : 6;
    ret_bytes[5] = (uint8_t)header->operation;
    ret_bytes[6] = is_ipv4 ? UDP_HEADER_IPV4 : UDP_HEADER_IPV6;
    ret_bytes[7] = 0;
    memcpy(ret_bytes + 8, &qpn, sizeof qpn);
    if (is_ipv4) {
        memcpy(ret_bytes + UDP_ADDRESS, &((const struct sockaddr_in *)local)->sin_addr, 4);
    } else {
        memcpy(ret_bytes + UDP_ADDRESS, &((const struct sockaddr_in6 *)local)->sin6_addr, 16);
    }
    return ret_bytes[6];
}

size_t rsocket_udp_parse(const uint8_t *bytes, size_t length, const struct sockaddr *source,
                         struct rsocket_udp_header *ret_header)
{
    uint32_t tag;
    uint32_t qpn;
    if (length < UDP_HEADER_IPV4) {
        return 0;
    }
    bool is_ipv4 = bytes[4] == 4 && source->sa_family == AF_INET && bytes[6] == UDP_HEADER_IPV4;
    bool is_ipv6 = bytes[4] == 6 && source->sa_family == AF_INET6 && bytes[6] == UDP_HEADER_IPV6;
    memcpy(&tag, bytes, sizeof tag);
    memcpy(&qpn, bytes + 8, sizeof qpn);
    if (be32toh(tag) != UDP_TAG || (!is_ipv4 && !is_ipv6) || length < bytes[6]) {
        return 0;
    }
    *ret_header = (struct rsocket_udp_header){bytes[5], be32toh(qpn) & QPN_MASK};
    return bytes[6];
}
