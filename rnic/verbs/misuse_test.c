/* libibverbs.so.1 at its edges: objects given up in an unusual order, calls at unusual moments,
 * memory that is not what it is registered for. Uses public calls only. */
#include "rnic/verbs/world_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* A handle that was imported is given back while a queue pair that it made is still there. */
static void test_an_imported_domain_outlives_its_handle(void **state)
{
    struct world *w = *state;
    struct ibv_pd *pd = ibv_import_pd(w->context, w->pd->handle);
    assert_non_null(pd);
    struct ibv_qp_init_attr init = small(w->cq);
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    assert_non_null(qp);
    ibv_unimport_pd(pd);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void write_between(struct world *w, struct ibv_mr *to, uint64_t address)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes, 8, w->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {address, to->rkey}};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
}

/* A program may do so at any moment; also while it looks at a completion. */
static void test_arming_between_two_polls(void **state)
{
    struct world *w = *state;
    struct ibv_cq_init_attr_ex init = {.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(w->context, &init);
    struct ibv_cq *plain = w->cq;
    struct ibv_poll_cq_attr poll = {0};
    assert_non_null(cq);
    w->cq = ibv_cq_ex_to_cq(cq);
    connect_pair(w);
    write_between(w, w->mr, (uintptr_t)w->bytes + 2048);
    while (ibv_start_poll(cq, &poll) == ENOENT) {
    }
    assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
    ibv_end_poll(cq);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
        w->qps[i] = NULL;
    }
    assert_int_equal(ibv_destroy_cq(w->cq), 0);
    w->cq = plain;
}

static struct ibv_mr *try_to_register(struct world *w, void *bytes, size_t length, int access)
{
    errno = 0;
    return ibv_reg_mr(w->pd, bytes, length, access);
}

/* As a kernel, which pins for writing. What a peer writes there would end the process. */
static void test_memory_that_cannot_be_written(void **state)
{
    struct world *w = *state;
    const int write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *bytes =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(bytes, MAP_FAILED);
    struct ibv_mr *mr = try_to_register(w, bytes, 2 * page, write);
    assert_non_null(mr);
    assert_int_equal(ibv_dereg_mr(mr), 0);

    assert_int_equal(mprotect(bytes + page, page, PROT_READ), 0);
    assert_null(try_to_register(w, bytes, 2 * page, write));
    assert_int_equal(errno, EFAULT);
    mr = try_to_register(w, bytes, page, write);
    assert_non_null(mr);
    assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bytes, 2 * page, 0),
                     IBV_REREG_MR_ERR_INPUT);
    assert_int_equal(errno, EFAULT);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    mr = try_to_register(w, bytes, 2 * page, IBV_ACCESS_REMOTE_READ);
    assert_non_null(mr);
    assert_int_equal(ibv_dereg_mr(mr), 0);
    munmap(bytes, 2 * page);
}

/* The import destroys it; the original is given up without another word to the device. */
static void test_domain_destroyed_by_its_import(void **state)
{
    struct world *w = *state;
    struct ibv_context *other = ibv_import_device(dup(w->context->cmd_fd));
    assert_non_null(other);
    struct ibv_pd *pd = ibv_alloc_pd(w->context);
    struct ibv_pd *same = ibv_import_pd(other, pd->handle);
    assert_non_null(same);
    uint32_t handle = pd->handle;
    assert_int_equal(ibv_dealloc_pd(same), 0);
    ibv_unimport_pd(pd);
    errno = 0;
    assert_null(ibv_import_pd(other, handle));
    assert_int_equal(errno, ENOENT);

    struct ibv_alloc_dm_attr attributes = {.length = 64};
    struct ibv_dm *dm = ibv_alloc_dm(w->context, &attributes);
    struct ibv_dm *imported = ibv_import_dm(other, dm->handle);
    assert_non_null(imported);
    struct ibv_mr *mr = ibv_reg_dm_mr(w->pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED);
    assert_non_null(mr);
    struct ibv_mr *its = ibv_import_mr(w->pd, mr->handle);
    assert_non_null(its);
    assert_int_equal(ibv_free_dm(imported), EBUSY);
    ibv_unimport_mr(its);
    assert_int_equal(ibv_free_dm(imported), EBUSY);
    its = ibv_import_mr(w->pd, mr->handle);
    assert_int_equal(ibv_dereg_mr(its), 0);
    ibv_unimport_mr(mr);
    handle = dm->handle;
    assert_int_equal(ibv_free_dm(imported), 0);
    ibv_unimport_dm(dm);
    assert_null(ibv_import_dm(other, handle));
    assert_int_equal(ibv_close_device(other), 0);
}

