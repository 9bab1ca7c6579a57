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

static uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
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
    uint64_t before = clock_now_ns();
    assert_int_equal(ibv_post_srq_ops(srq, &wr, &bad), 0);
    uint64_t after = clock_now_ns();
    assert_int_equal(ibv_start_poll(cq, &(struct ibv_poll_cq_attr){0}), 0);
    uint64_t stamp = ibv_wc_read_completion_ts(cq);
    ibv_end_poll(cq);
    assert_true(before <= stamp && stamp <= after);
    assert_int_equal(ibv_destroy_srq(srq), 0);
    assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(test_what_a_queue_pair_names_stays),
        IN_WORLD(test_operations_have_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
