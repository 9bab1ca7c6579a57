/* Families of adapters as ibv_devinfo -v shows typical members of them, but never more than this
 * device can do: mlx5 is a ConnectX-5, mlx4 a ConnectX-3, irdma an E810, bnxt a BCM57414, rxe that
 * of Linux 6.x. Figures are those of the Linux drivers and what rdma-core's providers implement. */
#include "rnic/verbs/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "rnic/strict/strict.h"
#include "rnic/verbs/objects.h"

#define ANY UINT32_MAX /* more than we have */

#define WINDOWS_BOTH (IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B)
#define COUNTERS     (IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR)
#define COMMON       (IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_MEM_MGT_EXTENSIONS)
#define EVENTS       (IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_PORT_ACTIVE_EVENT)

#define ON_DEMAND_UD (IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV)
#define ON_DEMAND_UC (ON_DEMAND_UD | IBV_ODP_SUPPORT_WRITE)
#define ON_DEMAND_RC (ON_DEMAND_UC | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC)

static const struct limits ours = {
    .name = "weir",
    .max_qp_wr = QUEUE_LENGTH_MAX,
    .max_sge = SGE_MAX,
    .max_inline = INLINE_MAX,
    .max_cqe = CQ_LENGTH_MAX,
    .max_reads = READS_MAX,
    .max_srq_wr = QUEUE_LENGTH_MAX,
    .max_srq_sge = SGE_MAX,
    .max_count = {[COUNT_PD] = MEMORY_DOMAINS_MAX,
                  [COUNT_MR] = 65536,
                  [COUNT_MW] = 65536,
                  [COUNT_CQ] = 65536,
                  [COUNT_QP] = 16000,
                  [COUNT_SRQ] = 65536,
                  [COUNT_AH] = 65536},
    .max_mr_size = UINT64_MAX,
    .max_message = MESSAGE_LENGTH_MAX,
    .max_device_memory = DEVICE_MEMORY_MAX,
    .max_tags = TAGS_OFFERED,
    .max_tag_sge = TAG_SGES_OFFERED,
    .timestamp_mask = UINT64_MAX,
    .atomics = IBV_ATOMIC_HCA,
    .capabilities =
        COMMON | EVENTS | COUNTERS | WINDOWS_BOTH | IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_XRC,
    .on_demand = {ON_DEMAND_RC, ON_DEMAND_UC, ON_DEMAND_UD, ON_DEMAND_RC},
    .abilities = ABILITY_ALL,
};

static const struct limits families[] = {
    {
        .name = "mlx5",
        .max_qp_wr = 32768,
        .max_sge = 30,
        .max_inline = 828,
        .max_cqe = 4194303,
        .max_reads = 16,
        .max_srq_wr = 32767,
        .max_srq_sge = 31,
        .max_count = {1u << 24, 1u << 24, 1u << 24, 1u << 24, 1u << 18, 1u << 23, ANY},
        .exhausted = ENOMEM,
        .max_mr_size = UINT64_MAX,
        .max_message = 1u << 30,
        .max_device_memory = 128u << 10,
        .max_tags = 127,
        .max_tag_sge = 1,
        .timestamp_mask = UINT64_MAX >> 1,
        .atomics = IBV_ATOMIC_HCA,
        .capabilities = COMMON | EVENTS | COUNTERS | WINDOWS_BOTH | IBV_DEVICE_XRC,
        .on_demand = {ON_DEMAND_RC, 0, IBV_ODP_SUPPORT_SEND,
                      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                          IBV_ODP_SUPPORT_SRQ_RECV},
        .abilities = ABILITY_ALL & ~(uint32_t)ABILITY_ATOMIC_WRITE,
    },
    {
        .name = "mlx4",
        .max_qp_wr = 16351,
        .max_sge = 32,
        .max_inline = 912,
        .max_cqe = 4194303,
        .max_reads = 16,
        .max_srq_wr = 16383,
        .max_srq_sge = 31,
        /* max_mw is never set by that driver, which has windows all the same. */
        .max_count = {32764, 524032, 0, 65408, 393144, 65472, ANY},
        .exhausted = ENOMEM,
        .max_mr_size = UINT64_MAX,
        .max_message = 1u << 30,
        .timestamp_mask = (UINT64_C(1) << 48) - 1,
        .atomics = IBV_ATOMIC_HCA,
        .capabilities = COMMON | EVENTS | COUNTERS | WINDOWS_BOTH | IBV_DEVICE_XRC,
        .abilities = ABILITY_UC | ABILITY_XRC | ABILITY_ATOMICS | ABILITY_WINDOWS |
                     ABILITY_EXTENDED_CQ | ABILITY_TIMESTAMPS | ABILITY_MODERATION | ABILITY_SRQ |
                     ABILITY_MULTICAST,
    },
    {
        .name = "irdma",
        .max_qp_wr = 4063,
        .max_sge = 13,
        .max_inline = 101,
        .max_cqe = (1u << 20) - 1,
        .max_reads = 127,
        .max_count = {ANY, ANY, ANY, 2 * 4092, 4092, 0, ANY}, /* limits_sel 3, the default */
        .exhausted = EOVERFLOW,
        .max_mr_size = UINT64_C(0x200000000000),
        .max_message = INT32_MAX,
        .timestamp_mask = 0x1ffff,
        .atomics = IBV_ATOMIC_NONE,
        .capabilities = COMMON | IBV_DEVICE_MEM_WINDOW,
        .abilities = ABILITY_WINDOWS | ABILITY_DMABUF | ABILITY_EXTENDED_CQ | ABILITY_TIMESTAMPS |
                     ABILITY_MULTICAST,
    },
    {
        .name = "bnxt",
        .max_qp_wr = 16384,
        .max_sge = 6,
        .max_inline = 96,
        .max_cqe = 1u << 20,
        .max_reads = 126,
        .max_srq_wr = 16384,
        .max_srq_sge = 6,
        .max_count = {65536, 65536, 65536, 65536, 65536, 65536, 65536},
        .exhausted = EINVAL,
        .max_mr_size = UINT64_C(1) << 39,
        .max_message = 1u << 30,
        .atomics = IBV_ATOMIC_GLOB, /* where the PCIe root takes them */
        .capabilities = COMMON | EVENTS | WINDOWS_BOTH | IBV_DEVICE_CURR_QP_STATE_MOD,
        .abilities = ABILITY_ATOMICS | ABILITY_SRQ, /* windows are the kernel's own there */
    },
    {
        .name = "rxe",
        .max_qp_wr = 1u << 20,
        .max_sge = 32,
        .max_inline = 512,
        .max_cqe = 32767,
        .max_reads = 128,
        .max_srq_wr = 1u << 20,
        .max_srq_sge = 27,
        .max_count = {1u << 20, 524287, 524287, 1u << 20, 1048560, 917503, 32767},
        .exhausted = EINVAL,
        .max_mr_size = UINT64_MAX,
        .max_message = 1u << 31,
        .atomics = IBV_ATOMIC_HCA,
        .capabilities = COMMON | EVENTS | COUNTERS | WINDOWS_BOTH,
        .abilities = ABILITY_UC | ABILITY_ATOMICS | ABILITY_ATOMIC_WRITE | ABILITY_WINDOWS |
                     ABILITY_EXTENDED_CQ | ABILITY_EXTENDED_SENDS | ABILITY_SRQ | ABILITY_MULTICAST,
    },
};

