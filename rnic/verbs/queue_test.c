/* libibverbs.so.1 as programs see it: completion queues beyond polling (moderation, overrun, time
 * stamps), batches of requests, and memory of the application's own. Uses public calls only. */
#include "rnic/verbs/world_test.h"

static void send_signaled(struct world *w, uint64_t id)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes, 8, w->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)w->bytes + 2048, w->mr->rkey}};
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
}

static bool is_readable(const struct world *w, int milliseconds)
{
    struct pollfd ready = {.fd = w->channel->fd, .events = POLLIN};
    return poll(&ready, 1, milliseconds) == 1;
}

static void take_event(struct world *w)
{
    struct ibv_cq *cq;
    void *context;
    assert_int_equal(ibv_get_cq_event(w->channel, &cq, &context), 0);
    assert_ptr_equal(cq, w->cq);
    assert_ptr_equal(context, w);
    ibv_ack_cq_events(cq, 1);
}

static void test_moderation_by_count(void **state)
{
    struct world *w = *state;
    struct ibv_modify_cq_attr attributes = {.attr_mask = IBV_CQ_ATTR_MODERATE,
                                            .moderate = {.cq_count = 3}};
    connect_pair(w);
    assert_int_equal(ibv_modify_cq(w->cq, &attributes), 0);
    assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
    for (uint64_t i = 0; i < 3; i++) {
        assert_false(is_readable(w, 0));
        send_signaled(w, i);
        assert_int_equal(await(w->cq).wr_id, i);
    }
    assert_true(is_readable(w, 20000));
    take_event(w);
    attributes.attr_mask = 2;
    assert_int_equal(ibv_modify_cq(w->cq, &attributes), EINVAL);
}

static void test_moderation_by_period(void **state)
{
    struct world *w = *state;
    struct ibv_modify_cq_attr attributes = {.attr_mask = IBV_CQ_ATTR_MODERATE,
                                            .moderate = {.cq_count = 1000, .cq_period = 20000}};
    connect_pair(w);
    assert_int_equal(ibv_modify_cq(w->cq, &attributes), 0);
    assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
    send_signaled(w, 0);
    assert_int_equal(await(w->cq).wr_id, 0);
    assert_true(is_readable(w, 20000)); /* nobody drives but the library */
    take_event(w);
    /* A period that comes after what it is to end. */
    attributes.moderate.cq_period = 0;
    assert_int_equal(ibv_modify_cq(w->cq, &attributes), 0);
    assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
    send_signaled(w, 0);
    assert_int_equal(await(w->cq).wr_id, 0);
    assert_false(is_readable(w, 0));
    attributes.moderate.cq_period = 100;
    assert_int_equal(ibv_modify_cq(w->cq, &attributes), 0);
    assert_true(is_readable(w, 20000));
    take_event(w);
    attributes.moderate.cq_period = 20000;
    assert_int_equal(ibv_modify_cq(w->cq, &attributes), 0);
    /* Destroyed with a period running: nothing may fire after. */
    assert_int_equal(ibv_req_notify_cq(w->cq, 0), 0);
    send_signaled(w, 1);
    assert_int_equal(await(w->cq).wr_id, 1);
}

