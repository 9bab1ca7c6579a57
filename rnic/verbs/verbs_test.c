/* libibverbs.so.1 as programs see it: error returns, layouts in memory, and two queue pairs of one
 * process that talk to each other. Uses public calls only. */
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

static struct ibv_qp_init_attr small(struct ibv_cq *cq)
{
    return (struct ibv_qp_init_attr){
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {DEPTH, DEPTH, 2, 2, 64},
        .qp_type = IBV_QPT_RC,
    };
}

static int open_world(void **state)
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

static int close_world(void **state)
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

static void to_init(struct ibv_qp *qp)
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

static void to_rts(struct ibv_qp *qp, uint32_t peer)
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

static struct ibv_qp *create_extended(struct world *w, uint64_t operations)
{
    struct ibv_qp_init_attr_ex init = {.comp_mask =
                                           IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                       .pd = w->pd,
                                       .send_ops_flags = operations};
    struct ibv_qp_init_attr plain = small(w->cq);
    memcpy(&init, &plain, offsetof(struct ibv_qp_init_attr_ex, comp_mask));
    return ibv_create_qp_ex(w->context, &init);
}

static void connect_pair(struct world *w)
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

static int post_receive(struct world *w, struct ibv_qp *qp, uint64_t id, uint32_t offset,
                        uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes + offset, length, w->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad = NULL;
    int error = ibv_post_recv(qp, &wr, &bad);
    assert_ptr_equal(bad, error == 0 ? NULL : &wr);
    return error;
}

/* A completion within five seconds. */
static struct ibv_wc await(struct ibv_cq *cq)
{
    struct ibv_wc wc;
    time_t end = time(NULL) + 5;
    int count;
    while ((count = ibv_poll_cq(cq, 1, &wc)) == 0) {
        assert_true(time(NULL) <= end);
    }
    assert_int_equal(count, 1);
    return wc;
}

static void test_device_list_is_stable(void **state)
{
    int count = 0;
    struct ibv_device **first = ibv_get_device_list(&count);
    struct ibv_device **second = ibv_get_device_list(NULL);
    assert_int_equal(count, 1);
    assert_null(first[1]);
    assert_ptr_equal(first[0], second[0]);
    assert_string_equal(ibv_get_device_name(first[0]), first[0]->name);
    /* Vendor libraries look behind the struct. */
    const void *provider;
    memcpy(&provider, first[0] + 1, sizeof provider);
    assert_null(provider);
    ibv_free_device_list(first);
    ibv_free_device_list(second);
}