static const struct {
    enum ability ability;
    const char *name;
} abilities[] = {
    {ABILITY_UC, "queue pairs of type UC"},
    {ABILITY_XRC, "XRC"},
    {ABILITY_ATOMICS, "atomics"},
    {ABILITY_ATOMIC_WRITE, "atomic writes"},
    {ABILITY_WINDOWS, "memory windows"},
    {ABILITY_ON_DEMAND, "memory on demand"},
    {ABILITY_NULL_REGION, "a null region"},
    {ABILITY_DMABUF, "regions of a dma-buf"},
    {ABILITY_EXTENDED_SENDS, "ibv_wr_*"},
    {ABILITY_EXTENDED_CQ, "extended completion queues"},
    {ABILITY_TIMESTAMPS, "time stamps of completions"},
    {ABILITY_WALL_CLOCK, "wall-clock time stamps of completions"},
    {ABILITY_MODERATION, "moderation of completion queues"},
    {ABILITY_TAG_MATCHING, "tag matching"},
    {ABILITY_DEVICE_MEMORY, "device memory"},
    {ABILITY_SRQ, "shared receive queues"},
    {ABILITY_MULTICAST, "multicast"},
};

static struct limits chosen; /* by choose */
static _Atomic uint32_t counts[COUNTABLES];

static const struct limits *find(void)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].name, strict_settings.profile) == 0) {
            return &families[i];
        }
    }
    return &families[0];
}

static void cut(uint32_t *figure, uint32_t most)
{
    *figure = *figure < most ? *figure : most;
}

/* A family's figures, as far as ours go. */
static void choose(void)
{
    chosen = *find();
    cut(&chosen.max_qp_wr, ours.max_qp_wr);
    cut(&chosen.max_sge, ours.max_sge);
    cut(&chosen.max_cqe, ours.max_cqe);
    cut(&chosen.max_srq_wr, ours.max_srq_wr);
    cut(&chosen.max_srq_sge, ours.max_srq_sge);
    for (unsigned i = 0; i < COUNTABLES; i++) {
        cut(&chosen.max_count[i], ours.max_count[i]);
    }
}

const struct limits *limits_now(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (!strict_is_on()) {
        return &ours;
    }
    pthread_once(&once, choose);
    return &chosen;
}

bool limits_allow(uint64_t wanted, uint64_t limit, const char *what)
{
    if (wanted <= limit) {
        return true;
    }
    if (strict_is_on()) {
        pitfall_warn(PITFALL_LIMIT, NULL, "asked for at",
                     "%s is %llu on this adapter (%s), and %llu is asked for", what,
                     (unsigned long long)limit, limits_now()->name, (unsigned long long)wanted);
    }
    return false;
}

bool limits_offer(enum ability ability)
{
    const struct limits *limits = limits_now();
    if ((limits->abilities & (uint32_t)ability) != 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof abilities / sizeof abilities[0]; i++) {
        if (abilities[i].ability == ability) {
            pitfall_warn(PITFALL_LIMIT, NULL, "asked for at", "this adapter (%s) has no %s",
                         limits->name, abilities[i].name);
        }
    }
    errno = EOPNOTSUPP;
    return false;
}

bool limits_take(enum countable what)
{
    static const char *const names[COUNTABLES] = {"max_pd", "max_mr",  "max_mw", "max_cq",
                                                  "max_qp", "max_srq", "max_ah"};
    if (!strict_is_on()) {
        return true;
    }
    uint32_t count = atomic_fetch_add(&counts[what], 1) + 1;
    uint32_t most = limits_now()->max_count[what];
    bool unlimited = what == COUNT_MW && most == 0;
    if (unlimited || limits_allow(count, most, names[what])) {
        return true;
    }
    atomic_fetch_sub(&counts[what], 1);
    errno = limits_now()->exhausted;
    return false;
}

void limits_give(enum countable what)
{
    if (strict_is_on()) {
        atomic_fetch_sub(&counts[what], 1);
    }
}