static void test_time_stamps(void **state)
{
    struct world *w = *state;
    struct ibv_cq_init_attr_ex init = {.cqe = 8,
                                       .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
                                                   IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG |
                                                   IBV_WC_STANDARD_FLAGS};
    struct ibv_cq *plain = w->cq;
    struct ibv_cq_ex *cq = ibv_create_cq_ex(w->context, &init);
    assert_non_null(cq);
    w->cq = ibv_cq_ex_to_cq(cq);
    connect_pair(w);
    struct ibv_values_ex before = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    struct ibv_values_ex after = before;
    assert_int_equal(ibv_query_rt_values_ex(w->context, &before), 0);
    assert_int_equal(before.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
    uint64_t wall = read_clock_ns(CLOCK_REALTIME);
    send_signaled(w, 7);
    struct ibv_poll_cq_attr poll = {0};
    while (ibv_start_poll(cq, &poll) == ENOENT) {
    }
    assert_int_equal(ibv_query_rt_values_ex(w->context, &after), 0);
    uint64_t first =
        (uint64_t)before.raw_clock.tv_sec * 1000000000u + (uint64_t)before.raw_clock.tv_nsec;
    uint64_t last =
        (uint64_t)after.raw_clock.tv_sec * 1000000000u + (uint64_t)after.raw_clock.tv_nsec;
    uint64_t stamp = ibv_wc_read_completion_ts(cq);
    assert_true(first <= stamp && stamp <= last);
    assert_int_equal(ibv_wc_read_completion_ts(cq), stamp);
    uint64_t wall_stamp = ibv_wc_read_completion_wallclock_ns(cq);
    assert_true(wall_stamp + 1000000 >= wall); /* the two clocks need not go equally fast */
    assert_true(wall_stamp <= read_clock_ns(CLOCK_REALTIME));
    assert_int_equal(ibv_wc_read_cvlan(cq), 0);
    assert_int_equal(ibv_wc_read_flow_tag(cq), 0);
    assert_int_equal(ibv_wc_read_qp_num(cq), w->qps[0]->qp_num);
    assert_int_equal(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
        w->qps[i] = NULL;
    }
    assert_int_equal(ibv_destroy_cq(w->cq), 0);
    w->cq = plain;
}

static void test_extended_arguments(void **state)
{
    struct world *w = *state;
    const struct {
        struct ibv_cq_init_attr_ex init;
        int error;
    } cases[] = {
        {{.cqe = 8, .comp_mask = 4}, EINVAL},
        {{.cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = 4}, EINVAL},
        {{.cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD}, EINVAL},
        {{.cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = w->pd}, EINVAL},
        {{.cqe = 8, .wc_flags = 1u << 20}, EOPNOTSUPP},
        {{.cqe = 0}, EINVAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ibv_cq_init_attr_ex init = cases[i].init;
        errno = 0;
        assert_null(ibv_create_cq_ex(w->context, &init));
        assert_int_equal(errno, cases[i].error);
    }
}

static void create_pair_on(struct world *w, struct ibv_cq *cq)
{
    struct ibv_cq *former = w->cq;
    w->cq = cq;
    connect_pair(w);
    w->cq = former;
}

static void destroy_pair(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_destroy_qp(w->qps[i]), 0);
        w->qps[i] = NULL;
    }
}

/* More completions than room, and nobody polls: the queue says so, the queue pair fails. */
static void test_overrun(void **state)
{
    struct world *w = *state;
    struct ibv_cq *cq = ibv_create_cq(w->context, 1, NULL, NULL, 0);
    struct ibv_async_event event;
    assert_non_null(cq);
    create_pair_on(w, cq);
    send_signaled(w, 1);
    send_signaled(w, 2);
    bool seen[2] = {false};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ibv_get_async_event(w->context, &event), 0);
        assert_true(event.event_type == IBV_EVENT_CQ_ERR || event.event_type == IBV_EVENT_QP_FATAL);
        bool is_queue = event.event_type == IBV_EVENT_CQ_ERR;
        assert_ptr_equal(event.element.cq, is_queue ? (void *)cq : (void *)w->qps[0]);
        seen[is_queue] = true;
        ibv_ack_async_event(&event);
    }
    assert_true(seen[0] && seen[1]);
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(w->qps[0], &attributes, IBV_QP_STATE, &init), 0);
    assert_int_equal(attributes.qp_state, IBV_QPS_ERR);
    destroy_pair(w);
    assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void test_ignored_overrun(void **state)
{
    struct world *w = *state;
    struct ibv_cq_init_attr_ex attributes = {.cqe = 1,
                                             .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
                                             .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
    struct ibv_cq *cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(w->context, &attributes));
    struct ibv_wc wc;
    create_pair_on(w, cq);
    for (uint64_t i = 0; i < 4; i++) {
        send_signaled(w, i);
    }
    /* The queue pair still works: sooner or later one completion finds room. */
    do {
        while (ibv_poll_cq(cq, 1, &wc) != 1) {
        }
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        send_signaled(w, 4);
    } while (wc.wr_id != 4);
    destroy_pair(w);
    assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* One wrong request in the middle, and none of its batch is posted. */
static void test_batch_is_posted_whole_or_not(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(w->qps[0]);
    memset(w->bytes, 1, 16);
    memset(w->bytes + 3072, 0, 16);
    for (int wrong = 0; wrong < 3; wrong++) {
        ibv_wr_start(qp);
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write_imm(qp, w->mr->rkey, (uintptr_t)w->bytes + 3072, 0);
        ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes, 8);
        switch (wrong) {
        case 0: /* an atomic over 4 bytes */
            ibv_wr_atomic_fetch_add(qp, w->mr->rkey, (uintptr_t)w->bytes + 1024, 2);
            ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes + 1032, 4);
            break;
        case 1: /* inline data that a READ cannot have */
            ibv_wr_rdma_read(qp, w->mr->rkey, (uintptr_t)w->bytes + 1024);
            ibv_wr_set_inline_data(qp, w->bytes, 8);
            break;
        default: /* not offered at all */
            ibv_wr_send_tso(qp, w->bytes, 4, 100);
            break;
        }
        ibv_wr_send(qp);
        ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes, 8);
        assert_int_equal(ibv_wr_complete(qp), wrong == 2 ? EOPNOTSUPP : EINVAL);
        assert_int_equal(ibv_poll_cq(w->cq, 1, &(struct ibv_wc){0}), 0);
        assert_int_equal(w->bytes[3072], 0);
    }
}

