/* libibverbs.so.1 as programs see it: what goes from one queue pair to another, and how completions
 * and events tell of it. Uses public calls only. */
#include "rnic/verbs/world_test.h"

static void test_send_and_receive(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    memcpy(w->bytes, "from here to there", 19);
    assert_int_equal(post_receive(w, w->qps[1], 1, 2048, 64), 0);
    struct ibv_sge sge = {(uintptr_t)w->bytes, 19, w->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 2,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_IMM,
                             .imm_data = 0x11223344,
                             .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
    for (int i = 0; i < 2; i++) {
        struct ibv_wc wc = await(w->cq);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        if (wc.wr_id == 1) {
            assert_int_equal(wc.opcode, IBV_WC_RECV);
            assert_int_equal(wc.byte_len, 19);
            assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
            assert_int_equal(wc.imm_data, 0x11223344);
            assert_int_equal(wc.qp_num, w->qps[1]->qp_num);
        } else {
            assert_int_equal(wc.opcode, IBV_WC_SEND);
        }
    }
    assert_string_equal((char *)w->bytes + 2048, "from here to there");
}

/* As libiscsi does: its list of pieces lies in a packed structure. */
static void test_pieces_at_any_address(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    _Alignas(8) uint8_t room[1 + sizeof(struct ibv_sge)];
    struct ibv_sge *odd = (struct ibv_sge *)(void *)(room + 1);
    struct ibv_sge sge = {(uintptr_t)w->bytes + 2048, 64, w->mr->lkey};
    memcpy(odd, &sge, sizeof sge);
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = odd, .num_sge = 1};
    struct ibv_recv_wr *bad_receive;
    assert_int_equal(ibv_post_recv(w->qps[1], &receive, &bad_receive), 0);
    memcpy(w->bytes, "odd", 4);
    sge = (struct ibv_sge){(uintptr_t)w->bytes, 4, w->mr->lkey};
    memcpy(odd, &sge, sizeof sge);
    struct ibv_send_wr send = {
        .sg_list = odd, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = 0};
    struct ibv_send_wr *bad_send;
    assert_int_equal(ibv_post_send(w->qps[0], &send, &bad_send), 0);
    struct ibv_wc wc = await(w->cq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.wr_id, 1);
    assert_string_equal((char *)w->bytes + 2048, "odd");
}

static void test_reset_forgets(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(post_receive(w, w->qps[i], 10u + (unsigned)i, 0, 8), 0);
        struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
        assert_int_equal(ibv_modify_qp(w->qps[i], &error, IBV_QP_STATE), 0);
    }
    /* Both are flushed by now or soon; the first one's records go with its reset. */
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    assert_int_equal(ibv_modify_qp(w->qps[0], &reset, IBV_QP_STATE), 0);
    assert_int_equal(await(w->cq).wr_id, 11);
    assert_int_equal(ibv_poll_cq(w->cq, 1, &(struct ibv_wc){0}), 0);
}

static void test_batches(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(w->qps[0]);
    assert_int_equal(post_receive(w, w->qps[1], 1, 2048, 8), 0);

    /* An aborted batch leaves no trace. */
    ibv_wr_start(qp);
    qp->wr_id = 9;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes, 8);
    ibv_wr_abort(qp);

    uint64_t counter = 40;
    memcpy(w->bytes + 1024, &counter, sizeof counter);
    char text[8] = "inline!";
    ibv_wr_start(qp);
    qp->wr_id = 10;
    ibv_wr_rdma_write_imm(qp, w->mr->rkey, (uintptr_t)w->bytes + 3072, 5);
    ibv_wr_set_inline_data(qp, text, sizeof text);
    memset(text, 0, sizeof text);
    qp->wr_id = 11;
    ibv_wr_atomic_fetch_add(qp, w->mr->rkey, (uintptr_t)w->bytes + 1024, 2);
    ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes + 1032, 8);
    assert_int_equal(ibv_wr_complete(qp), 0);

    bool seen[12] = {false};
    for (int i = 0; i < 3; i++) {
        struct ibv_wc wc = await(w->cq);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_true(wc.wr_id < 12 && !seen[wc.wr_id]);
        seen[wc.wr_id] = true;
    }
    assert_true(seen[1] && seen[10] && seen[11]);
    assert_string_equal((char *)w->bytes + 3072, "inline!");
    memcpy(&counter, w->bytes + 1024, sizeof counter);
    assert_int_equal(counter, 42);
    memcpy(&counter, w->bytes + 1032, sizeof counter);
    assert_int_equal(counter, 40);

    /* A batch that does not fit is refused whole. */
    ibv_wr_start(qp);
    for (int i = 0; i < DEPTH + 1; i++) {
        ibv_wr_send(qp);
        ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes, 8);
    }
    assert_int_equal(ibv_wr_complete(qp), ENOMEM);
    assert_int_equal(ibv_poll_cq(w->cq, 1, &(struct ibv_wc){0}), 0);

    uint8_t long_text[65] = {0};
    ibv_wr_start(qp);
    ibv_wr_send(qp);
    ibv_wr_set_inline_data(qp, long_text, sizeof long_text);
    assert_int_equal(ibv_wr_complete(qp), EINVAL);
    ibv_wr_start(qp);
    ibv_wr_set_sge(qp, w->mr->lkey, 0, 0);
    assert_int_equal(ibv_wr_complete(qp), EINVAL);
}