static void test_port_attributes_keep_their_length(void **state)
{
    struct world *w = *state;
    union {
        struct ibv_port_attr attributes;
        uint8_t bytes[64];
    } place;
    memset(place.bytes, 0xa5, sizeof place.bytes);
    assert_int_equal((ibv_query_port)(w->context, 1, (struct _compat_ibv_port_attr *)&place), 0);
    assert_int_equal(place.bytes[48], 0xa5);
    assert_int_equal(place.attributes.state, IBV_PORT_ACTIVE);
    assert_int_equal(ibv_query_port(w->context, 1, &place.attributes), 0);
    assert_int_equal(place.bytes[52], 0xa5);
    assert_int_equal(place.attributes.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_int_equal(ibv_query_port(w->context, 0, &place.attributes), EINVAL);
    assert_int_equal(ibv_query_port(w->context, 2, &place.attributes), EINVAL);
}

static void test_gids_and_pkeys(void **state)
{
    struct world *w = *state;
    struct ibv_port_attr port;
    struct ibv_gid_entry entries[256];
    union ibv_gid gid;
    uint16_t pkey;
    assert_int_equal(ibv_query_port(w->context, 1, &port), 0);
    assert_int_equal(ibv_query_gid(w->context, 1, 0, &gid), 0);
    assert_int_equal(ibv_query_gid(w->context, 1, port.gid_tbl_len, &gid), -1);
    assert_int_equal(ibv_query_gid(w->context, 1, -1, &gid), -1);
    ssize_t count = ibv_query_gid_table(w->context, entries, 256, 0);
    assert_true(count > 0 && count <= port.gid_tbl_len);
    assert_memory_equal(&entries[0].gid, &gid, sizeof gid);
    assert_int_equal(entries[0].gid_type, IBV_GID_TYPE_ROCE_V2);
    assert_int_equal(ibv_query_gid_table(w->context, entries, 0, 0), -EINVAL);
    assert_int_equal(ibv_query_gid_table(w->context, entries, 256, 1), -EOPNOTSUPP);
    assert_int_equal(ibv_query_gid_ex(w->context, 1, 0, entries, 1), EOPNOTSUPP);
    assert_int_equal(ibv_query_gid_ex(w->context, 1, (uint32_t)port.gid_tbl_len, entries, 0),
                     EINVAL);
    assert_int_equal(ibv_query_pkey(w->context, 1, 0, &pkey), 0);
    assert_int_equal(pkey, 0xffff);
    assert_int_equal(ibv_query_pkey(w->context, 1, 1, &pkey), -1);
    assert_int_equal(ibv_get_pkey_index(w->context, 1, 0xffff), 0);
    assert_int_equal(ibv_get_pkey_index(w->context, 1, 0x1234), -1);
}

static void test_completion_queue_arguments(void **state)
{
    struct world *w = *state;
    struct ibv_device_attr device;
    assert_int_equal(ibv_query_device(w->context, &device), 0);
    assert_null(ibv_create_cq(w->context, device.max_cqe + 1, NULL, NULL, 0));
    assert_int_equal(errno, EINVAL);
    assert_null(ibv_create_cq(w->context, 0, NULL, NULL, 0));
    assert_null(ibv_create_cq(w->context, 8, NULL, NULL, w->context->num_comp_vectors));
    assert_int_equal(errno, EINVAL);
    assert_int_equal(ibv_destroy_comp_channel(w->channel), EBUSY);
    assert_int_equal(ibv_resize_cq(w->cq, 0), EINVAL);
    assert_int_equal(ibv_resize_cq(w->cq, 128), 0);
    assert_int_equal(w->cq->cqe, 128);
    struct ibv_cq_init_attr_ex extended = {.cqe = 8, .wc_flags = IBV_WC_EX_WITH_TM_INFO};
    assert_null(ibv_create_cq_ex(w->context, &extended));
    assert_int_equal(errno, EOPNOTSUPP);
}

static void test_memory_registration(void **state)
{
    struct world *w = *state;
    uint8_t bytes[16];
    volatile int write_only = IBV_ACCESS_REMOTE_WRITE;
    assert_null(ibv_reg_mr(w->pd, bytes, sizeof bytes, write_only));
    assert_int_equal(errno, EINVAL);
    assert_null(ibv_reg_mr(w->pd, bytes, sizeof bytes, IBV_ACCESS_REMOTE_ATOMIC));
    assert_int_equal(errno, EINVAL);
    assert_null(ibv_reg_mr(w->pd, bytes, sizeof bytes, 1 << 19));
    assert_int_equal(errno, EINVAL);
    void *hole = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_int_equal(munmap((char *)hole + 4096, 4096), 0);
    assert_null(ibv_reg_mr(w->pd, hole, 8192, IBV_ACCESS_LOCAL_WRITE));
    assert_int_equal(errno, EFAULT);
    assert_int_equal(munmap(hole, 4096), 0);
    assert_int_equal(ibv_dealloc_pd(w->pd), EBUSY);

    volatile unsigned relaxed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING;
    struct ibv_mr *mr = ibv_reg_mr(w->pd, bytes, sizeof bytes, relaxed);
    assert_non_null(mr);
    assert_ptr_equal(mr->addr, bytes);
    assert_int_equal(mr->length, sizeof bytes);
    assert_ptr_equal(mr->pd, w->pd);
    assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void test_queue_pair_arguments(void **state)
{
    struct world *w = *state;
    struct ibv_qp_init_attr init = small(w->cq);
    init.qp_type = IBV_QPT_RAW_PACKET;
    assert_null(ibv_create_qp(w->pd, &init));
    assert_int_equal(errno, EOPNOTSUPP);
    init = small(w->cq);
    init.cap.max_inline_data = 1 << 20;
    assert_null(ibv_create_qp(w->pd, &init));
    assert_int_equal(errno, EINVAL);
    init = small(w->cq);
    init.cap.max_send_sge = 1000;
    assert_null(ibv_create_qp(w->pd, &init));
    assert_int_equal(errno, EINVAL);
    assert_null(create_extended(w, IBV_QP_EX_WITH_TSO));
    assert_int_equal(errno, EOPNOTSUPP);

    init = small(w->cq);
    w->qps[0] = ibv_create_qp(w->pd, &init);
    assert_non_null(w->qps[0]);
    assert_null(ibv_qp_to_qp_ex(w->qps[0]));
    assert_int_equal(ibv_destroy_cq(w->cq), EBUSY);
    w->qps[1] = create_extended(w, IBV_QP_EX_WITH_SEND);
    assert_ptr_equal(ibv_qp_to_qp_ex(w->qps[1]), w->qps[1]);
    assert_int_not_equal(w->qps[0]->qp_num, w->qps[1]->qp_num);
}

static void test_posting_in_wrong_states(void **state)
{
    struct world *w = *state;
    struct ibv_qp_init_attr init = small(w->cq);
    struct ibv_sge sges[3] = {{(uintptr_t)w->bytes, 1, w->mr->lkey}};
    struct ibv_send_wr wr = {.sg_list = sges, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_send_wr *bad = NULL;
    w->qps[0] = ibv_create_qp(w->pd, &init);
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), EINVAL);
    assert_ptr_equal(bad, &wr);
    assert_int_equal(post_receive(w, w->qps[0], 0, 0, 8), EINVAL);
    to_init(w->qps[0]);
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), EINVAL);
    for (uint64_t i = 0; i < DEPTH; i++) {
        assert_int_equal(post_receive(w, w->qps[0], i, 0, 8), 0);
    }
    assert_int_equal(post_receive(w, w->qps[0], DEPTH, 0, 8), ENOMEM);
    struct ibv_recv_wr receive = {.sg_list = sges, .num_sge = 3};
    struct ibv_recv_wr *bad_receive;
    assert_int_equal(ibv_post_recv(w->qps[0], &receive, &bad_receive), EINVAL);

    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_RTS};
    assert_int_equal(ibv_modify_qp(w->qps[0], &attributes, IBV_QP_STATE), EINVAL);
    attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 2};
    assert_int_equal(ibv_modify_qp(w->qps[0], &attributes, IBV_QP_STATE | IBV_QP_PORT), EINVAL);

    /* Every receive comes back, in order, when the queue pair fails. */
    attributes.qp_state = IBV_QPS_ERR;
    assert_int_equal(ibv_modify_qp(w->qps[0], &attributes, IBV_QP_STATE), 0);
    assert_int_equal(w->qps[0]->state, IBV_QPS_ERR);
    for (uint64_t i = 0; i < DEPTH; i++) {
        struct ibv_wc wc = await(w->cq);
        assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
        assert_int_equal(wc.wr_id, i);
        assert_int_equal(wc.qp_num, w->qps[0]->qp_num);
    }
    assert_int_equal(post_receive(w, w->qps[0], 77, 0, 8), 0);
    assert_int_equal(await(w->cq).wr_id, 77);
}

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
    assert_int_equal(poll(&wait, 1, 5000), 1);
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

