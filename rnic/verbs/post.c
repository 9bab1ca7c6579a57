/* Lists of work requests, without the engine's lock. */
#include "rnic/verbs/post.h"

#include <errno.h>

#include "rnic/memory/access.h"
#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/in_place.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/refusal.h"

uint32_t post_room(struct soft_qp *qp)
{
    uint32_t room = qp_send_room(qp->qp);
    if (strict_is_on() && qp_current_state(qp->qp) == QP_RTS) {
        uint32_t counted = strict_sends_room(qp_number(qp->qp));
        room = counted < room ? counted : room;
    }
    return room;
}

/* Strict mode's part: what an adapter would not take, and what it will choke on. */
static int check_strictly(struct soft_qp *qp, const struct send_request *request)
{
    static const char *const names[WORK_KIND_COUNT] = {
        [WORK_SEND] = "a SEND",
        [WORK_SEND_IMMEDIATE] = "a SEND",
        [WORK_SEND_INVALIDATE] = "a SEND",
        [WORK_WRITE] = "an RDMA WRITE",
        [WORK_WRITE_IMMEDIATE] = "an RDMA WRITE",
        [WORK_READ] = "an RDMA READ",
        [WORK_COMPARE_SWAP] = "a compare and swap",
        [WORK_FETCH_ADD] = "a fetch and add",
        [WORK_ATOMIC_WRITE] = "an atomic write",
    };
    bool atomic = request->kind == WORK_COMPARE_SWAP || request->kind == WORK_FETCH_ADD;
    bool fills = request->kind == WORK_READ || atomic;
    int error = errno_of_post(qp_check_send(qp->qp, request));
    if (error != 0) {
        return error;
    }
    if (atomic && !limits_offer(ABILITY_ATOMICS)) {
        return EINVAL;
    }
    uint64_t length = 0;
    for (uint32_t i = 0; i < request->sge_count; i++) {
        length += request->sges[i].length;
    }
    if (!limits_allow(length, limits_now()->max_message, "max_msg_sz")) {
        return EINVAL;
    }
    if (!request->inline_data && names[request->kind] != NULL) {
        engine_lock(qp->engine);
        strict_check_sges(device_memory(qp->engine->device), qp_domain(qp->qp), request->sges,
                          request->sge_count, fills ? ACCESS_LOCAL_WRITE : 0, names[request->kind]);
        engine_unlock(qp->engine);
    }
    return post_room(qp) > 0 ? 0 : ENOMEM;
}

int post_request(struct soft_qp *qp, const struct send_request *request)
{
    if (!strict_is_on()) {
        return errno_of_post(qp_post_send(qp->qp, request));
    }
    struct qpn qpn = qp_number(qp->qp);
    int error = check_strictly(qp, request);
    if (error != 0) {
        return error;
    }
    engine_lock(qp->engine);
    strict_sends_post(qpn, device_memory(qp->engine->device), qp_domain(qp->qp), request,
                      request->signaled || qp->signal_all);
    error = errno_of_post(qp_post_send(qp->qp, request));
    if (error != 0) {
        strict_sends_unpost(qpn);
    } else {
        strict_window_posted(request);
    }
    engine_unlock(qp->engine);
    return error;
}

static int fill_in_place(const struct soft_qp *qp, struct send_slot *slot,
                         const struct ibv_send_wr *wr)
{
    slot->immediate = wr->imm_data;
    slot->remote_address = wr->wr.rdma.remote_addr;
    slot->remote_key = (struct memory_key){wr->wr.rdma.rkey};
    if ((wr->send_flags & IBV_SEND_INLINE) == 0) {
        return in_place_sges(qp, slot, wr->sg_list, (size_t)wr->num_sge);
    }
    bool fits = slot->kind != WORK_READ && wr->num_sge <= (int)qp->granted.send_sge;
    int error = fits ? 0 : EINVAL;
    slot->inline_data = true;
    for (int i = 0; i < wr->num_sge && error == 0; i++) {
        struct sge sge;
        convert_sges(wr->sg_list + i, 1, &sge);
        error = in_place_append(qp, slot, (const void *)(uintptr_t)sge.address, sge.length);
    }
    return error;
}

/* Most requests; false: it is not posted so. */
static inline bool post_in_place(struct soft_qp *qp, const struct ibv_send_wr *wr, int *ret_error)
{
    static const struct {
        bool known;
        enum work_kind kind;
    } kinds[] = {
        [IBV_WR_RDMA_WRITE] = {true, WORK_WRITE},
        [IBV_WR_RDMA_WRITE_WITH_IMM] = {true, WORK_WRITE_IMMEDIATE},
        [IBV_WR_SEND] = {true, WORK_SEND},
        [IBV_WR_SEND_WITH_IMM] = {true, WORK_SEND_IMMEDIATE},
        [IBV_WR_RDMA_READ] = {true, WORK_READ},
    };
    bool known = (size_t)wr->opcode < sizeof kinds / sizeof *kinds && kinds[wr->opcode].known;
    struct send_slot *slot = NULL;
    if (known && wr->num_sge >= 0) {
        slot = in_place_open(qp, 0, kinds[wr->opcode].kind, wr->wr_id, wr->send_flags);
    }
    if (slot == NULL) {
        return false;
    }
    int error = fill_in_place(qp, slot, wr);
    *ret_error = error != 0 ? error : errno_of_post(qp_post_opened(qp->qp, 1));
    return true;
}

