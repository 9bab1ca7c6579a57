/* The ICRC and the search for the IPv4 identification under it.
 *
 * How it is found. CRC-32 is affine: two packets of one length that differ by D have CRCs that
 * differ by D(x) * x^32 mod P, D read as a polynomial. Let D be the difference between the second
 * word of the IP header as assumed and as it was (identification, flags, fragment offset); n bytes
 * follow that word up to the ICRC. Then
 *
 *     computed ^ received = D(x) * x^(8n) * x^32 mod P,
 *
 * and as x has an inverse mod P and D has less than 32 bits, D comes out by one division. The
 * packet is right if D touches nothing but the identification and DF.
 *
 * What that costs. Let E be the damage, as a polynomial. It goes unnoticed if E + D x^k is a
 * multiple of P for a D that the receiver is ready to believe, k being the distance from the word
 * to the damage: if damage and difference together are a code word of CRC-32.
 *
 * - D = 0 alone, the hint fits as it is (and always with IPv6): all that CRC-32 promises holds. No
 *   single bit, no two, no three in packets of these lengths, no burst of up to 32 bits goes
 *   unnoticed, and of what is longer or random one in 2^32.
 * - D is one of N: as x^k is invertible mod P, each D is the difference for exactly one of the 2^32
 *   remainders that E may leave, so of random damage N / 2^32 goes unnoticed. N is 2^17 here; 2^16
 *   for who insists on the DF that the sender is known to set: 2^-16. Less for who knows the
 *   sender's habits (rnic/io/udp/senders.h).
 * - Single bits, DF known: E = x^j is D x^k for none of the places j of the longest packet (by
 * test: all). Without DF known, for two of them.
 * - Bursts of b bits, b up to 32, DF known: at one place the remainders of bursts within b bits are
 *   a linear space of dimension b, those of D one of dimension 16, in 32. Where the two are in
 *   general position they meet in 0 for b up to 16, and no burst of up to 16 bits passes; for
 *   longer ones 2^(b-16) of 2^b do. Over the 33000 places of a packet some are not in general
 *   position, so short bursts keep to the chance of 2^-16 on average and to nothing better. (By
 *   test: of all bursts of 2 to 12 bits in the longest packet.) That is an average over all of
 *   them: in the first 600 bytes, with all lengths alike frequent, it is 2^-15.3 (integrity_test).
 *
 * What else would have to be fooled: a UDP checksum, where the sender used one, the sequence of
 * PSNs, keys, and the digests of whoever moves files. Where the address family may be chosen, IPv6
 * is the safer one. */
#include "rnic/wire/roce.h"

#include <string.h>

#include "rnic/base/bytes.h"
#include "rnic/base/check.h"
#include "rnic/base/crc32.h"
#include "rnic/wire/packet.h"

#define MASKED_LRH_LENGTH 8u
#define IPV4_LENGTH       20u
#define IPV6_LENGTH       40u
#define UDP_LENGTH        8u
#define IP_PROTOCOL_UDP   17
#define IPV4_DF           0x40
#define BTH_MASKED_BYTE   4

#define POLYNOMIAL UINT32_C(0xedb88320) /* x^32 mod P: bit 31 is the coefficient of x^0 */

#define PREFIX_MAX (MASKED_LRH_LENGTH + IPV6_LENGTH + UDP_LENGTH)

/* Bytes of an IPv4 packet from behind the second word of its header to the BTH. */
#define AFTER_WORD_LENGTH (IPV4_LENGTH - 8u + UDP_LENGTH)

static uint8_t *put_ipv4(uint8_t *at, const struct path *path, const struct roce_ip *ip,
                         size_t udp_length)
{
    at[0] = 0x45;
    at[1] = 0xff; /* TOS */
    bytes_store_u16(at + 2, (uint16_t)(IPV4_LENGTH + udp_length));
    bytes_store_u16(at + 4, ip->identification);
    at[6] = ip->dont_fragment ? IPV4_DF : 0;
    at[7] = 0;
    at[8] = 0xff; /* TTL */
    at[9] = IP_PROTOCOL_UDP;
    bytes_store_u16(at + 10, 0xffff); /* checksum */
    memcpy(at + 12, path->local.bytes + 12, 4);
    memcpy(at + 16, path->remote.bytes + 12, 4);
    return at + IPV4_LENGTH;
}

