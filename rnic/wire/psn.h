/* Packet sequence numbers: 24 bits that wrap. The only place that does arithmetic on them. */
#ifndef WEIR_WIRE_PSN_H
#define WEIR_WIRE_PSN_H

#include "rnic/wire/ids.h"

#define PSN_MASK 0xffffffu

static inline struct psn psn_make(uint32_t value)
{
    return (struct psn){value & PSN_MASK};
}

static inline struct psn psn_add(struct psn psn, uint32_t count)
{
    return psn_make(psn.value + count);
}

static inline struct psn psn_next(struct psn psn)
{
    return psn_add(psn, 1);
}

/* Packets from `from` to `to`: negative where `to` lies behind, -2^23 .. 2^23-1. [IBA 9.7.2] */
static inline int32_t psn_distance(struct psn from, struct psn to)
{
    return (int32_t)((to.value - from.value) << 8) >> 8;
}

static inline bool psn_equal(struct psn a, struct psn b)
{
    return a.value == b.value;
}

static inline bool psn_before(struct psn a, struct psn b)
{
    return psn_distance(a, b) > 0;
}

#endif