/* By itself, for what it needs of the stack is not to be every post's. */
__attribute__((noinline)) static int post_converted(struct soft_qp *qp,
                                                    const struct ibv_send_wr *wr)
{
    struct sge sges[SGE_MAX];
    struct datagram_target target;
    struct window_bind bind;
    struct send_request request = {.id = wr->wr_id, .sges = sges};
    if (wr->num_sge < 0 || wr->num_sge > (int)SGE_MAX) {
        return EINVAL;
    }
    convert_sges(wr->sg_list, (size_t)wr->num_sge, sges);
    request.sge_count = (uint32_t)wr->num_sge;
    convert_send_flags(wr->send_flags, &request);
    int error = convert_operation(wr, &request);
    if (error == 0 && request.kind == WORK_BIND_WINDOW) {
        const struct ibv_mw *mw = wr->bind_mw.mw;
        error = mw->type != IBV_MW_TYPE_2
                    ? EINVAL
                    : convert_bind(mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info, &bind);
        request.bind = &bind;
    }
    if (error != 0) {
        return error;
    }
    enum ibv_qp_type type = qp->extended.qp_base.qp_type;
    if (type == IBV_QPT_XRC_SEND) {
        request.xrc_srq = wr->qp_type.xrc.remote_srqn & 0xffffff;
    }
    if (type == IBV_QPT_UD) {
        if (wr->wr.ud.ah == NULL) {
            return EINVAL;
        }
        convert_target(wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey, &target);
        request.target = &target;
    }
    return post_request(qp, &request);
}

int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **ret_bad)
{
    struct soft_qp *qp = soft_qp(ibv);
    bool posted = false;
    int error = 0;
    soft_qp_prefetch(qp, SOFT_QP_BYTES);
    lock_take(&qp->send_lock, LOCK_OUTER);
    for (; wr != NULL; wr = wr->next) {
        if (!post_in_place(qp, wr, &error)) {
            error = post_converted(qp, wr);
        }
        if (error != 0) {
            *ret_bad = wr;
            break;
        }
        posted = true;
    }
    if (posted) {
        post_ring(qp);
    }
    lock_give(&qp->send_lock, LOCK_OUTER);
    if (error == EINVAL && strict_is_on()) {
        refusal_of_send(ibv, wr);
    }
    return error;
}

static void check_receive_strictly(struct engine *engine, struct domain domain,
                                   const struct receive_queue *queue,
                                   const struct receive_request *request)
{
    engine_lock(engine);
    strict_check_sges(device_memory(engine->device), domain, request->sges, request->sge_count,
                      ACCESS_LOCAL_WRITE, "a receive");
    engine_unlock(engine);
    strict_receive_posted(queue);
}

/* One receive in the core's terms; `sges` holds SGE_MAX. */
static int convert_receive(const struct ibv_recv_wr *wr, struct sge *sges,
                           struct receive_request *ret_request)
{
    if (wr->num_sge < 0 || wr->num_sge > (int)SGE_MAX) {
        return EINVAL;
    }
    convert_sges(wr->sg_list, (size_t)wr->num_sge, sges);
    *ret_request =
        (struct receive_request){.id = wr->wr_id, .sges = sges, .sge_count = (uint32_t)wr->num_sge};
    return 0;
}

__attribute__((noinline)) static int post_converted_receive(struct soft_qp *qp,
                                                            const struct ibv_recv_wr *wr)
{
    struct sge sges[SGE_MAX];
    struct receive_request request;
    int error = convert_receive(wr, sges, &request);
    if (error == 0) {
        error = errno_of_post(qp_post_receive(qp->qp, &request));
    }
    if (error == 0 && strict_is_on()) {
        check_receive_strictly(qp->engine, qp_domain(qp->qp), qp_receive_queue(qp->qp), &request);
    }
    return error;
}

/* Most receives; false: it is not posted so. */
static inline bool post_receive_in_place(struct soft_qp *qp, const struct ibv_recv_wr *wr)
{
    uint32_t count = (uint32_t)wr->num_sge;
    struct sge *place = strict_is_on() || wr->num_sge < 0 ? NULL : qp_open_receive(qp->qp, count);
    if (place == NULL) {
        return false;
    }
    convert_sges(wr->sg_list, count, place);
    qp_post_opened_receive(qp->qp, wr->wr_id, count);
    return true;
}

int post_receive(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
    struct soft_qp *qp = soft_qp(ibv);
    bool posted = false;
    int error = 0;
    lock_take(&qp->receive_lock, LOCK_OUTER);
    for (; wr != NULL; wr = wr->next) {
        if (ibv->srq != NULL) {
            error = EINVAL;
        } else if (!post_receive_in_place(qp, wr)) {
            error = post_converted_receive(qp, wr);
        }
        if (error != 0) {
            *ret_bad = wr;
            break;
        }
        posted = true;
    }
    /* Only a queue pair in error has something to do with a receive at once: flush it. */
    if (posted && qp_wants_flush(qp->qp)) {
        post_ring(qp);
    }
    lock_give(&qp->receive_lock, LOCK_OUTER);
    if (error == EINVAL && strict_is_on()) {
        refusal_of_receive(ibv, wr);
    }
    return error;
}

int srq_post_receive(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **ret_bad)
{
    struct soft_srq *srq = soft_srq(ibv);
    struct sge sges[SGE_MAX];
    struct receive_request request;
    int error = 0;
    pthread_mutex_lock(&srq->lock);
    for (; wr != NULL; wr = wr->next) {
        error = convert_receive(wr, sges, &request);
        if (error == 0) {
            error = errno_of_post(receive_queue_post(srq->queue, &request));
        }
        if (error == 0 && strict_is_on()) {
            check_receive_strictly(srq->engine, soft_pd(ibv->pd)->domain, srq->queue, &request);
        }
        if (error != 0) {
            *ret_bad = wr;
            break;
        }
    }
    pthread_mutex_unlock(&srq->lock);
    return error;
}