static uint8_t *put_ipv6(uint8_t *at, const struct path *path, size_t udp_length)
{
    bytes_store_u32(at, 0x6fffffff); /* version; traffic class and flow label masked */
    bytes_store_u16(at + 4, (uint16_t)udp_length);
    at[6] = IP_PROTOCOL_UDP;
    at[7] = 0xff; /* hop limit */
    memcpy(at + 8, path->local.bytes, 16);
    memcpy(at + 24, path->remote.bytes, 16);
    return at + IPV6_LENGTH;
}

/* What the CRC covers before the BTH of a packet; returns its length. */
static size_t put_prefix(uint8_t *prefix, const struct path *path, const struct roce_ip *ip,
                         size_t length_from_bth)
{
    size_t udp_length = UDP_LENGTH + length_from_bth + ICRC_LENGTH;
    memset(prefix, 0xff, MASKED_LRH_LENGTH);
    uint8_t *at = prefix + MASKED_LRH_LENGTH;
    at = gid_is_ipv4(&path->local) ? put_ipv4(at, path, ip, udp_length)
                                   : put_ipv6(at, path, udp_length);
    bytes_store_u16(at, path->source_port);
    bytes_store_u16(at + 2, ROCE_UDP_PORT);
    bytes_store_u16(at + 4, (uint16_t)udp_length);
    bytes_store_u16(at + 6, 0xffff); /* checksum */
    return (size_t)(at + UDP_LENGTH - prefix);
}

struct roce_crc roce_crc_start(const struct path *path, const struct roce_ip *ip,
                               size_t length_from_bth, const uint8_t *first, size_t first_length)
{
    CHECK(first_length >= BTH_LENGTH);
    uint8_t prefix[PREFIX_MAX + BTH_LENGTH];
    uint8_t *at = prefix + put_prefix(prefix, path, ip, length_from_bth);
    memcpy(at, first, BTH_LENGTH);
    at[BTH_MASKED_BYTE] = 0xff;
    at += BTH_LENGTH;

    struct roce_crc crc = {crc32_update(0, prefix, (size_t)(at - prefix))};
    roce_crc_add(&crc, first + BTH_LENGTH, first_length - BTH_LENGTH);
    return crc;
}

void roce_crc_add(struct roce_crc *crc, const uint8_t *bytes, size_t length)
{
    if (length != 0) {
        crc->state = crc32_update(crc->state, bytes, length);
    }
}

uint32_t roce_crc_finish(const struct roce_crc *crc)
{
    return crc->state;
}

uint32_t roce_icrc(const struct path *path, const struct roce_ip *ip, const uint8_t *bytes,
                   size_t length)
{
    struct roce_crc crc = roce_crc_start(path, ip, length, bytes, length);
    return roce_crc_finish(&crc);
}

/* What the bits of an IPv4 identification change in the CRC of the prefix, from the lowest on, and
 * so what any does: that of the set bits' xor. Recomputed by test. */
#define DOUBLED_1(x, a, ...) (x), (x) ^ (a)
#define DOUBLED_2(x, a, ...) DOUBLED_1(x, __VA_ARGS__), DOUBLED_1((x) ^ (a), __VA_ARGS__)
#define DOUBLED_3(x, a, ...) DOUBLED_2(x, __VA_ARGS__), DOUBLED_2((x) ^ (a), __VA_ARGS__)
#define DOUBLED_4(x, a, ...) DOUBLED_3(x, __VA_ARGS__), DOUBLED_3((x) ^ (a), __VA_ARGS__)
#define DOUBLED_5(x, a, ...) DOUBLED_4(x, __VA_ARGS__), DOUBLED_4((x) ^ (a), __VA_ARGS__)
#define DOUBLED_6(x, a, ...) DOUBLED_5(x, __VA_ARGS__), DOUBLED_5((x) ^ (a), __VA_ARGS__)
#define DOUBLED_7(x, a, ...) DOUBLED_6(x, __VA_ARGS__), DOUBLED_6((x) ^ (a), __VA_ARGS__)
#define DOUBLED_8(x, a, ...) DOUBLED_7(x, __VA_ARGS__), DOUBLED_7((x) ^ (a), __VA_ARGS__)
/* Of all values of a byte; the highest bit's comes first. */
#define OF_BYTE(...)                                                                               \
    {                                                                                              \
        DOUBLED_8(UINT32_C(0), __VA_ARGS__, 0)                                                     \
    }

