/* Takes for granted what not every family of adapters can do. In strict mode what the family's
 * query tells of is there, and everything else is refused with EOPNOTSUPP (work: EINVAL). */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pair.h"

enum {
    UC,
    XRC,
    ATOMICS,
    WINDOWS,
    ON_DEMAND,
    NULL_REGION,
    DMABUF,
    SENDS,
    EXTENDED_CQ,
    TIMESTAMPS,
    MODERATION,
    TAGS,
    DEVICE_MEMORY,
    SHARED_RECEIVES,
    KINDS,
};

static const char *const names[KINDS] = {
    "UC",         "XRC",          "atomics",       "windows",         "memory on demand",
    "null MR",    "dma-buf",      "ibv_wr_*",      "extended CQ",     "time stamps",
    "moderation", "tag matching", "device memory", "shared receives",
};

/* What a family has of these, in the order above, and how many queue pairs and SRQs. */
static const struct family {
    const char *name;
    const char *has;
    int max_qp, max_srq;
} families[] = {
    {"mlx5", "11111111111111", 16000, 65536}, {"mlx4", "11110000111001", 16000, 65472},
    {"irdma", "00010010110000", 4092, 0},     {"bnxt", "00100000000001", 16000, 65536},
    {"rxe", "10110001100001", 16000, 65536},
};

static int error_of(const void *object)
{
    return object != NULL ? 0 : errno;
}

static struct ibv_qp_init_attr_ex queue_pair(struct pair *pair, enum ibv_qp_type type)
{
    return (struct ibv_qp_init_attr_ex){
        .send_cq = pair->a.cq,
        .recv_cq = pair->a.cq,
        .qp_type = type,
        .cap = {1, 1, 1, 1, 0},
        .comp_mask = IBV_QP_INIT_ATTR_PD,
        .pd = pair->pd,
    };
}

static int try_queue_pair(struct pair *pair, enum ibv_qp_type type, uint64_t operations)
{
    struct ibv_qp_init_attr_ex init = queue_pair(pair, type);
    if (operations != 0) {
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = operations;
    }
    return error_of(ibv_create_qp_ex(pair->context, &init));
}

static int try_cq(struct pair *pair, uint64_t fields)
{
    struct ibv_cq_init_attr_ex init = {.cqe = 1, .wc_flags = fields};
    return error_of(ibv_create_cq_ex(pair->context, &init));
}

static int try_atomic(struct pair *pair, struct ibv_mr *mr)
{
    struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = 8, .lkey = mr->lkey};
    struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &sge, .num_sge = 1};
    struct ibv_send_wr *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.atomic.remote_addr = (uintptr_t)mr->addr + 8;
    wr.wr.atomic.rkey = mr->rkey;
    int error = ibv_post_send(pair->a.qp, &wr, &bad);
    expect(error != 0 || pair_poll(&pair->a) == IBV_WC_SUCCESS, "an atomic that is done");
    return error;
}

static int try_tags(struct pair *pair)
{
    struct ibv_srq_init_attr_ex init = {
        .attr = {.max_wr = 1, .max_sge = 1},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
                     IBV_SRQ_INIT_ATTR_TM,
        .srq_type = IBV_SRQT_TM,
        .pd = pair->pd,
        .cq = pair->a.cq,
        .tm_cap = {.max_num_tags = 1, .max_ops = 1},
    };
    return error_of(ibv_create_srq_ex(pair->context, &init));
}

static int try_dmabuf(struct pair *pair)
{
    int memory = memfd_create("memory", MFD_CLOEXEC);
    expect(memory >= 0 && ftruncate(memory, 4096) == 0, "a file in memory");
    return error_of(ibv_reg_dmabuf_mr(pair->pd, 0, 4096, 0, memory, IBV_ACCESS_LOCAL_WRITE));
}

