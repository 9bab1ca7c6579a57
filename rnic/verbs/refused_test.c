/* The table of refusals in docs/verbs.md, walked: each row has a case here that draws its error,
 * and each case has a row. Usage: refused_test VERBS.md */
#include "rnic/verbs/world_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *table_path;

/* A call that returns an object: it must not, and errno says why. */
static int error_of_pointer(const void *object)
{
    return object != NULL ? 0 : errno;
}

static int create_flow(struct world *w)
{
    return error_of_pointer(ibv_create_flow(w->qps[0], &(struct ibv_flow_attr){0}));
}

static int destroy_flow(struct world *w)
{
    struct ibv_flow flow = {.context = w->context};
    return ibv_destroy_flow(&flow);
}

static int create_flow_action(struct world *w)
{
    return error_of_pointer(
        ibv_create_flow_action_esp(w->context, &(struct ibv_flow_action_esp_attr){0}));
}

static int create_counters(struct world *w)
{
    return error_of_pointer(ibv_create_counters(w->context, &(struct ibv_counters_init_attr){0}));
}

static int create_wq(struct world *w)
{
    return error_of_pointer(ibv_create_wq(w->context, &(struct ibv_wq_init_attr){0}));
}

static int create_table(struct world *w)
{
    return error_of_pointer(
        ibv_create_rwq_ind_table(w->context, &(struct ibv_rwq_ind_table_init_attr){0}));
}

static int create_qp_type(struct world *w, enum ibv_qp_type type)
{
    struct ibv_qp_init_attr init = small(w->cq);
    init.qp_type = type;
    return error_of_pointer(ibv_create_qp(w->pd, &init));
}

static int create_raw(struct world *w)
{
    return create_qp_type(w, IBV_QPT_RAW_PACKET);
}

static int create_driver(struct world *w)
{
    return create_qp_type(w, IBV_QPT_DRIVER);
}

static int create_inline(struct world *w)
{
    struct ibv_qp_init_attr init = small(w->cq);
    init.cap.max_inline_data = 1 << 16;
    return error_of_pointer(ibv_create_qp(w->pd, &init));
}

static int create_long(struct world *w)
{
    struct ibv_device_attr device;
    struct ibv_qp_init_attr init = small(w->cq);
    assert_int_equal(ibv_query_device(w->context, &device), 0);
    init.cap.max_send_wr = (uint32_t)device.max_qp_wr + 1;
    return error_of_pointer(ibv_create_qp(w->pd, &init));
}

static int create_scattered(struct world *w)
{
    struct ibv_device_attr device;
    struct ibv_qp_init_attr init = small(w->cq);
    assert_int_equal(ibv_query_device(w->context, &device), 0);
    init.cap.max_recv_sge = (uint32_t)device.max_sge + 1;
    return error_of_pointer(ibv_create_qp(w->pd, &init));
}

/* A queue pair with these bits of comp_mask; where creation flags are among them, with a flag. */
static int create_ex(struct world *w, enum ibv_qp_type type, uint32_t mask, uint64_t operations)
{
    struct ibv_qp_init_attr_ex init = {
        .comp_mask = mask, .pd = w->pd, .send_ops_flags = operations};
    struct ibv_qp_init_attr plain = small(w->cq);
    plain.qp_type = type;
    memcpy(&init, &plain, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
    init.create_flags = (mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 ? IBV_QP_CREATE_SCATTER_FCS : 0;
    return error_of_pointer(ibv_create_qp_ex(w->context, &init));
}

static int create_tso(struct world *w)
{
    return create_ex(w, IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER, 0);
}

static int create_ind_table(struct world *w)
{
    return create_ex(w, IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE, 0);
}

static int create_rx_hash(struct world *w)
{
    return create_ex(w, IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH, 0);
}

static int create_fcs(struct world *w)
{
    return create_ex(w, IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS, 0);
}

static int create_operations(struct world *w, enum ibv_qp_type type, uint64_t operations)
{
    return create_ex(w, type, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, operations);
}

static int create_with_tso(struct world *w)
{
    return create_operations(w, IBV_QPT_RC, IBV_QP_EX_WITH_TSO);
}

static int create_uc_read(struct world *w)
{
    return create_operations(w, IBV_QPT_UC, IBV_QP_EX_WITH_RDMA_READ);
}

static int create_ud_write(struct world *w)
{
    return create_operations(w, IBV_QPT_UD, IBV_QP_EX_WITH_RDMA_WRITE);
}

static int create_homeless(struct world *w)
{
    return create_ex(w, IBV_QPT_RC, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QP_EX_WITH_SEND);
}

static int modify(struct world *w, int mask)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTS};
    return ibv_modify_qp(w->qps[0], &attributes, mask);
}