/* Whatever a setter has said before, with data in place or not: the last one counts. */
static void test_last_setter_counts(void **state)
{
    struct world *w = *state;
    connect_pair(w);
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(w->qps[0]);
    for (unsigned at = 0; at < 4; at++) {
        bool in_place = at < 2, ends_inline = at % 2 == 0;
        memset(w->bytes, 0, sizeof w->bytes);
        memset(w->bytes, 7, 8);
        memset(w->bytes + 1024, 9, 8);
        ibv_wr_start(qp);
        qp->wr_flags = 0;
        if (!in_place) { /* what stands behind is not built in its place */
            ibv_wr_atomic_fetch_add(qp, w->mr->rkey, (uintptr_t)w->bytes + 3000, 1);
            ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes + 3200, 8);
        }
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_write_imm(qp, w->mr->rkey, (uintptr_t)w->bytes + 2048, 0);
        if (ends_inline) {
            ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes + 1024, 60);
            ibv_wr_set_inline_data(qp, w->bytes + 1024, 8);
            ibv_wr_set_inline_data(qp, w->bytes, 8);
        } else {
            ibv_wr_set_inline_data(qp, w->bytes + 1024, 8);
            ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes + 1024, 60);
            ibv_wr_set_sge(qp, w->mr->lkey, (uintptr_t)w->bytes, 8);
        }
        assert_int_equal(post_receive(w, w->qps[1], 5, 3500, 8), 0);
        assert_int_equal(ibv_wr_complete(qp), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
        }
        assert_memory_equal(w->bytes + 2048, w->bytes, 8);
        assert_int_equal(w->bytes[2056], 0);
    }
}

/* Memory of queues from the application: counted, aligned as asked, all given back. */
struct giver {
    int given, taken;
    bool uses_default;
    struct ibv_pd *pd;
};

static void *give(struct ibv_pd *pd, void *context, size_t size, size_t alignment, uint64_t type)
{
    struct giver *giver = context;
    void *memory = NULL;
    giver->pd = pd;
    giver->given++;
    if (giver->uses_default) {
        return IBV_ALLOCATOR_USE_DEFAULT;
    }
    assert_int_equal(posix_memalign(&memory, alignment, size), 0);
    memset(memory, 0xff, size);
    return memory;
}

static void take_back(struct ibv_pd *pd, void *context, void *memory, uint64_t type)
{
    struct giver *giver = context;
    assert_ptr_equal(pd, giver->pd);
    giver->taken++;
    free(memory);
}