static int try_kind(struct pair *pair, struct ibv_mr *mr, int kind)
{
    struct ibv_xrcd_init_attr domain = {IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, -1,
                                        O_CREAT};
    struct ibv_alloc_dm_attr memory = {.length = 64};
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_modify_cq_attr moderate = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {4, 4}};
    switch (kind) {
    case UC:
        return try_queue_pair(pair, IBV_QPT_UC, 0);
    case XRC:
        return error_of(ibv_open_xrcd(pair->context, &domain));
    case ATOMICS:
        return try_atomic(pair, mr);
    case WINDOWS:
        return error_of(ibv_alloc_mw(pair->pd, IBV_MW_TYPE_2));
    case ON_DEMAND:
        return error_of(ibv_reg_mr(pair->pd, mr->addr, 8, IBV_ACCESS_ON_DEMAND));
    case NULL_REGION:
        return error_of(ibv_alloc_null_mr(pair->pd));
    case DMABUF:
        return try_dmabuf(pair);
    case SENDS:
        return try_queue_pair(pair, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    case EXTENDED_CQ:
        return try_cq(pair, IBV_WC_EX_WITH_BYTE_LEN);
    case TIMESTAMPS:
        return try_cq(pair, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
    case MODERATION:
        return ibv_modify_cq(pair->b.cq, &moderate);
    case TAGS:
        return try_tags(pair);
    case DEVICE_MEMORY:
        return error_of(ibv_alloc_dm(pair->context, &memory));
    default:
        return error_of(ibv_create_srq(pair->pd, &shared));
    }
}

/* What the query says of a kind; -1: nothing. */
static int told(const struct ibv_device_attr_ex *attributes, int kind)
{
    switch (kind) {
    case XRC:
        return (attributes->orig_attr.device_cap_flags & IBV_DEVICE_XRC) != 0;
    case ATOMICS:
        return attributes->orig_attr.atomic_cap != IBV_ATOMIC_NONE;
    case ON_DEMAND:
        return attributes->odp_caps.general_caps != 0;
    case TIMESTAMPS:
        return attributes->completion_timestamp_mask != 0;
    case MODERATION:
        return attributes->cq_mod_caps.max_cq_count != 0;
    case TAGS:
        return attributes->tm_caps.max_num_tags != 0;
    case DEVICE_MEMORY:
        return attributes->max_dm_size != 0;
    case SHARED_RECEIVES:
        return attributes->orig_attr.max_srq != 0;
    default:
        return -1;
    }
}

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_device_attr_ex attributes;
    const char *strict = getenv("WEIR_STRICT");
    const struct family *family = NULL;
    for (size_t i = 0; strict != NULL && i < sizeof families / sizeof families[0]; i++) {
        size_t length = strlen(families[i].name);
        if (strncmp(strict, families[i].name, length) == 0) {
            family = &families[i];
        }
    }
    expect((family != NULL) == (strict != NULL), "a family");
    expect(ibv_query_device_ex(pair.context, NULL, &attributes) == 0, "attributes");
    expect(family == NULL || attributes.orig_attr.max_qp == family->max_qp, "max_qp");
    expect(family == NULL || attributes.orig_attr.max_srq == family->max_srq, "max_srq");
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096,
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    for (int kind = 0; kind < KINDS; kind++) {
        bool has = family == NULL || family->has[kind] == '1';
        int query = told(&attributes, kind);
        int error = try_kind(&pair, mr, kind);
        int wanted = has ? 0 : kind == ATOMICS ? EINVAL : EOPNOTSUPP;
        if (error != wanted || (query != -1 && query != has)) {
            fprintf(stderr, "%s: %s, and the query says %d\n", names[kind], strerror(error), query);
            return 1;
        }
    }
    /* What mlx5 lacks. */
    struct ibv_qp_init_attr_ex init = queue_pair(&pair, IBV_QPT_RC);
    init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE;
    bool writes = family == NULL || strcmp(family->name, "rxe") == 0;
    expect(error_of(ibv_create_qp_ex(pair.context, &init)) == (writes ? 0 : EOPNOTSUPP),
           "atomic writes where they are");
    /* IB_UVERBS_DEVICE_ATOMIC_WRITE */
    expect(((attributes.device_cap_flags_ex & UINT64_C(1) << 40) != 0) == writes,
           "atomic writes where the query tells of them");
    return 0;
}
