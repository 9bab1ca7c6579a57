/* Multicast over loopback, through the API: who is attached gets each datagram once. */
#include "rnic/verbs/world_test.h"

#define QKEY   0x11111111u
#define LENGTH 64u
#define PLACE  128u /* bytes of a receive's place */

static const union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, 239, 9, 8, 7}};

static struct world *w;
static struct ibv_ah *ah;

/* Of port 1, whose GID 0 is 127.0.0.1 here. */
static struct ibv_qp *make_qp(uint32_t create_flags)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = w->cq,
        .recv_cq = w->cq,
        .cap = {DEPTH, DEPTH, 1, 1, 0},
        .qp_type = IBV_QPT_UD,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
        .pd = w->pd,
        .create_flags = create_flags,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(w->context, &init);
    assert_non_null(qp);
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
    assert_int_equal(ibv_modify_qp(qp, &to, mask), 0);
    to.qp_state = IBV_QPS_RTR;
    assert_int_equal(ibv_modify_qp(qp, &to, IBV_QP_STATE), 0);
    to.qp_state = IBV_QPS_RTS;
    assert_int_equal(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
}

static void receive_at(struct ibv_qp *qp, uint64_t id)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes + id * PLACE, PLACE, w->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    assert_int_equal(ibv_post_recv(qp, &wr, &bad), 0);
}

static void send_to_group(struct ibv_qp *qp)
{
    struct ibv_sge sge = {(uintptr_t)w->bytes, LENGTH, w->mr->lkey};
    struct ibv_send_wr wr = {
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.ud = {.ah = ah, .remote_qpn = 0xffffff, .remote_qkey = QKEY},
    };
    struct ibv_send_wr *bad;
    assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
}

/* The ids of `count` completions as bits; each of success, from `sender` where received. */
static uint64_t take(uint32_t count, const struct ibv_qp *sender)
{
    uint64_t ids = 0;
    while (count > 0) {
        struct ibv_wc wc;
        int got = ibv_poll_cq(w->cq, 1, &wc);
        assert_true(got >= 0);
        if (got == 1) {
            assert_int_equal(wc.status, IBV_WC_SUCCESS);
            assert_int_equal(ids >> wc.wr_id & 1, 0);
            if (wc.opcode == IBV_WC_RECV) {
                assert_int_equal(wc.byte_len, 40 + LENGTH);
                assert_int_equal(wc.src_qp, sender->qp_num);
                assert_int_equal(wc.slid, 1);
                /* The group is the destination in the IPv4 header. */
                assert_memory_equal(w->bytes + wc.wr_id * PLACE + 36, group.raw + 12, 4);
            }
            ids |= UINT64_C(1) << wc.wr_id;
            count--;
        }
    }
    return ids;
}

static int start(void **state)
{
    setenv("WEIR_ADDRESS", "127.0.0.1", 1);
    assert_int_equal(open_world(state), 0);
    w = *state;
    struct ibv_ah_attr vector = {.port_num = 1, .is_global = 1, .grh = {.dgid = group}};
    ah = ibv_create_ah(w->pd, &vector);
    assert_non_null(ah);
    return 0;
}

static int stop(void **state)
{
    assert_int_equal(ibv_destroy_ah(ah), 0);
    return close_world(state);
}

static void each_gets_one(void **state)
{
    struct ibv_qp *sender = make_qp(0), *one = make_qp(0), *two = make_qp(0), *none = make_qp(0);
    assert_int_equal(ibv_attach_mcast(one, &group, 0), 0);
    assert_int_equal(ibv_attach_mcast(two, &group, 0), 0);
    assert_int_equal(ibv_attach_mcast(two, &group, 0), 0);
    receive_at(one, 1);
    receive_at(one, 2);
    receive_at(two, 3);
    receive_at(none, 4);
    send_to_group(sender);
    assert_int_equal(take(3, sender), 1 | 2 | 8);
    assert_int_equal(ibv_detach_mcast(two, &group, 0), 0);
    assert_int_equal(ibv_detach_mcast(two, &group, 0), EINVAL);
    receive_at(two, 5);
    send_to_group(sender);
    assert_int_equal(take(2, sender), 1 | 4);
    assert_int_equal(ibv_destroy_qp(one), EBUSY);
    assert_int_equal(ibv_detach_mcast(one, &group, 0), 0);
    struct ibv_qp *all[] = {sender, one, two, none};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_int_equal(ibv_destroy_qp(all[i]), 0);
    }
}

/* The neighbour's copy, which is of the same datagram, proves that its own has been passed over. */
static void blocked_self(void **state)
{
    struct ibv_qp *blocked = make_qp(IBV_QP_CREATE_BLOCK_SELF_MCAST_LB), *open = make_qp(0);
    assert_int_equal(ibv_attach_mcast(blocked, &group, 0), 0);
    assert_int_equal(ibv_attach_mcast(open, &group, 0), 0);
    receive_at(blocked, 1);
    receive_at(open, 2);
    send_to_group(blocked);
    assert_int_equal(take(2, blocked), 1 | 4);
    receive_at(open, 3);
    send_to_group(open);
    assert_int_equal(take(3, open), 1 | 2 | 8);
    assert_int_equal(ibv_detach_mcast(blocked, &group, 0), 0);
    assert_int_equal(ibv_detach_mcast(open, &group, 0), 0);
    assert_int_equal(ibv_destroy_qp(blocked), 0);
    assert_int_equal(ibv_destroy_qp(open), 0);
}

static void refused(void **state)
{
    const union ibv_gid unicast = {.raw = {[10] = 0xff, [11] = 0xff, 127, 0, 0, 1}};
    struct ibv_qp_init_attr connected_init = small(w->cq);
    struct ibv_qp *qp = make_qp(0), *connected = ibv_create_qp(w->pd, &connected_init);
    assert_int_equal(ibv_attach_mcast(qp, &unicast, 0), EINVAL);
    assert_int_equal(ibv_attach_mcast(connected, &group, 0), EINVAL);
    assert_int_equal(ibv_destroy_qp(connected), 0);
    assert_int_equal(ibv_detach_mcast(qp, &group, 0), EINVAL);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_gets_one, start, stop),
        cmocka_unit_test_setup_teardown(blocked_self, start, stop),
        cmocka_unit_test_setup_teardown(refused, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
