/* Names on the wire as one-field types, so that a key is not a queue pair number by accident.
 * All values are in host byte order unless said otherwise. */
#ifndef WEIR_WIRE_IDS_H
#define WEIR_WIRE_IDS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct qpn {
    uint32_t value; /* 24 bits */
};

struct psn {
    uint32_t value; /* 24 bits; arithmetic in psn.h and nowhere else */
};

/* An L_Key or R_Key: index of the region in the upper 24 bits, variant in the lower 8. */
struct memory_key {
    uint32_t value;
};

struct qkey {
    uint32_t value;
};

struct pkey {
    uint16_t value;
};

/* A RoCEv2 GID: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d. */
struct gid {
    uint8_t bytes[16];
};

#define QPN_MANAGEMENT  ((struct qpn){1}) /* the general service interface, QP1 */
#define QPN_MULTICAST   ((struct qpn){0xffffff})
#define PKEY_DEFAULT    ((struct pkey){0xffff})
#define QKEY_MANAGEMENT ((struct qkey){0x80010000}) /* [IBA 10.2.5] */

static inline bool qpn_equal(struct qpn a, struct qpn b)
{
    return a.value == b.value;
}

static inline bool gid_equal(const struct gid *a, const struct gid *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static inline bool gid_is_ipv4(const struct gid *gid)
{
    static const uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(gid->bytes, prefix, sizeof prefix) == 0;
}

/* What a port of that address calls its LID: the lower half of the address. */
static inline uint16_t gid_lid(const struct gid *gid)
{
    return (uint16_t)(gid->bytes[14] << 8 | gid->bytes[15]);
}

/* ff00::/8, or 224.0.0.0/4 as an IPv4-mapped address. */
static inline bool gid_is_multicast(const struct gid *gid)
{
    return gid->bytes[0] == 0xff || (gid_is_ipv4(gid) && gid->bytes[12] >> 4 == 14);
}

static inline bool gid_is_zero(const struct gid *gid)
{
    static const struct gid zero;
    return gid_equal(gid, &zero);
}

#endif
