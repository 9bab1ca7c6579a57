/* Shared receive queues of tag matching as programs see them: one process, a queue pair that sends
 * and one whose messages are sorted. */
#include "rnic/verbs/world_test.h"

static struct ibv_srq *create_matching(struct world *w, struct ibv_cq *cq)
{
    struct ibv_srq_init_attr_ex matching = {.attr = {.max_wr = 8, .max_sge = 1},
                                            .comp_mask =
                                                IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
                                            .srq_type = IBV_SRQT_TM,
                                            .pd = w->pd,
                                            .cq = cq,
                                            .tm_cap = {.max_num_tags = 8, .max_ops = 8}};
    struct ibv_srq *srq = ibv_create_srq_ex(w->context, &matching);
    assert_non_null(srq);
    return srq;
}

/* Receives complete to the shared receive queue's completion queue; the queue pair's own is looked
 * at when that is reset. */
static void test_what_a_queue_pair_names_stays(void **state)
{
    struct world *w = *state;
    struct ibv_srq *srq = create_matching(w, w->cq);
    struct ibv_cq *named = ibv_create_cq(w->context, 8, NULL, NULL, 0);
    assert_non_null(named);
    struct ibv_qp_init_attr init = small(w->cq);
    init.srq = srq;
    init.recv_cq = named;
    struct ibv_qp *qp = ibv_create_qp(w->pd, &init);
    assert_non_null(qp);
    assert_int_equal(ibv_destroy_cq(named), EBUSY);
    assert_int_equal(ibv_destroy_srq(srq), EBUSY);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    assert_int_equal(ibv_destroy_cq(named), 0);
    assert_int_equal(ibv_destroy_srq(srq), 0);
}

static void test_operations_have_a_time(void **state)
{
    struct world *w = *state;
    struct ibv_cq_init_attr_ex stamped = {.cqe = 8,
                                          .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(w->context, &stamped);
    assert_non_null(cq);
    struct ibv_srq *srq = create_matching(w, ibv_cq_ex_to_cq(cq));
    struct ibv_ops_wr *bad, wr = {.opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_SIGNALED};
    uint64_t before = read_clock_ns(CLOCK_MONOTONIC);
    assert_int_equal(ibv_post_srq_ops(srq, &wr, &bad), 0);
    uint64_t after = read_clock_ns(CLOCK_MONOTONIC);
    assert_int_equal(ibv_start_poll(cq, &(struct ibv_poll_cq_attr){0}), 0);
    uint64_t stamp = ibv_wc_read_completion_ts(cq);
    ibv_end_poll(cq);
    assert_true(before <= stamp && stamp <= after);
    assert_int_equal(ibv_destroy_srq(srq), 0);
    assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

#define EAGER 3u /* of enum ibv_tmh_op */

/* w->qps: one that sends, and one whose messages `srq` sorts. */
static void connect_to_matching(struct world *w, struct ibv_srq *srq)
{
    for (int i = 0; i < 2; i++) {
        struct ibv_qp_init_attr init = small(w->cq);
        init.srq = i == 0 ? NULL : srq;
        w->qps[i] = ibv_create_qp(w->pd, &init);
        assert_non_null(w->qps[i]);
        to_init(w->qps[i]);
    }
    to_rts(w->qps[0], w->qps[1]->qp_num);
    to_rts(w->qps[1], w->qps[0]->qp_num);
    struct ibv_sge sge = {(uintptr_t)w->bytes + 2048, 1024, w->mr->lkey};
    struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
    }
}

/* What its receiver is told. The sender is told nothing. */
static struct ibv_wc send_tagged(struct world *w, uint8_t operation, uint8_t tag, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes, length, w->mr->lkey};
    struct ibv_send_wr *bad, wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    memset(w->bytes, 0, 16);
    w->bytes[0] = operation;
    w->bytes[15] = tag;
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
    struct ibv_wc wc = await(w->cq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    return wc;
}

static void end_matching(struct world *w, struct ibv_srq *srq)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
        w->qps[i] = NULL;
    }
    assert_int_equal(ibv_destroy_srq(srq), 0);
}

/* The count of an operation without IBV_OPS_TM_SYNC means nothing. */
static void test_what_was_told_last_holds(void **state)
{
    struct world *w = *state;
    struct ibv_srq *srq = create_matching(w, w->cq);
    const unsigned matched = IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID;
    struct ibv_sge sge = {(uintptr_t)w->bytes + 1024, 64, w->mr->lkey};
    struct ibv_ops_wr *bad;
    struct ibv_ops_wr sync = {
        .opcode = IBV_WR_TAG_SYNC, .flags = IBV_OPS_TM_SYNC, .tm.unexpected_cnt = 1};
    struct ibv_ops_wr wr = {
        .opcode = IBV_WR_TAG_ADD,
        .tm.add = {.recv_wr_id = 7, .sg_list = &sge, .num_sge = 1, .tag = 5, .mask = UINT64_MAX}};
    connect_to_matching(w, srq);
    assert_int_equal(send_tagged(w, EAGER, 5, 32).wc_flags & matched, 0);
    assert_int_equal(ibv_post_srq_ops(srq, &sync, &bad), 0);
    assert_int_equal(ibv_post_srq_ops(srq, &wr, &bad), 0);
    struct ibv_wc wc = send_tagged(w, EAGER, 5, 32);
    assert_int_equal(wc.wc_flags & matched, matched);
    assert_int_equal(wc.wr_id, 7);
    /* Of what came since nothing was told. */
    assert_int_equal(send_tagged(w, EAGER, 5, 32).wc_flags & matched, 0);
    wr.tm.unexpected_cnt = 2;
    assert_int_equal(ibv_post_srq_ops(srq, &wr, &bad), 0);
    assert_int_equal(send_tagged(w, EAGER, 5, 32).wc_flags & matched, 0);
    end_matching(w, srq);
}

/* It ends with its first byte, as far as the matching is concerned. */
static void test_without_a_tag_a_header_may_be_short(void **state)
{
    struct world *w = *state;
    struct ibv_srq *srq = create_matching(w, w->cq);
    connect_to_matching(w, srq);
    struct ibv_wc wc = send_tagged(w, 0, 0, 1);
    assert_int_equal(wc.opcode, IBV_WC_TM_NO_TAG);
    assert_int_equal(wc.byte_len, 1);
    assert_int_equal(send_tagged(w, 0, 0, 100).opcode, IBV_WC_TM_NO_TAG);
    assert_int_equal(send_tagged(w, EAGER, 0, 15).opcode, IBV_WC_RECV);
    assert_int_equal(send_tagged(w, 0, 0, 0).opcode, IBV_WC_RECV);
    end_matching(w, srq);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(test_what_a_queue_pair_names_stays),
        IN_WORLD(test_operations_have_a_time),
        IN_WORLD(test_what_was_told_last_holds),
        IN_WORLD(test_without_a_tag_a_header_may_be_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
