/* libibverbs.so.1 as programs see it: arguments, error returns, layouts in memory. Uses public
 * calls only. */
#include "rnic/verbs/world_test.h"

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
    struct ibv_cq_init_attr_ex extended = {.cqe = 8, .wc_flags = 1u << 31};
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
    assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
    assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, write_only),
                     IBV_REREG_MR_ERR_INPUT);
    assert_int_equal(mr->length, sizeof bytes);
    assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, bytes + 4, 8, 0), 0);
    assert_ptr_equal(mr->addr, bytes + 4);
    assert_int_equal(mr->length, 8);
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
    qp_init.cap.max_recv_wr = UINT32_MAX; /* of a queue that it will not have */
    qp_init.cap.max_recv_sge = UINT32_MAX;
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

static void test_address_handles_hold_their_domain(void **state)
{
    struct world *w = *state;
    struct ibv_ah_attr attributes = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}};
    assert_int_equal(ibv_query_gid(w->context, 1, 0, &attributes.grh.dgid), 0);
    struct ibv_pd *base = ibv_alloc_pd(w->context);
    struct ibv_parent_domain_init_attr init = {.pd = base};
    struct ibv_pd *parent = ibv_alloc_parent_domain(w->context, &init);
    struct ibv_ah *in_base = ibv_create_ah(base, &attributes);
    struct ibv_ah *in_parent = ibv_create_ah(parent, &attributes);
    assert_true(in_base != NULL && in_parent != NULL);
    assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
    assert_int_equal(ibv_destroy_ah(in_parent), 0);
    assert_int_equal(ibv_dealloc_pd(parent), 0);
    assert_int_equal(ibv_dealloc_pd(base), EBUSY);
    assert_int_equal(ibv_destroy_ah(in_base), 0);
    struct ibv_pd *imported = ibv_import_pd(w->context, base->handle);
    in_base = ibv_create_ah(imported, &attributes);
    ibv_unimport_pd(imported);
    assert_int_equal(ibv_dealloc_pd(base), EBUSY);
    assert_int_equal(ibv_destroy_ah(in_base), 0);
    assert_int_equal(ibv_dealloc_pd(base), 0);
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
        IN_WORLD(test_async_events_do_not_block),
        IN_WORLD(test_shared_receive_queue),
        IN_WORLD(test_address_handles_hold_their_domain),
        IN_WORLD(test_parent_domain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