/* Its first handle stays behind when another one has destroyed it. */
static void test_nothing_is_made_in_a_destroyed_domain(void **state)
{
    struct world *w = *state;
    struct ibv_pd *pd = ibv_alloc_pd(w->context);
    uint32_t handle = pd->handle;
    assert_int_equal(ibv_dealloc_pd(ibv_import_pd(w->context, handle)), 0);
    assert_null(ibv_import_pd(w->context, handle));
    assert_int_equal(errno, ENOENT);
    struct ibv_qp_init_attr init = small(w->cq);
    struct ibv_srq_init_attr shared = {.attr = {1, 1, 0}};
    struct ibv_ah_attr vector = {.is_global = 1, .port_num = 1};
    struct ibv_parent_domain_init_attr parent = {.pd = pd};
    assert_int_equal(ibv_query_gid(w->context, 1, 0, &vector.grh.dgid), 0);
    for (int i = 0; i < 5; i++) {
        errno = 0;
        assert_null(i == 0   ? (void *)ibv_create_qp(pd, &init)
                    : i == 1 ? (void *)ibv_create_srq(pd, &shared)
                    : i == 2 ? (void *)ibv_create_ah(pd, &vector)
                    : i == 3 ? (void *)ibv_alloc_parent_domain(w->context, &parent)
                             : (void *)ibv_alloc_mw(pd, IBV_MW_TYPE_1));
        assert_int_equal(errno, EINVAL);
    }
    ibv_unimport_pd(pd);
}

