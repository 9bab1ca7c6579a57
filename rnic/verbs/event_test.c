/* libibverbs.so.1 as programs see it: async events of queue pairs, forked children, and the way
 * back to the sender of a datagram. Uses public calls only. */
#include "rnic/verbs/world_test.h"

#include <sys/wait.h>

static bool has_event(const struct world *w, int milliseconds)
{
    struct pollfd ready = {.fd = w->context->async_fd, .events = POLLIN};
    return poll(&ready, 1, milliseconds) == 1;
}

static void expect_event(const struct world *w, enum ibv_event_type type, const struct ibv_qp *qp)
{
    struct ibv_async_event event;
    assert_true(has_event(w, 20000));
    assert_int_equal(ibv_get_async_event(w->context, &event), 0);
    assert_int_equal(event.event_type, type);
    assert_ptr_equal(event.element.qp, qp);
    ibv_ack_async_event(&event);
}

static int modify_state(struct ibv_qp *qp, enum ibv_qp_state state, int mask, uint8_t notify)
{
    struct ibv_qp_attr attributes = {.qp_state = state, .en_sqd_async_notify = notify};
    return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | mask);
}

static void post_write(struct world *w, uint64_t address, uint32_t key)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes, 8, w->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {address, key}};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
}

static void test_drained_is_said_where_asked_for(void **state)
{
    struct world *w = *state;
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    connect_pair(w);
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_SQD, 0, 0), 0);
    assert_int_equal(ibv_query_qp(w->qps[0], &attributes, IBV_QP_STATE, &init), 0);
    assert_int_equal(attributes.qp_state, IBV_QPS_SQD);
    assert_false(has_event(w, 0));
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_RTS, 0, 0), 0);

    assert_int_equal(modify_state(w->qps[0], IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1), 0);
    expect_event(w, IBV_EVENT_SQ_DRAINED, w->qps[0]);
    assert_int_equal(ibv_query_qp(w->qps[0], &attributes, IBV_QP_STATE, &init), 0);
    assert_int_equal(attributes.sq_draining, 0);
    assert_int_equal(attributes.en_sqd_async_notify, 1);

    /* What was asked for the last time is not asked for again. */
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_RTS, 0, 0), 0);
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_SQD, 0, 0), 0);
    assert_int_equal(ibv_query_qp(w->qps[0], &attributes, IBV_QP_STATE, &init), 0);
    assert_int_equal(attributes.en_sqd_async_notify, 0);
    assert_false(has_event(w, 0));

    /* It can be asked for where draining begins, and nowhere else. */
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1), EINVAL);
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_RTS, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1), EINVAL);
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_RTS, 0, 0), 0);
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_RTS, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1), EINVAL);
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_ERR, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1), EINVAL);
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1), 0);
    expect_event(w, IBV_EVENT_SQ_DRAINED, w->qps[0]);
}

static void test_access_error(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    post_write(w, (uintptr_t)w->bytes + sizeof w->bytes, w->mr->rkey);
    assert_int_equal(await(w->cq).status, IBV_WC_REM_ACCESS_ERR);
    expect_event(w, IBV_EVENT_QP_ACCESS_ERR, w->qps[1]);
}

static void test_communication_established(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RESET};
    assert_int_equal(ibv_modify_qp(w->qps[1], &attributes, IBV_QP_STATE), 0);
    to_init(w->qps[1]);
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = w->qps[0]->qp_num,
        .rq_psn = 100,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}},
    };
    assert_int_equal(ibv_query_gid(w->context, 1, 0, &attributes.ah_attr.grh.dgid), 0);
    assert_int_equal(ibv_modify_qp(w->qps[1], &attributes,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER),
                     0);
    post_write(w, (uintptr_t)w->bytes + 2048, w->mr->rkey);
    assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
    expect_event(w, IBV_EVENT_COMM_EST, w->qps[1]);
}

static void test_last_receive_reached(void **state)
{
    struct world *w = *state;
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(w->pd, &srq_init);
    struct ibv_qp_init_attr init = small(w->cq);
    init.srq = srq;
    w->qps[0] = ibv_create_qp(w->pd, &init);
    assert_non_null(w->qps[0]);
    to_init(w->qps[0]);
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_ERR, 0, 0), 0);
    expect_event(w, IBV_EVENT_QP_LAST_WQE_REACHED, w->qps[0]);
    assert_int_equal(ibv_destroy_qp(w->qps[0]), 0);
    w->qps[0] = NULL;
    assert_int_equal(ibv_destroy_srq(srq), 0);
}

