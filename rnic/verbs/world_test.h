/* One process with all that a test of libibverbs needs, and two queue pairs that talk to each
 * other.
 */
#ifndef WEIR_VERBS_WORLD_TEST_H
#define WEIR_VERBS_WORLD_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define DEPTH 8

struct world {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qps[2];
    struct ibv_mr *mr;
    uint8_t bytes[4096];
};

/* Not time(): it lags behind the wall's clock by up to a tick. */
static inline uint64_t read_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline struct ibv_qp_init_attr small(struct ibv_cq *cq)
{
    return (struct ibv_qp_init_attr){
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {DEPTH, DEPTH, 2, 2, 64},
        .qp_type = IBV_QPT_RC,
    };
}

static inline int open_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct ibv_device **list = ibv_get_device_list(NULL);
    assert_non_null(list);
    w->context = ibv_open_device(list[0]);
    assert_non_null(w->context);
    ibv_free_device_list(list);
    w->pd = ibv_alloc_pd(w->context);
    w->channel = ibv_create_comp_channel(w->context);
    w->cq = ibv_create_cq(w->context, 64, w, w->channel, 0);
    assert_true(w->pd != NULL && w->channel != NULL && w->cq != NULL);
    w->mr = ibv_reg_mr(w->pd, w->bytes, sizeof w->bytes,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC);
    assert_non_null(w->mr);
    *state = w;
    return 0;
}

static inline int close_world(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 2; i++) {
        if (w->qps[i] != NULL) {
            assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
        }
    }
    assert_int_equal(ibv_dereg_mr(w->mr), 0);
    assert_int_equal(ibv_destroy_cq(w->cq), 0);
    assert_int_equal(ibv_destroy_comp_channel(w->channel), 0);
    assert_int_equal(ibv_dealloc_pd(w->pd), 0);
    assert_int_equal(ibv_close_device(w->context), 0);
    free(w);
    return 0;
}

static inline void to_init(struct ibv_qp *qp)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags =
            IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
    };
    assert_int_equal(
        ibv_modify_qp(qp, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
        0);
}

static inline void to_rts(struct ibv_qp *qp, uint32_t peer)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .rq_psn = 100,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}},
    };
    assert_int_equal(ibv_query_gid(qp->context, 1, 0, &attributes.ah_attr.grh.dgid), 0);
    assert_int_equal(ibv_modify_qp(qp, &attributes,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER),
                     0);
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = 100;
    attributes.timeout = 17;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 1;
    assert_int_equal(ibv_modify_qp(qp, &attributes,
                                   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
                                       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                       IBV_QP_MAX_QP_RD_ATOMIC),
                     0);
    assert_int_equal(qp->state, IBV_QPS_RTS);
}

static inline struct ibv_qp *create_extended(struct world *w, uint64_t operations)
{
    struct ibv_qp_init_attr_ex init = {.comp_mask =
                                           IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                       .pd = w->pd,
                                       .send_ops_flags = operations};
    struct ibv_qp_init_attr plain = small(w->cq);
    memcpy(&init, &plain, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
    return ibv_create_qp_ex(w->context, &init);
}

static inline void connect_pair(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        w->qps[i] = create_extended(w, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                           IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD);
        assert_non_null(w->qps[i]);
        to_init(w->qps[i]);
    }
    to_rts(w->qps[0], w->qps[1]->qp_num);
    to_rts(w->qps[1], w->qps[0]->qp_num);
}

static inline int post_receive(struct world *w, struct ibv_qp *qp, uint64_t id, uint32_t offset,
                               uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes + offset, length, w->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad = NULL;
    int error = ibv_post_recv(qp, &wr, &bad);
    assert_ptr_equal(bad, error == 0 ? NULL : &wr);
    return error;
}

/* A completion within twenty seconds. */
static inline struct ibv_wc await(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    time_t end = time(NULL) + 20;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
        assert_true(time(NULL) <= end);
    }
    assert_int_equal(count, 1);
    return wc;
}

#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, open_world, close_world)

#endif