static const uint32_t of_lower_byte[256] = OF_BYTE(0x0b943260, 0x05ca1930, 0x02e50c98, 0x0172864c,
                                                   0x00b94326, 0x005ca193, 0xed96d3e9, 0x9b73ead4);
static const uint32_t of_upper_byte[256] = OF_BYTE(0x4db9f56a, 0x26dcfab5, 0xfed6fe7a, 0x7f6b7f3d,
                                                   0xd20d3cbe, 0x69069e5f, 0xd93bcc0f, 0x81256527);

static uint32_t of_identification(const struct path *path, uint16_t identification)
{
    return gid_is_ipv4(&path->local)
               ? of_lower_byte[identification & 0xff] ^ of_upper_byte[identification >> 8]
               : 0;
}

static uint32_t times_x(uint32_t polynomial)
{
    return polynomial >> 1 ^ (POLYNOMIAL & -(polynomial & 1));
}

/* The first packet of its kind, and what it has in common with those that follow. `difference` is
 * its identification's. */
static void begin_likeness(struct roce_likeness *like, const struct path *path, uint32_t difference,
                           const uint8_t *bytes, size_t length, uint32_t icrc)
{
    struct roce_ip first = {.identification = 0, .dont_fragment = true};
    uint8_t prefix[PREFIX_MAX];
    size_t prefix_length = put_prefix(prefix, path, &first, length);
    size_t before = BTH_MASKED_BYTE + 1, rest = length - before;
    like->path = *path;
    like->length = length;
    like->prefix = crc32_update(0, prefix, prefix_length);
    uint32_t state = crc32_update(like->prefix ^ difference, bytes, before);
    uint32_t unmasked = crc32_update(state, bytes + before, rest);
    like->masked = bytes[BTH_MASKED_BYTE];
    like->masking = icrc ^ unmasked;
    like->of_highest_bit = unmasked ^ crc32_update(state ^ POLYNOMIAL, bytes + before, rest);
}

/* The fifth byte is that of another queue pair. */
static void mask(struct roce_likeness *like, uint8_t byte)
{
    uint8_t difference = like->masked ^ byte;
    uint32_t of_bit = like->of_highest_bit;
    for (int bit = 7; bit >= 0; bit--) {
        like->masking ^= of_bit & -(difference >> bit & UINT32_C(1));
        of_bit = times_x(of_bit);
    }
    like->masked = byte;
}

static bool is_of(const struct roce_likeness *like, const struct path *path, size_t length)
{
    return like->length == length && memcmp(&like->path, path, sizeof *path) == 0;
}

static uint32_t alike_icrc(const struct roce_likeness *like, uint32_t difference,
                           const uint8_t *bytes)
{
    return like->masking ^ crc32_update(like->prefix ^ difference, bytes, like->length);
}

/* CRC-32 is affine: packets of one length whose prefixes differ in the identification alone, or
 * that have the BTH's fifth byte as it is instead of masked, differ in their CRCs by what does not
 * depend on the rest. So one pass over the bytes as they are is enough. */