/* A child opens the device anew; what the parent has goes on. */
static void test_forked_child(void **state)
{
    struct world *w = *state;
    assert_int_equal(ibv_fork_init(), 0);
    assert_int_equal(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
    connect_pair(w);
    pid_t child = fork();
    if (child == 0) {
        void *own = NULL;
        open_world(&own);
        struct world *again = own;
        connect_pair(again);
        post_write(again, (uintptr_t)again->bytes + 2048, again->mr->rkey);
        bool fine = await(again->cq).status == IBV_WC_SUCCESS && close_world(&own) == 0;
        _exit(fine ? 0 : 1);
    }
    int status;
    assert_true(child > 0);
    post_write(w, (uintptr_t)w->bytes + 2048, w->mr->rkey);
    assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    post_write(w, (uintptr_t)w->bytes + 2048, w->mr->rkey);
    assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
}

/* What it does with an inherited queue is told to nobody. */
static void test_child_arms(void **state)
{
    struct world *w = *state;
    struct pollfd ready = {.fd = w->channel->fd, .events = POLLIN};
    int status;
    connect_pair(w);
    post_write(w, (uintptr_t)w->bytes + 2048, w->mr->rkey);
    assert_int_equal(modify_state(w->qps[0], IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1), 0);
    expect_event(w, IBV_EVENT_SQ_DRAINED, w->qps[0]);
    pid_t child = fork(); /* with a completion in it that no event has told of */
    if (child == 0) {
        _exit(ibv_req_notify_cq(w->cq, 0));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(poll(&ready, 1, 0), 0);
    assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
}

/* Work that it posts to an inherited queue pair is never done, and that is said. */
static void test_child_posts(void **state)
{
    struct world *w = *state;
    char text[512] = "";
    int ends[2], status;
    connect_pair(w);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        post_write(w, (uintptr_t)w->bytes + 2048, w->mr->rkey);
        post_write(w, (uintptr_t)w->bytes + 2048, w->mr->rkey);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
    close(ends[0]);
    const char *words = strstr(text, "open the device after fork()");
    assert_non_null(words);
    assert_null(strstr(words + 1, "open the device")); /* once */
}

#define QKEY 0x11111111u

static struct ibv_qp *create_datagram(struct world *w)
{
    struct ibv_qp_init_attr init = small(w->cq);
    init.qp_type = IBV_QPT_UD;
    struct ibv_qp *qp = ibv_create_qp(w->pd, &init);
    assert_non_null(qp);
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    assert_int_equal(ibv_modify_qp(qp, &attributes,
                                   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
                     0);
    assert_int_equal(modify_state(qp, IBV_QPS_RTR, 0, 0), 0);
    assert_int_equal(modify_state(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN, 0), 0);
    return qp;
}

/* Sends 8 bytes and returns the completion of their receive at `offset`. */
static struct ibv_wc pass(struct world *w, int from, struct ibv_ah *ah, uint32_t offset)
{
    struct ibv_qp *to = w->qps[1 - from];
    assert_int_equal(post_receive(w, to, 5, offset, 64), 0);
    struct ibv_sge sge = {(uintptr_t)w->bytes, 8, w->mr->lkey};
    struct ibv_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .wr.ud = {ah, to->qp_num, QKEY}};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(w->qps[from], &wr, &bad), 0);
    struct ibv_wc wc = await(w->cq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.wr_id, 5);
    assert_int_equal(wc.byte_len, 48);
    assert_true((wc.wc_flags & IBV_WC_GRH) != 0);
    assert_int_equal(wc.src_qp, w->qps[from]->qp_num);
    assert_memory_equal(w->bytes + offset + 40, w->bytes, 8);
    return wc;
}

static void test_way_back_to_a_sender(void **state)
{
    struct world *w = *state;
    struct ibv_ah_attr attributes = {
        .is_global = 1, .port_num = 1, .grh = {.hop_limit = 7, .traffic_class = 0x20}};
    union ibv_gid gid;
    assert_int_equal(ibv_query_gid(w->context, 1, 0, &gid), 0);
    attributes.grh.dgid = gid;
    w->qps[0] = create_datagram(w);
    w->qps[1] = create_datagram(w);
    struct ibv_ah *ah = ibv_create_ah(w->pd, &attributes);
    assert_non_null(ah);
    memcpy(w->bytes, "datagram", 8);
    struct ibv_wc wc = pass(w, 0, ah, 1024);

    /* The rule that UCX goes by: the header's form is told by the service level. */
    const uint8_t *header = w->bytes + 1024;
    bool is_ipv4 = (wc.sl & 3) == 2;
    assert_int_equal(header[is_ipv4 ? 20 : 0] >> 4, is_ipv4 ? 4 : 6);
    assert_memory_equal(header + (is_ipv4 ? 36 : 24), gid.raw + (is_ipv4 ? 12 : 0),
                        is_ipv4 ? 4 : 16);

    struct ibv_grh *grh = (struct ibv_grh *)(w->bytes + 1024);
    struct ibv_ah_attr back;
    assert_int_equal(ibv_init_ah_from_wc(w->context, 1, &wc, grh, &back), 0);
    assert_int_equal(back.is_global, 1);
    assert_int_equal(back.port_num, 1);
    assert_memory_equal(&back.grh.dgid, &gid, sizeof gid);
    assert_int_equal(back.grh.traffic_class & 0xfc, 0x20);
    struct ibv_ah *answer = ibv_create_ah_from_wc(w->pd, &wc, grh, 1);
    assert_non_null(answer);
    pass(w, 1, answer, 2048);
    assert_int_equal(ibv_init_ah_from_wc(w->context, 9, &wc, grh, &back), -1);
    assert_int_equal(ibv_destroy_ah(answer), 0);
    assert_int_equal(ibv_destroy_ah(ah), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(test_drained_is_said_where_asked_for),
        IN_WORLD(test_access_error),
        IN_WORLD(test_communication_established),
        IN_WORLD(test_last_receive_reached),
        IN_WORLD(test_forked_child),
        IN_WORLD(test_child_arms),
        IN_WORLD(test_child_posts),
        IN_WORLD(test_way_back_to_a_sender),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