static void live_in_parent(struct world *w, struct giver *giver)
{
    struct ibv_parent_domain_init_attr attributes = {
        .pd = w->pd,
        .td = ibv_alloc_td(w->context, &(struct ibv_td_init_attr){0}),
        .comp_mask =
            IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
        .alloc = give,
        .free = take_back,
        .pd_context = giver,
    };
    assert_non_null(attributes.td);
    struct ibv_pd *parent = ibv_alloc_parent_domain(w->context, &attributes);
    assert_non_null(parent);
    assert_int_equal(ibv_dealloc_td(attributes.td), EBUSY);
    struct ibv_cq_init_attr_ex cq_init = {
        .cqe = 8, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent};
    struct ibv_cq *cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(w->context, &cq_init));
    assert_non_null(cq);
    assert_int_equal(ibv_resize_cq(cq, 32), 0);
    struct ibv_pd *base = w->pd;
    w->pd = parent;
    create_pair_on(w, cq);
    w->pd = base;
    assert_int_equal(ibv_dealloc_pd(parent), EBUSY);
    send_signaled(w, 3);
    assert_int_equal(await(cq).status, IBV_WC_SUCCESS);
    destroy_pair(w);
    assert_int_equal(ibv_destroy_cq(cq), 0);
    assert_int_equal(ibv_dealloc_pd(parent), 0);
    assert_int_equal(ibv_dealloc_td(attributes.td), 0);
}

static void test_application_gives_memory(void **state)
{
    struct giver giver = {0};
    live_in_parent(*state, &giver);
    assert_true(giver.given >= 6); /* the CQ, twice, and two queues of each queue pair */
    assert_int_equal(giver.given, giver.taken);
    giver = (struct giver){.uses_default = true};
    live_in_parent(*state, &giver);
    assert_true(giver.given >= 6);
    assert_int_equal(giver.taken, 0);
}

static void test_capabilities_are_true(void **state)
{
    struct world *w = *state;
    struct ibv_qp_init_attr init = small(w->cq);
    init.cap = (struct ibv_qp_cap){0};
    init.qp_context = w;
    init.sq_sig_all = 1;
    w->qps[0] = ibv_create_qp(w->pd, &init);
    assert_non_null(w->qps[0]);
    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr queried;
    to_init(w->qps[0]);
    assert_int_equal(ibv_query_qp(w->qps[0], &attributes, IBV_QP_CAP, &queried), 0);
    assert_memory_equal(&attributes.cap, &init.cap, sizeof init.cap);
    assert_memory_equal(&queried.cap, &init.cap, sizeof init.cap);
    assert_ptr_equal(queried.qp_context, w);
    assert_int_equal(queried.sq_sig_all, 1);
    assert_int_equal(attributes.qp_access_flags,
                     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    for (uint32_t i = 0; i < queried.cap.max_recv_wr; i++) {
        assert_int_equal(post_receive(w, w->qps[0], i, 0, 8), 0);
    }
    assert_int_equal(post_receive(w, w->qps[0], 0, 0, 8), ENOMEM);
}

/* The core sends there, and nobody else. */
static void test_capabilities_with_tag_matching(void **state)
{
    struct world *w = *state;
    struct ibv_srq_init_attr_ex matching = {.attr = {.max_wr = 8, .max_sge = 1},
                                            .comp_mask =
                                                IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
                                            .srq_type = IBV_SRQT_TM,
                                            .pd = w->pd,
                                            .cq = w->cq,
                                            .tm_cap = {.max_num_tags = 8, .max_ops = 8}};
    struct ibv_srq *srq = ibv_create_srq_ex(w->context, &matching);
    assert_non_null(srq);
    struct ibv_qp_init_attr init = small(w->cq), queried;
    const struct ibv_qp_cap none = {0};
    init.srq = srq;
    struct ibv_qp *qp = ibv_create_qp(w->pd, &init);
    assert_non_null(qp);
    struct ibv_qp_attr attributes;
    assert_int_equal(ibv_query_qp(qp, &attributes, IBV_QP_CAP, &queried), 0);
    assert_memory_equal(&attributes.cap, &none, sizeof none);
    assert_memory_equal(&init.cap, &none, sizeof none);
    assert_int_equal(ibv_destroy_qp(qp), 0);
    assert_int_equal(ibv_destroy_srq(srq), 0);
}

/* A SEND of three packets moves them on; and who begins anew begins where it is told to. */
static void test_packet_numbers_are_those_that_come_next(void **state)
{
    struct world *w = *state;
    struct ibv_qp_attr sender, receiver;
    struct ibv_qp_init_attr init;
    connect_pair(w);
    assert_int_equal(post_receive(w, w->qps[1], 1, 0, 4096), 0);
    struct ibv_sge sge = {(uintptr_t)w->bytes, 3000, w->mr->lkey};
    struct ibv_send_wr *bad,
        wr = {
            .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    assert_int_equal(ibv_post_send(w->qps[0], &wr, &bad), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(await(w->cq).status, IBV_WC_SUCCESS);
    }
    assert_int_equal(ibv_query_qp(w->qps[0], &sender, IBV_QP_SQ_PSN, &init), 0);
    assert_int_equal(ibv_query_qp(w->qps[1], &receiver, IBV_QP_RQ_PSN, &init), 0);
    assert_int_equal(sender.sq_psn, 103);
    assert_int_equal(sender.rq_psn, 100);
    assert_int_equal(receiver.rq_psn, 103);
    assert_int_equal(receiver.sq_psn, 100);
    sender.qp_state = IBV_QPS_RESET;
    assert_int_equal(ibv_modify_qp(w->qps[0], &sender, IBV_QP_STATE), 0);
    to_init(w->qps[0]);
    to_rts(w->qps[0], w->qps[1]->qp_num);
    assert_int_equal(ibv_query_qp(w->qps[0], &sender, IBV_QP_SQ_PSN, &init), 0);
    assert_int_equal(sender.sq_psn, 100);
}

/* To RTR along it, and back to RESET. */
static void check_vector(struct ibv_qp *qp, const struct ibv_ah_attr *vector)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 77, .ah_attr = *vector};
    to_init(qp);
    assert_int_equal(ibv_modify_qp(qp, &attributes,
                                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER),
                     0);
    struct ibv_qp_attr queried = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(qp, &queried, IBV_QP_AV, &init), 0);
    assert_memory_equal(&queried.ah_attr.grh, &vector->grh, sizeof vector->grh);
    assert_int_equal(queried.ah_attr.dlid, vector->dlid);
    assert_int_equal(queried.ah_attr.sl, vector->sl);
    assert_int_equal(queried.ah_attr.src_path_bits, vector->src_path_bits);
    assert_int_equal(queried.ah_attr.static_rate, vector->static_rate);
    assert_int_equal(queried.ah_attr.is_global, vector->is_global);
    assert_int_equal(queried.ah_attr.port_num, vector->port_num);
    attributes.qp_state = IBV_QPS_RESET;
    assert_int_equal(ibv_modify_qp(qp, &attributes, IBV_QP_STATE), 0);
}