static int modify_alternate(struct world *w)
{
    return modify(w, IBV_QP_ALT_PATH);
}

static int modify_capabilities(struct world *w)
{
    return modify(w, IBV_QP_CAP);
}

static int modify_rate(struct world *w)
{
    return modify(w, IBV_QP_RATE_LIMIT);
}

static int modify_unknown(struct world *w)
{
    return modify(w, 1 << 30);
}

static int modify_too_far(struct world *w)
{
    return modify(w, IBV_QP_STATE);
}

static int modify_rate_limit(struct world *w)
{
    struct ibv_qp_rate_limit_attr attributes = {.rate_limit = 1};
    return ibv_modify_qp_rate_limit(w->qps[0], &attributes);
}

static int set_ece(struct world *w)
{
    return ibv_set_ece(w->qps[0], &(struct ibv_ece){.vendor_id = 1});
}

static int query_ece(struct world *w)
{
    return ibv_query_ece(w->qps[0], &(struct ibv_ece){0});
}

static int resolve_mac(struct world *w)
{
    struct ibv_ah_attr attributes = {.is_global = 1, .port_num = 1};
    uint8_t mac[ETHERNET_LL_SIZE];
    uint16_t vlan;
    return ibv_resolve_eth_l2_from_gid(w->context, &attributes, mac, &vlan);
}

static int create_long_cq(struct world *w)
{
    struct ibv_device_attr device;
    assert_int_equal(ibv_query_device(w->context, &device), 0);
    return error_of_pointer(ibv_create_cq(w->context, device.max_cqe + 1, NULL, NULL, 0));
}

static int create_cq_vector(struct world *w)
{
    int vector = w->context->num_comp_vectors;
    return error_of_pointer(ibv_create_cq(w->context, 8, NULL, NULL, vector));
}

static int create_cq_mask(struct world *w)
{
    struct ibv_cq_init_attr_ex init = {.cqe = 8, .comp_mask = 1u << 30};
    return error_of_pointer(ibv_create_cq_ex(w->context, &init));
}

static int create_cq_domain(struct world *w)
{
    struct ibv_cq_init_attr_ex init = {
        .cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = w->pd};
    return error_of_pointer(ibv_create_cq_ex(w->context, &init));
}

static int create_cq_fields(struct world *w)
{
    struct ibv_cq_init_attr_ex init = {.cqe = 8, .wc_flags = 1u << 30};
    return error_of_pointer(ibv_create_cq_ex(w->context, &init));
}

static int resize_cq(struct world *w)
{
    struct ibv_device_attr device;
    assert_int_equal(ibv_query_device(w->context, &device), 0);
    return ibv_resize_cq(w->cq, device.max_cqe + 1);
}

static int modify_cq(struct world *w)
{
    return ibv_modify_cq(w->cq, &(struct ibv_modify_cq_attr){.attr_mask = 2});
}

static int modify_srq(struct world *w)
{
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(w->pd, &init);
    assert_non_null(srq);
    int error = ibv_modify_srq(srq, &(struct ibv_srq_attr){.max_wr = 8}, IBV_SRQ_MAX_WR);
    assert_int_equal(ibv_destroy_srq(srq), 0);
    return error;
}

static int allocate_td(struct world *w)
{
    return error_of_pointer(ibv_alloc_td(w->context, &(struct ibv_td_init_attr){.comp_mask = 1}));
}

static int allocate_parent(struct world *w)
{
    return error_of_pointer(
        ibv_alloc_parent_domain(w->context, &(struct ibv_parent_domain_init_attr){0}));
}

static int allocate_parent_null(struct world *w)
{
    struct ibv_parent_domain_init_attr attributes = {
        .pd = w->pd, .comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS};
    return error_of_pointer(ibv_alloc_parent_domain(w->context, &attributes));
}

static int create_flagged(struct world *w, uint32_t flag)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = w->cq,
        .recv_cq = w->cq,
        .qp_type = IBV_QPT_UD,
        .cap = {1, 1, 1, 1, 0},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
        .pd = w->pd,
        .create_flags = flag,
    };
    return error_of_pointer(ibv_create_qp_ex(w->context, &init));
}