static void test_async_events_do_not_block(void **state)
{
    struct world *w = *state;
    struct ibv_async_event event;
    int flags = fcntl(w->context->async_fd, F_GETFL);
    assert_int_equal(fcntl(w->context->async_fd, F_SETFL, flags | O_NONBLOCK), 0);
    assert_int_equal(ibv_get_async_event(w->context, &event), -1);
    assert_int_equal(errno, EAGAIN);
}

static void test_shared_receive_queue(void **state)
{
    struct world *w = *state;
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(w->pd, &init);
    assert_non_null(srq);
    struct ibv_qp_init_attr qp_init = small(w->cq);
    qp_init.srq = srq;
    w->qps[0] = ibv_create_qp(w->pd, &qp_init);
    assert_non_null(w->qps[0]);
    assert_int_equal(ibv_destroy_srq(srq), EBUSY);
    to_init(w->qps[0]);
    assert_int_equal(post_receive(w, w->qps[0], 0, 0, 8), EINVAL);
    struct ibv_sge sge = {(uintptr_t)w->bytes, 8, w->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), 0);
    }
    assert_int_equal(ibv_post_srq_recv(srq, &wr, &bad), ENOMEM);
    assert_int_equal(ibv_destroy_qp(w->qps[0]), 0);
    w->qps[0] = NULL;
    assert_int_equal(ibv_destroy_srq(srq), 0);
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

static void test_parent_domain(void **state)
{
    struct world *w = *state;
    struct ibv_parent_domain_init_attr attributes = {.pd = w->pd};
    struct ibv_pd *parent = ibv_alloc_parent_domain(w->context, &attributes);
    assert_non_null(parent);
    struct ibv_pd *base = ibv_alloc_pd(w->context);
    attributes.pd = base;
    struct ibv_pd *second = ibv_alloc_parent_domain(w->context, &attributes);
    assert_int_equal(ibv_dealloc_pd(base), EBUSY);
    assert_int_equal(ibv_dealloc_pd(second), 0);
    assert_int_equal(ibv_dealloc_pd(base), 0);
    assert_int_equal(ibv_dealloc_pd(parent), 0);
    attributes.pd = NULL;
    assert_null(ibv_alloc_parent_domain(w->context, &attributes));
    assert_int_equal(errno, EINVAL);
}

#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_list_is_stable),
        IN_WORLD(test_port_attributes_keep_their_length),
        IN_WORLD(test_gids_and_pkeys),
        IN_WORLD(test_completion_queue_arguments),
        IN_WORLD(test_memory_registration),
        IN_WORLD(test_queue_pair_arguments),
        IN_WORLD(test_posting_in_wrong_states),
        IN_WORLD(test_send_and_receive),
        IN_WORLD(test_batches),
        IN_WORLD(test_completion_channel),
        IN_WORLD(test_extended_polling),
        IN_WORLD(test_async_events_do_not_block),
        IN_WORLD(test_shared_receive_queue),
        IN_WORLD(test_shared_queue_runs_low),
        IN_WORLD(test_parent_domain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
