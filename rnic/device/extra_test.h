/* For tests: more queue pairs between the two devices of a pair. */
#ifndef WEIR_DEVICE_EXTRA_TEST_H
#define WEIR_DEVICE_EXTRA_TEST_H

#include "rnic/device/pair_test.h"

/* Connects queue pair `a` of side 0 with `b` of side 1 in place of the pair's own. */
static inline void connect_extra(struct pair *pair, struct qp *a, struct qp *b)
{
    struct qp *own[2] = {pair->sides[0].qp, pair->sides[1].qp};
    pair->sides[0].qp = a;
    pair->sides[1].qp = b;
    pair_connect_side(pair, 0, &pair_defaults);
    pair_connect_side(pair, 1, &pair_defaults);
    pair->sides[0].qp = own[0];
    pair->sides[1].qp = own[1];
}

/* `shared`: its receives; NULL: it has its own. */
static inline struct qp *create_extra(struct pair_side *side, struct receive_queue *shared)
{
    struct qp_init init = {
        .service = SERVICE_RC,
        .domain = side->domain,
        .send_completions = side->sends,
        .receive_completions = side->receives,
        .shared_receives = shared,
        .send = {.capacity = 16, .max_sge = 1},
        .max_receive = 4,
        .max_receive_sge = 1,
        .context = side,
    };
    struct qp *qp;
    assert_int_equal(device_create_qp(side->device, &init, &qp), STATUS_OK);
    return qp;
}

/* From or to the beginning of the side's buffer; `offset`: in the other's. */
static inline void post_on(struct pair_side *side, struct qp *qp, enum work_kind kind, uint64_t id,
                           uint32_t offset, uint32_t length)
{
    struct sge sge = pair_sge(side, 0, length);
    struct send_request request = pair_request(side, kind, id, &sge, offset);
    assert_int_equal(qp_post_send(qp, &request), STATUS_OK);
    (void)device_ring(side->device, qp);
}

#endif