static int create_vlan(struct world *w)
{
    return create_flagged(w, IBV_QP_CREATE_CVLAN_STRIPPING);
}

static int create_source(struct world *w)
{
    return create_flagged(w, IBV_QP_CREATE_SOURCE_QPN);
}

static int create_padding(struct world *w)
{
    return create_flagged(w, IBV_QP_CREATE_PCI_WRITE_END_PADDING);
}

static int register_descriptor(struct world *w, int descriptor, size_t length)
{
    assert_true(descriptor >= 0);
    int error = error_of_pointer(
        ibv_reg_dmabuf_mr(w->pd, 0, length, 0, descriptor, IBV_ACCESS_LOCAL_WRITE));
    close(descriptor);
    return error;
}

/* Whatever has no memory of its own. */
static int register_other(struct world *w)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[1]);
    int error = register_descriptor(w, ends[0], 4096);
    assert_int_equal(register_descriptor(w, open("/dev/null", O_RDWR), 4096), error);
    assert_int_equal(register_descriptor(w, open("/proc/self/exe", O_RDONLY), 4096), error);
    assert_int_equal(register_descriptor(w, socket(AF_INET, SOCK_STREAM, 0), 4096), error);
    return error;
}

static int register_beyond(struct world *w)
{
    int memory = memfd_create("short", MFD_CLOEXEC);
    assert_int_equal(ftruncate(memory, 4096), 0);
    return register_descriptor(w, memory, 4097);
}

/* A child opens the device; its descriptor is duplicated here. */
static int import_foreign(struct world *w)
{
    int there[2], done[2], descriptor;
    char path[64];
    assert_int_equal(pipe(there), 0);
    assert_int_equal(pipe(done), 0);
    pid_t child = fork();
    if (child == 0) {
        struct ibv_device **list = ibv_get_device_list(NULL);
        struct ibv_context *context = ibv_open_device(list[0]);
        descriptor = context == NULL ? -1 : context->cmd_fd;
        close(done[1]);
        if (write(there[1], &descriptor, sizeof descriptor) > 0) {
            (void)!read(done[0], path, 1);
        }
        _exit(0);
    }
    assert_int_equal(read(there[0], &descriptor, sizeof descriptor), sizeof descriptor);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)child, descriptor);
    int ours = open(path, O_RDWR | O_CLOEXEC);
    assert_true(ours >= 0);
    int error = error_of_pointer(ibv_import_device(ours));
    close(ours);
    for (size_t i = 0; i < 2; i++) {
        close(there[i]);
        close(done[i]);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    return error;
}

static int import_strange(struct world *w)
{
    return error_of_pointer(ibv_import_device(0));
}

static int import_pd(struct world *w)
{
    return error_of_pointer(ibv_import_pd(w->context, UINT32_MAX));
}

static int import_mr(struct world *w)
{
    return error_of_pointer(ibv_import_mr(w->pd, UINT32_MAX >> 8));
}

static int import_dm(struct world *w)
{
    return error_of_pointer(ibv_import_dm(w->context, UINT32_MAX));
}

