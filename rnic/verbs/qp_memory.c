/* Where a queue pair lies. What stands behind the public struct, the core's queue pair and a send
 * queue of one slot are one piece, for a message touches them all: where there are thousands of
 * queue pairs, each line of them is waited for, and of a piece all lines can be asked for before
 * the first has come. The public struct's first part, which a message reads, begins a line. */
#include "rnic/base/check.h"
#include "rnic/base/heap.h"
#include "rnic/io/system/slab.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"

#define FRONT (SLAB_LINE - offsetof(struct soft_qp, extended)) /* nobody's */

BUILD_CHECK(offsetof(struct soft_qp, extended) <= SLAB_LINE);
BUILD_CHECK(SOFT_QP_BYTES == QP_BESIDE);
BUILD_CHECK(SOFT_QP_BYTES % sizeof(void *) == 0 && sizeof(struct soft_qp) % sizeof(void *) == 0);

static size_t round_up(size_t size)
{
    return (size + sizeof(void *) - 1) / sizeof(void *) * sizeof(void *);
}

/* How large the parts are that the core is lent; 0: it finds room itself. */
struct lent {
    size_t core, sends;
};

/* The queue of an application that has an allocator of its own is to come from there. */
static struct lent lend(struct ibv_pd *pd, const struct qp_init *core)
{
    struct lent lent = {0};
    if (core != NULL) {
        lent.core = round_up(qp_bytes(core));
    }
    if (core != NULL && core->send.capacity == 1 && pd_allocator(pd) == heap_allocator()) {
        lent.sends = send_queue_bytes(&core->send);
    }
    if (lent.core + lent.sends + sizeof(struct soft_qp) + SLAB_LINE > SLAB_MAX) {
        lent = (struct lent){0};
    }
    return lent;
}

static void *start_of(struct soft_qp *qp)
{
    struct soft_target *target = soft_target(qp);
    return target != NULL ? (void *)target : (uint8_t *)qp - FRONT;
}

struct soft_qp *qp_allocate(struct ibv_context *context, struct ibv_pd *pd,
                            const struct ibv_qp_init_attr *init, bool has_send_operations,
                            struct qp_init *core)
{
    bool target = init->qp_type == IBV_QPT_XRC_RECV;
    size_t before = target ? offsetof(struct soft_target, qp) : FRONT;
    size_t own = has_send_operations ? sizeof(struct soft_qp) : SOFT_QP_BYTES;
    struct lent lent = lend(pd, target ? NULL : core);
    if (!limits_take(COUNT_QP)) {
        return NULL;
    }
    uint8_t *memory = slab_take(before + own + lent.core + lent.sends);
    if (memory == NULL) {
        limits_give(COUNT_QP);
        return NULL;
    }
    struct soft_qp *qp = (struct soft_qp *)(memory + before);
    qp->engine = context_engine(context);
    qp->has_send_operations = has_send_operations;
    struct ibv_qp *ibv = &qp->extended.qp_base;
    ibv->context = context;
    ibv->pd = pd;
    ibv->qp_type = init->qp_type;
    ibv->state = IBV_QPS_RESET;
    pthread_mutex_init(&ibv->mutex, NULL);
    pthread_cond_init(&ibv->cond, NULL);
    if (has_send_operations) {
        wr_fill(&qp->extended);
    }
    if (lent.core > 0) {
        core->memory = (uint8_t *)qp + own;
    }
    if (lent.sends > 0) {
        enum status status =
            send_queue_create_in((uint8_t *)qp + own + lent.core, &core->send, &core->sends);
        CHECK(status == STATUS_OK); /* within the verbs' limits */
    }
    return qp;
}

void qp_free(struct soft_qp *qp)
{
    if (qp->has_send_operations) {
        wr_batch_free(&qp->batch);
    }
    pthread_mutex_destroy(&qp->extended.qp_base.mutex);
    pthread_cond_destroy(&qp->extended.qp_base.cond);
    vector_end(&qp->vector);
    limits_give(COUNT_QP);
    slab_give(start_of(qp));
}