static void test_completion_channel(void **state)
{
    struct world *w = *state;
    struct ibv_cq *cq = NULL;
    void *context = NULL;
    connect_pair(w);
    int flags = fcntl(w->channel->fd, F_GETFL);
    assert_int_equal(fcntl(w->channel->fd, F_SETFL, flags | O_NONBLOCK), 0);
    assert_int_equal(ibv_get_cq_event(w->channel, &cq, &context), -1);
    assert_int_equal(errno, EAGAIN);

    assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
    assert_int_equal(post_receive(w, w->qps[1], 1, 2048, 64), 0);
    struct ibv_sge sge = {(uintptr_t)w->bytes, 8, w->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);

    /* Nobody polls: the background thread must make it happen. */
    struct pollfd wait = {.fd = w->channel->fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 20000), 1);
    assert_int_equal(ibv_get_cq_event(w->channel, &cq, &context), 0);
    assert_ptr_equal(cq, w->cq);
    assert_ptr_equal(context, w);
    assert_int_equal(poll(&wait, 1, 0), 0);
    ibv_ack_cq_events(cq, 1);
    assert_int_equal(await(w->cq).wr_id, 1);
}

static void test_extended_polling(void **state)
{
    struct world *w = *state;
    struct ibv_cq_init_attr_ex attributes = {
        .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(w->context, &attributes);
    assert_non_null(cq);
    struct ibv_poll_cq_attr none = {0};
    assert_int_equal(ibv_start_poll(cq, &none), ENOENT);

    struct ibv_qp_init_attr init = small(ibv_cq_ex_to_cq(cq));
    w->qps[0] = ibv_create_qp(w->pd, &init);
    to_init(w->qps[0]);
    assert_int_equal(post_receive(w, w->qps[0], 5, 0, 8), 0);
    assert_int_equal(post_receive(w, w->qps[0], 6, 0, 8), 0);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    assert_int_equal(ibv_modify_qp(w->qps[0], &error, IBV_QP_STATE), 0);
    time_t end = time(NULL) + 5;
    while (ibv_start_poll(cq, &none) != 0) {
        assert_true(time(NULL) <= end);
    }
    assert_int_equal(cq->wr_id, 5);
    assert_int_equal(cq->status, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(ibv_wc_read_qp_num(cq), w->qps[0]->qp_num);
    assert_int_not_equal(ibv_wc_read_completion_ts(cq), 0);
    assert_int_equal(ibv_next_poll(cq), 0);
    assert_int_equal(cq->wr_id, 6);
    assert_int_equal(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    assert_int_equal(ibv_destroy_qp(w->qps[0]), 0);
    w->qps[0] = NULL;
    assert_int_equal(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

static void test_shared_queue_runs_low(void **state)
{
    struct world *w = *state;
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(w->pd, &init);
    struct ibv_qp_init_attr qp_init = small(w->cq);
    qp_init.srq = srq;
    w->qps[0] = ibv_create_qp(w->pd, &qp_init);
    w->qps[1] = create_extended(w, IBV_QP_EX_WITH_SEND);
    to_init(w->qps[0]);
    to_init(w->qps[1]);
    to_rts(w->qps[0], w->qps[1]->qp_num);
    to_rts(w->qps[1], w->qps[0]->qp_num);
    struct ibv_sge sge = {(uintptr_t)w->bytes, 8, w->mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad_receive;
    struct ibv_send_wr send = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
    }
    struct ibv_srq_attr attributes = {.srq_limit = 5};
    assert_int_equal(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT), EINVAL);
    attributes.srq_limit = 2;
    assert_int_equal(ibv_modify_srq(srq, &attributes, IBV_SRQ_LIMIT), 0);
    int flags = fcntl(w->context->async_fd, F_GETFL);
    assert_int_equal(fcntl(w->context->async_fd, F_SETFL, flags | O_NONBLOCK), 0);
    struct ibv_async_event event;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_get_async_event(w->context, &event), -1);
        assert_int_equal(ibv_post_send(w->qps[1], &send, &bad), 0);
        assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
    }
    assert_int_equal(ibv_get_async_event(w->context, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    assert_ptr_equal(event.element.srq, srq);
    ibv_ack_async_event(&event);
    assert_int_equal(ibv_query_srq(srq, &attributes), 0);
    assert_int_equal(attributes.srq_limit, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
        w->qps[i] = NULL;
    }
    assert_int_equal(ibv_destroy_srq(srq), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(test_send_and_receive),      IN_WORLD(test_pieces_at_any_address),
        IN_WORLD(test_reset_forgets),         IN_WORLD(test_batches),
        IN_WORLD(test_completion_channel),    IN_WORLD(test_extended_polling),
        IN_WORLD(test_shared_queue_runs_low),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
