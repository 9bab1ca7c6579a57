/* How much of each thing the device has, and which abilities: ours, or in strict mode what an
 * adapter of some family has. The one place for these figures. */
#ifndef WEIR_VERBS_LIMITS_H
#define WEIR_VERBS_LIMITS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* What not every family can do. */
enum ability {
    ABILITY_UC = 1 << 0,
    ABILITY_XRC = 1 << 1,
    ABILITY_ATOMICS = 1 << 2,
    ABILITY_ATOMIC_WRITE = 1 << 3,
    ABILITY_WINDOWS = 1 << 4,
    ABILITY_ON_DEMAND = 1 << 5,
    ABILITY_NULL_REGION = 1 << 6,
    ABILITY_DMABUF = 1 << 7,
    ABILITY_EXTENDED_SENDS = 1 << 8, /* ibv_wr_* */
    ABILITY_EXTENDED_CQ = 1 << 9,
    ABILITY_TIMESTAMPS = 1 << 10,
    ABILITY_WALL_CLOCK = 1 << 11,
    ABILITY_MODERATION = 1 << 12,
    ABILITY_TAG_MATCHING = 1 << 13,
    ABILITY_DEVICE_MEMORY = 1 << 14,
    ABILITY_SRQ = 1 << 15,
    ABILITY_MULTICAST = 1 << 16,
    ABILITY_ALL = (1 << 17) - 1,
};

/* Objects that an adapter has room for so many of. */
enum countable {
    COUNT_PD,
    COUNT_MR,
    COUNT_MW,
    COUNT_CQ,
    COUNT_QP,
    COUNT_SRQ,
    COUNT_AH,
    COUNTABLES,
};

struct limits {
    const char *name; /* of the adapter family */
    uint32_t max_qp_wr;
    uint32_t max_sge;
    uint32_t max_inline; /* bytes */
    uint32_t max_cqe;
    uint32_t max_reads; /* READs and atomics outstanding per queue pair, as initiator and target */
    uint32_t max_srq_wr;
    uint32_t max_srq_sge;
    uint32_t max_count[COUNTABLES];
    int exhausted;              /* errno when there is no room for another object */
    uint64_t max_mr_size;       /* bytes */
    uint32_t max_message;       /* bytes */
    uint32_t max_device_memory; /* bytes */
    uint32_t max_tags;
    uint32_t max_tag_sge;
    uint64_t timestamp_mask;
    enum ibv_atomic_cap atomics; /* as the query tells it */
    uint32_t capabilities;       /* enum ibv_device_cap_flags */
    uint32_t on_demand[4];       /* enum ibv_odp_transport_cap_bits of RC, UC, UD, XRC */
    uint32_t abilities;          /* enum ability */
};

/* Those in force. */
const struct limits *limits_now(void);
/* Whether `wanted` is within `limit`; says so in strict mode if not. `what` as ibv_query_device
 * names it. */
bool limits_allow(uint64_t wanted, uint64_t limit, const char *what);
/* Whether the device can do that; if not, says so and sets errno to EOPNOTSUPP, as a driver without
 * the call has it. */
bool limits_offer(enum ability ability);
/* Room for one object more in this process. False: said, and errno is the driver's. Everything that
 * was taken is given back. */
bool limits_take(enum countable what);
void limits_give(enum countable what);

#endif