/* Whether all of it is part of the path or not. */
static void test_vector_is_told_as_it_was_set(void **state)
{
    struct world *w = *state;
    struct ibv_qp_init_attr init = small(w->cq);
    w->qps[0] = ibv_create_qp(w->pd, &init);
    assert_non_null(w->qps[0]);
    struct ibv_ah_attr vector = {.is_global = 1,
                                 .port_num = 1,
                                 .dlid = 5,
                                 .sl = 3,
                                 .src_path_bits = 1,
                                 .static_rate = 2,
                                 .grh = {.hop_limit = 9, .traffic_class = 106}};
    assert_int_equal(ibv_query_gid(w->context, 1, 0, &vector.grh.dgid), 0);
    check_vector(w->qps[0], &vector);
    vector.grh.flow_label = 0xfff12345;
    check_vector(w->qps[0], &vector);
    vector.grh.flow_label = 0x12345;
    check_vector(w->qps[0], &vector);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(test_vector_is_told_as_it_was_set),
        IN_WORLD(test_moderation_by_count),
        IN_WORLD(test_moderation_by_period),
        IN_WORLD(test_time_stamps),
        IN_WORLD(test_extended_arguments),
        IN_WORLD(test_overrun),
        IN_WORLD(test_ignored_overrun),
        IN_WORLD(test_batch_is_posted_whole_or_not),
        IN_WORLD(test_last_setter_counts),
        IN_WORLD(test_application_gives_memory),
        IN_WORLD(test_capabilities_are_true),
        IN_WORLD(test_capabilities_with_tag_matching),
        IN_WORLD(test_packet_numbers_are_those_that_come_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
