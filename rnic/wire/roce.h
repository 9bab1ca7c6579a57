/* RoCEv2 framing: the IP and UDP headers that the ICRC is computed over, and the ICRC itself.
 *
 * [RoCEv2 annex A17.3.3] The ICRC is CRC-32 over 8 bytes of ones, the IP header with TTL, TOS and
 * checksum (IPv6: traffic class, flow label, hop limit) as ones, the UDP header with its checksum
 * as ones, the BTH with its fifth byte as ones, and all that follows. It stands little-endian.
 *
 * The IPv4 identification is covered too, but a UDP socket never tells it: roce_icrc_verify solves
 * for it. */
#ifndef WEIR_WIRE_ROCE_H
#define WEIR_WIRE_ROCE_H

#include <stddef.h>

#include "rnic/base/status.h"
#include "rnic/wire/path.h"

#define ROCE_UDP_PORT 4791u

/* An ICRC as it stands in the last four bytes of a packet. */
static inline uint32_t roce_icrc_load(const uint8_t *bytes)
{
    return (uint32_t)bytes[3] << 24 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[1] << 8 | bytes[0];
}

static inline void roce_icrc_store(uint8_t *bytes, uint32_t icrc)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(icrc >> 8 * i);
    }
}

/* What of the IP header is not in the path. */
struct roce_ip {
    uint16_t identification; /* IPv4 */
    bool dont_fragment;      /* IPv4 */
};

/* The ICRC of a packet whose bytes from the BTH to before the ICRC are `bytes`, at least a BTH.
 * `path` is seen from the sender. */
uint32_t roce_icrc(const struct path *path, const struct roce_ip *ip, const uint8_t *bytes,
                   size_t length);

/* What the ICRCs of packets of one path and one length have in common. Zeroed to begin with; any
 * may be used for any packets, but it pays where most are alike, or alike by turns as requests and
 * acknowledgements are: there is a place for each of some lengths. */
#define ROCE_SERIES_PLACES 4u
struct roce_series {
    struct roce_likeness {
        struct path path;
        size_t length, other_length;
        uint32_t prefix;  /* CRC of what stands before the BTH, for identification 0 and DF */
        uint8_t masked;   /* the BTH's fifth byte in the latest packet, */
        uint32_t masking; /* what it changes, as it is instead of ones, */
        uint32_t of_highest_bit; /* and what its highest bit does */
    } places[ROCE_SERIES_PLACES];
};
/* As roce_icrc, in half the time for 1 KiB. */
uint32_t roce_icrc_in_series(struct roce_series *series, const struct path *path,
                             const struct roce_ip *ip, const uint8_t *bytes, size_t length);

/* Incremental: seed with headers, then add bytes in pieces, then finish. `first` holds at least
 * the whole BTH; `length_from_bth` is that of the whole packet up to the ICRC. */
struct roce_crc {
    uint32_t state;
};
struct roce_crc roce_crc_start(const struct path *path, const struct roce_ip *ip,
                               size_t length_from_bth, const uint8_t *first, size_t first_length);
void roce_crc_add(struct roce_crc *crc, const uint8_t *bytes, size_t length);
uint32_t roce_crc_finish(const struct roce_crc *crc);

/* True if `icrc` (as read from the packet) fits for some IPv4 identification with DF set or not;
 * tells which. For IPv6 exactly one value fits. `path` is seen from the sender. `hint` costs least
 * when it is right, and 0 with DF is a good one. The probability of accepting a corrupted packet
 * is derived in roce.c; who knows the sender's habits (always DF, small identifications) should
 * refuse what breaks them. *ret_ip is untouched on failure, and may be `hint`. */
bool roce_icrc_verify(const struct path *path, const struct roce_ip *hint, const uint8_t *bytes,
                      size_t length, uint32_t icrc, struct roce_ip *ret_ip);
bool roce_icrc_verify_in_series(struct roce_series *series, const struct path *path,
                                const struct roce_ip *hint, const uint8_t *bytes, size_t length,
                                uint32_t icrc, struct roce_ip *ret_ip);

/* What this packet and the latest ones of the series have in common with those that differ from it
 * behind the BTH's fifth byte; NULL: nothing. Good until the series is used again. */
const struct roce_likeness *roce_likeness(const struct roce_series *series, const struct path *path,
                                          const uint8_t *bytes, size_t length);
/* Whether `icrc` is that of such a packet, with this identification and DF. */
bool roce_icrc_is_alike(const struct roce_likeness *like, uint16_t identification,
                        const uint8_t *bytes, uint32_t icrc);

/* The path as its other end sees it. */
struct path path_reverse(const struct path *path);

#endif