/* As a kernel has it, which cleans up what is left in a device that is closed. */
static void test_domain_that_nobody_destroys(void **state)
{
    pid_t child = fork();
    if (child == 0) {
        struct ibv_context *context = ibv_open_device(((struct world *)*state)->context->device);
        struct ibv_context *other = ibv_import_device(dup(context->cmd_fd));
        struct ibv_pd *pd = ibv_alloc_pd(context);
        ibv_unimport_pd(ibv_import_pd(other, pd->handle));
        ibv_unimport_pd(pd);
        _exit(ibv_close_device(context) == 0 && ibv_close_device(other) == 0 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* As of a program that counts completions for hours. */
static void test_too_many_acknowledgements_hold_up_nobody(void **state)
{
    struct world *w = *state;
    struct ibv_cq *cq = ibv_create_cq(w->context, 1, NULL, w->channel, 0);
    assert_non_null(cq);
    ibv_ack_cq_events(cq, UINT32_C(1) << 31);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    assert_int_equal(ibv_destroy_cq(cq), 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec < 4); /* those who wait do so for five */
}

static void test_channel_that_outlives_its_context(void **state)
{
    struct world *w = *state;
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    assert_non_null(channel);
    ibv_free_device_list(list);
    assert_int_equal(ibv_close_device(context), 0);
    assert_int_equal(ibv_destroy_comp_channel(channel), 0);
    assert_int_equal(ibv_close_device(context), 0); /* as it was still there, for good now */
    (void)w;
}

static void test_success_leaves_errno(void **state)
{
    struct world *w = *state;
    struct ibv_parent_domain_init_attr init = {.pd = w->pd};
    errno = EXDEV;
    struct ibv_pd *parent = ibv_alloc_parent_domain(w->context, &init);
    assert_non_null(parent);
    assert_int_equal(errno, EXDEV);
    assert_int_equal(ibv_dealloc_pd(parent), 0);
}

static void test_batch_without_an_address(void **state)
{
    struct world *w = *state;
    struct ibv_qp_init_attr_ex init = {.comp_mask =
                                           IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                       .pd = w->pd,
                                       .send_ops_flags = IBV_QP_EX_WITH_SEND,
                                       .send_cq = w->cq,
                                       .recv_cq = w->cq,
                                       .cap = {1, 1, 1, 1, 0},
                                       .qp_type = IBV_QPT_UD};
    struct ibv_qp *qp = ibv_create_qp_ex(w->context, &init);
    assert_non_null(qp);
    struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);
    for (int named = 0; named < 2; named++) {
        ibv_wr_start(extended);
        ibv_wr_send(extended);
        if (named != 0) {
            ibv_wr_set_ud_addr(extended, NULL, 1, 1);
        }
        ibv_wr_set_sge(extended, w->mr->lkey, (uintptr_t)w->bytes, 8);
        assert_int_equal(ibv_wr_complete(extended), EINVAL);
    }
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

/* A child that tidies up takes nothing from the parent. */
static void test_events_outlast_a_child(void **state)
{
    struct world *w = *state;
    struct pollfd ready = {.fd = w->channel->fd, .events = POLLIN};
    struct ibv_cq *cq;
    void *context;
    connect_pair(w);
    assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
    write_between(w, w->mr, (uintptr_t)w->bytes + 2048);
    assert_int_equal(poll(&ready, 1, 20000), 1);
    pid_t child = fork();
    if (child == 0) {
        int error = ibv_destroy_qp(w->qps[0]) | ibv_destroy_qp(w->qps[1]);
        error |= ibv_destroy_cq(w->cq) | ibv_destroy_comp_channel(w->channel);
        _exit(error);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(poll(&ready, 1, 0), 1);
    assert_int_equal(ibv_get_cq_event(w->channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
}

/* A child that connects what it has inherited: nothing comes of it, and nobody falls. */
static void test_a_child_connects_what_it_inherited(void **state)
{
    struct world *w = *state;
    w->qps[0] = create_extended(w, 0);
    assert_non_null(w->qps[0]);
    to_init(w->qps[0]);
    pid_t child = fork();
    if (child == 0) {
        to_rts(w->qps[0], w->qps[0]->qp_num);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    to_rts(w->qps[0], w->qps[0]->qp_num); /* it is the parent's still */
}

#define THREADS 3
#define FORKS   60

struct stage {
    struct world *w;
    _Atomic bool over;
};

static void *make_domains(void *argument)
{
    struct stage *stage = argument;
    while (!atomic_load(&stage->over)) {
        struct ibv_pd *pd = ibv_alloc_pd(stage->w->context);
        assert_non_null(pd);
        assert_int_equal(ibv_dealloc_pd(pd), 0);
    }
    return NULL;
}

static bool open_and_make(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = ibv_open_device(list[0]);
    return context != NULL && ibv_alloc_pd(context) != NULL;
}

/* What threads of the parent's had in hand when it forked is not in a child's way. */
static void test_fork_beside_calls(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    skip(); /* a child may find its allocator locked for ever */
#endif
    struct stage stage = {.w = *state};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, make_domains, &stage), 0);
    }
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(open_and_make() ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&stage.over, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(test_an_imported_domain_outlives_its_handle),
        IN_WORLD(test_arming_between_two_polls),
        IN_WORLD(test_too_many_acknowledgements_hold_up_nobody),
        IN_WORLD(test_memory_that_cannot_be_written),
        IN_WORLD(test_domain_destroyed_by_its_import),
        IN_WORLD(test_nothing_is_made_in_a_destroyed_domain),
        IN_WORLD(test_domain_that_nobody_destroys),
        IN_WORLD(test_channel_that_outlives_its_context),
        IN_WORLD(test_success_leaves_errno),
        IN_WORLD(test_batch_without_an_address),
        IN_WORLD(test_events_outlast_a_child),
        IN_WORLD(test_a_child_connects_what_it_inherited),
        IN_WORLD(test_fork_beside_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