static const struct {
    const char *call;
    int (*draw)(struct world *w);
} cases[] = {
    {"ibv_create_flow", create_flow},
    {"ibv_destroy_flow", destroy_flow},
    {"ibv_create_flow_action_esp", create_flow_action},
    {"ibv_create_counters", create_counters},
    {"ibv_create_wq", create_wq},
    {"ibv_create_rwq_ind_table", create_table},
    {"ibv_create_qp: IBV_QPT_RAW_PACKET", create_raw},
    {"ibv_create_qp: IBV_QPT_DRIVER", create_driver},
    {"ibv_create_qp: max_inline_data above the limit", create_inline},
    {"ibv_create_qp: max_send_wr above max_qp_wr", create_long},
    {"ibv_create_qp: max_recv_sge above max_sge", create_scattered},
    {"ibv_create_qp_ex: IBV_QP_INIT_ATTR_MAX_TSO_HEADER", create_tso},
    {"ibv_create_qp_ex: IBV_QP_INIT_ATTR_IND_TABLE", create_ind_table},
    {"ibv_create_qp_ex: IBV_QP_INIT_ATTR_RX_HASH", create_rx_hash},
    {"ibv_create_qp_ex: IBV_QP_CREATE_SCATTER_FCS", create_fcs},
    {"ibv_create_qp_ex: IBV_QP_CREATE_CVLAN_STRIPPING", create_vlan},
    {"ibv_create_qp_ex: IBV_QP_CREATE_SOURCE_QPN", create_source},
    {"ibv_create_qp_ex: IBV_QP_CREATE_PCI_WRITE_END_PADDING", create_padding},
    {"ibv_create_qp_ex: IBV_QP_EX_WITH_TSO", create_with_tso},
    {"ibv_create_qp_ex: IBV_QP_EX_WITH_RDMA_READ on UC", create_uc_read},
    {"ibv_create_qp_ex: IBV_QP_EX_WITH_RDMA_WRITE on UD", create_ud_write},
    {"ibv_create_qp_ex: without IBV_QP_INIT_ATTR_PD", create_homeless},
    {"ibv_modify_qp: IBV_QP_ALT_PATH", modify_alternate},
    {"ibv_modify_qp: IBV_QP_CAP", modify_capabilities},
    {"ibv_modify_qp: IBV_QP_RATE_LIMIT", modify_rate},
    {"ibv_modify_qp: a bit that is none", modify_unknown},
    {"ibv_modify_qp: RESET to RTS", modify_too_far},
    {"ibv_modify_qp_rate_limit", modify_rate_limit},
    {"ibv_set_ece", set_ece},
    {"ibv_query_ece", query_ece},
    {"ibv_resolve_eth_l2_from_gid", resolve_mac},
    {"ibv_create_cq: cqe above max_cqe", create_long_cq},
    {"ibv_create_cq: comp_vector too large", create_cq_vector},
    {"ibv_create_cq_ex: an unknown comp_mask", create_cq_mask},
    {"ibv_create_cq_ex: a parent domain that is none", create_cq_domain},
    {"ibv_create_cq_ex: unknown wc_flags", create_cq_fields},
    {"ibv_resize_cq: above max_cqe", resize_cq},
    {"ibv_modify_cq: an unknown attr_mask", modify_cq},
    {"ibv_modify_srq: IBV_SRQ_MAX_WR", modify_srq},
    {"ibv_reg_dmabuf_mr: neither a dma-buf nor a file in memory", register_other},
    {"ibv_reg_dmabuf_mr: a range that leaves it", register_beyond},
    {"ibv_import_device: of another process", import_foreign},
    {"ibv_import_device: a descriptor of something else", import_strange},
    {"ibv_import_pd: an unknown handle", import_pd},
    {"ibv_import_mr: an unknown handle", import_mr},
    {"ibv_import_dm: an unknown handle", import_dm},
    {"ibv_alloc_td: an unknown comp_mask", allocate_td},
    {"ibv_alloc_parent_domain: without a domain", allocate_parent},
    {"ibv_alloc_parent_domain: allocators that are NULL", allocate_parent_null},
};

#define CASE_COUNT (sizeof cases / sizeof *cases)

static size_t case_of(const char *call)
{
    for (size_t i = 0; i < CASE_COUNT; i++) {
        if (strcmp(cases[i].call, call) == 0) {
            return i;
        }
    }
    fail_msg("row without a case: %s", call);
    return 0;
}

static int error_of_name(const char *name)
{
    if (strcmp(name, "EOPNOTSUPP") == 0) {
        return EOPNOTSUPP;
    }
    if (strcmp(name, "ENOENT") == 0) {
        return ENOENT;
    }
    assert_string_equal(name, "EINVAL");
    return EINVAL;
}

static void test_every_row(void **state)
{
    struct world *w = *state;
    struct ibv_qp_init_attr init = small(w->cq);
    bool walked[CASE_COUNT] = {false};
    char line[512];
    w->qps[0] = ibv_create_qp(w->pd, &init);
    assert_non_null(w->qps[0]);
    FILE *table = fopen(table_path, "re");
    assert_non_null(table);
    while (fgets(line, sizeof line, table) != NULL) {
        char call[128];
        char name[32];
        if (sscanf(line, "| `%127[^`]` | %31[A-Z] |", call, name) == 2) {
            size_t i = case_of(call);
            errno = 0;
            int error = cases[i].draw(w);
            if (error != error_of_name(name)) {
                fail_msg("%s: %d, not %s", call, error, name);
            }
            walked[i] = true;
        }
    }
    fclose(table);
    for (size_t i = 0; i < CASE_COUNT; i++) {
        if (!walked[i]) {
            fail_msg("case without a row: %s", cases[i].call);
        }
    }
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {IN_WORLD(test_every_row)};
    if (count != 2) {
        return 2;
    }
    table_path = arguments[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
