/* Polling one completion at a time: start_poll, next_poll, end_poll and what is read between.
 *
 * The consumer's lock is held from a start_poll that found something to end_poll, whichever
 * threads these are. */
#include <errno.h>
#include <time.h>

#include "rnic/strict/strict.h"
#include "rnic/verbs/convert.h"
#include "rnic/verbs/limits.h"
#include "rnic/verbs/objects.h"

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct soft_cq *ours(struct ibv_cq_ex *cq)
{
    return (struct soft_cq *)cq;
}

static int poll_one(struct soft_cq *cq)
{
    if (completion_queue_poll(cq->queue, 1, &cq->current) == 0) {
        return ENOENT;
    }
    if (strict_is_on()) {
        strict_polled(&cq->current);
    }
    cq->extended.wr_id = cq->current.id;
    cq->extended.status = (enum ibv_wc_status)cq->current.status;
    return 0;
}

static void lock(struct soft_cq *cq)
{
    if (!cq->single_threaded) {
        lock_take(&cq->lock, LOCK_OUTER);
        cq->taker = lock_self;
    }
}

static void unlock(struct soft_cq *cq)
{
    if (!cq->single_threaded) {
        lock_give_for(&cq->lock, LOCK_OUTER, cq->taker);
    }
}

static int start_poll(struct ibv_cq_ex *extended, struct ibv_poll_cq_attr *attributes)
{
    struct soft_cq *cq = ours(extended);
    if (attributes->comp_mask != 0) {
        return EINVAL;
    }
    if (completion_queue_is_empty(cq->queue) || engine_wants_drive(cq->engine)) {
        engine_promise(cq->engine, completion_queue_is_between_arms(cq->queue));
        engine_drive(cq->engine);
    }
    lock(cq);
    int result = poll_one(cq);
    if (result != 0) {
        unlock(cq);
    }
    return result;
}

static int next_poll(struct ibv_cq_ex *extended)
{
    return poll_one(ours(extended));
}

static void end_poll(struct ibv_cq_ex *extended)
{
    unlock(ours(extended));
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
    return convert_opcode(ours(cq)->current.kind);
}

static uint32_t read_vendor_error(struct ibv_cq_ex *cq)
{
    return ours(cq)->current.detail;
}

static uint32_t read_byte_length(struct ibv_cq_ex *cq)
{
    return ours(cq)->current.byte_length;
}

/* The invalidated key is read here too, see ibv_wc_read_invalidated_rkey. */
static __be32 read_immediate(struct ibv_cq_ex *cq)
{
    const struct completion *current = &ours(cq)->current;
    return current->has_invalidated ? current->invalidated.value : current->immediate;
}

static uint32_t read_qpn(struct ibv_cq_ex *cq)
{
    return ours(cq)->current.qpn.value;
}

static uint32_t read_source_qpn(struct ibv_cq_ex *cq)
{
    return ours(cq)->current.source.value;
}

static unsigned read_flags(struct ibv_cq_ex *cq)
{
    return convert_completion_flags(&ours(cq)->current);
}

static uint32_t read_source_lid(struct ibv_cq_ex *cq)
{
    return ours(cq)->current.source_lid;
}

static uint8_t read_service_level(struct ibv_cq_ex *cq)
{
    return convert_service_level(&ours(cq)->current);
}

static uint8_t read_path_bits(struct ibv_cq_ex *cq)
{
    return 0;
}

/* In units of hca_core_clock, which are nanoseconds of CLOCK_MONOTONIC: the engine's own time. */
static uint64_t read_timestamp(struct ibv_cq_ex *cq)
{
    return ours(cq)->current.time.ns & limits_now()->timestamp_mask;
}

/* Tags of VLANs end at the kernel's interface, and nothing steers flows: both are always 0. */
static uint16_t read_vlan(struct ibv_cq_ex *cq)
{
    return 0;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *cq)
{
    return 0;
}

static void read_tag_matching(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *ret_info)
{
    const struct completion *current = &ours(cq)->current;
    *ret_info = (struct ibv_wc_tm_info){.tag = current->tag, .priv = current->tag_context};
}

static uint64_t read_wall_clock(struct ibv_cq_ex *cq)
{
    uint64_t age = clock_ns(CLOCK_MONOTONIC) - ours(cq)->current.time.ns;
    return clock_ns(CLOCK_REALTIME) - age;
}

void cq_extended_fill(struct ibv_cq_ex *cq)
{
    cq->start_poll = start_poll;
    cq->next_poll = next_poll;
    cq->end_poll = end_poll;
    cq->read_opcode = read_opcode;
    cq->read_vendor_err = read_vendor_error;
    cq->read_byte_len = read_byte_length;
    cq->read_imm_data = read_immediate;
    cq->read_qp_num = read_qpn;
    cq->read_src_qp = read_source_qpn;
    cq->read_wc_flags = read_flags;
    cq->read_slid = read_source_lid;
    cq->read_sl = read_service_level;
    cq->read_dlid_path_bits = read_path_bits;
    cq->read_completion_ts = read_timestamp;
    cq->read_cvlan = read_vlan;
    cq->read_flow_tag = read_flow_tag;
    cq->read_tm_info = read_tag_matching;
    cq->read_completion_wallclock_ns = read_wall_clock;
}