uint32_t roce_icrc_in_series(struct roce_series *series, const struct path *path,
                             const struct roce_ip *ip, const uint8_t *bytes, size_t length)
{
    if (!ip->dont_fragment) {
        return roce_icrc(path, ip, bytes, length);
    }
    struct roce_likeness *like = &series->places[length / 4 % ROCE_SERIES_PLACES];
    uint32_t difference = of_identification(path, ip->identification);
    if (is_of(like, path, length)) {
        like->other_length = 0;
        if (like->masked != bytes[BTH_MASKED_BYTE]) {
            mask(like, bytes[BTH_MASKED_BYTE]);
        }
        return alike_icrc(like, difference, bytes);
    }
    uint32_t icrc = roce_icrc(path, ip, bytes, length);
    if (like->other_length != length) { /* not before the second in a row */
        like->other_length = length;
        return icrc;
    }
    begin_likeness(like, path, difference, bytes, length, icrc);
    return icrc;
}

const struct roce_likeness *roce_likeness(const struct roce_series *series, const struct path *path,
                                          const uint8_t *bytes, size_t length)
{
    const struct roce_likeness *like = &series->places[length / 4 % ROCE_SERIES_PLACES];
    return is_of(like, path, length) && like->masked == bytes[BTH_MASKED_BYTE] ? like : NULL;
}

bool roce_icrc_is_alike(const struct roce_likeness *like, uint16_t identification,
                        const uint8_t *bytes, uint32_t icrc)
{
    return alike_icrc(like, of_identification(&like->path, identification), bytes) == icrc;
}

/* Product of two polynomials mod P. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & -(a >> 31);
        a <<= 1;
        b = times_x(b);
    }
    return product;
}

/* x^(-8 * 2^i) mod P: what takes a CRC back over 2^i bytes. Recomputed by test. */
static const uint32_t backward[16] = {
    0x6567cb95, 0xd7125358, 0x5b358fd3, 0x2e9bb40b, 0x12a59a49, 0x8df9403d, 0x5139de12, 0xba340226,
    0x29c45641, 0x12fbc105, 0xecd30c55, 0x3755ebd8, 0x24ee460c, 0x23783fcf, 0x479933fc, 0xa39442a5,
};

/* `difference` of the CRCs divided by x^(8 * byte_count); less than 2^16 bytes. */
static uint32_t take_back(uint32_t difference, size_t byte_count)
{
    for (int i = 0; byte_count != 0; i++, byte_count >>= 1) {
        if ((byte_count & 1) != 0) {
            difference = multiply(difference, backward[i]);
        }
    }
    return difference;
}

bool roce_icrc_verify_in_series(struct roce_series *series, const struct path *path,
                                const struct roce_ip *hint, const uint8_t *bytes, size_t length,
                                uint32_t icrc, struct roce_ip *ret_ip)
{
    if (length < BTH_LENGTH || length > UINT16_MAX - IPV6_LENGTH - UDP_LENGTH - ICRC_LENGTH) {
        return false;
    }
    uint32_t difference = roce_icrc_in_series(series, path, hint, bytes, length) ^ icrc;
    if (difference == 0) {
        *ret_ip = *hint;
        return true;
    }
    if (!gid_is_ipv4(&path->local)) {
        return false;
    }
    /* Four bytes more for the x^32. The low byte is the word's first byte. */
    uint32_t word = take_back(difference, AFTER_WORD_LENGTH + length + 4);
    if ((word & ~((uint32_t)IPV4_DF << 16 | 0xffffu)) != 0) {
        return false;
    }
    uint16_t flipped = (uint16_t)((word & 0xff) << 8 | (word >> 8 & 0xff));
    *ret_ip = (struct roce_ip){
        .identification = hint->identification ^ flipped,
        .dont_fragment = hint->dont_fragment != (word >> 16 != 0),
    };
    return true;
}

bool roce_icrc_verify(const struct path *path, const struct roce_ip *hint, const uint8_t *bytes,
                      size_t length, uint32_t icrc, struct roce_ip *ret_ip)
{
    struct roce_series none = {0};
    return roce_icrc_verify_in_series(&none, path, hint, bytes, length, icrc, ret_ip);
}

struct path path_reverse(const struct path *path)
{
    struct path reverse = *path;
    reverse.local = path->remote;
    reverse.remote = path->local;
    return reverse;
}
