/* Arguments that are refused with EINVAL, each by another rule; wrong_programs_test.sh has the
 * words. */
#include <errno.h>

#include "pair.h"

static int post(struct pair *pair, struct ibv_mr *mr, int entries, uint32_t length, unsigned flags)
{
    struct ibv_sge list[2] = {{(uintptr_t)mr->addr, length, mr->lkey},
                              {(uintptr_t)mr->addr, length, mr->lkey}};
    struct ibv_send_wr wr = {.sg_list = list,
                             .num_sge = entries,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = flags},
                       *bad;
    return ibv_post_send(pair->a.qp, &wr, &bad);
}

static void modify(struct ibv_qp *qp, int more)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    expect(ibv_modify_qp(qp, &attributes, mask | more) == EINVAL, "refused");
}

static void make_handle(struct pair *pair, unsigned index, unsigned is_global)
{
    struct ibv_ah_attr address = {.is_global = (uint8_t)is_global, .port_num = 1};
    address.grh.sgid_index = (uint8_t)index;
    address.grh.dgid.raw[10] = address.grh.dgid.raw[11] = 0xff;
    address.grh.dgid.raw[12] = 127;
    expect(ibv_create_ah(pair->pd, &address) == NULL && errno == EINVAL, "no address handle");
}

int main(void)
{
    struct pair pair = pair_open(NULL);
    struct ibv_mr *mr = pair_register(&pair, pair_pages(4096), 4096, IBV_ACCESS_LOCAL_WRITE);
    expect(post(&pair, mr, 2, 8, 0) == EINVAL, "too many entries");
    expect(post(&pair, mr, 1, 65, IBV_SEND_INLINE) == EINVAL, "too long for inline data");
    modify(pair.a.qp, IBV_QP_ACCESS_FLAGS); /* from RTS */
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    expect(ibv_modify_qp(pair.a.qp, &reset, IBV_QP_STATE) == 0, "RESET");
    modify(pair.a.qp, 0);
    modify(pair.a.qp, IBV_QP_ACCESS_FLAGS | IBV_QP_QKEY);
    expect(post(&pair, mr, 1, 8, 0) == EINVAL, "too early");
    make_handle(&pair, 200, 1);
    make_handle(&pair, 0, 0);
    return 0;
}
