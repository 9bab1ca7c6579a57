#include "rnic/verbs/wr.h"

#include <stdlib.h>
#include <string.h>

#include "rnic/verbs/convert.h"
#include "rnic/verbs/errno_of.h"
#include "rnic/verbs/in_place.h"
#include "rnic/verbs/objects.h"
#include "rnic/verbs/post.h"

/* One request; what it points to is named by place until the batch is complete, for arrays move. */
struct wr_entry {
    struct send_request request;
    struct datagram_target target;
    struct window_bind bind;
    uint32_t first_sge;
    uint32_t inline_place;
};

static struct wr_batch *batch_of(struct ibv_qp_ex *qp)
{
    return &soft_qp(&qp->qp_base)->batch;
}

static void fail(struct wr_batch *batch, int error)
{
    if (batch->error == 0) {
        batch->error = error;
    }
}

/* Makes room for `more` elements of `size` bytes behind `count`. NULL and the batch's error where
 * there is no memory. */
static void *reserve(struct wr_batch *batch, void *array, uint32_t *room, uint32_t count,
                     size_t more, size_t size)
{
    if (more <= *room - count) {
        return array;
    }
    size_t wanted = *room < 16 ? 16 : (size_t)*room * 2;
    while (wanted - count < more) {
        wanted *= 2;
    }
    void *grown = wanted > UINT32_MAX ? NULL : realloc(array, wanted * size);
    if (grown == NULL) {
        fail(batch, ENOMEM);
        return NULL;
    }
    *room = (uint32_t)wanted;
    return grown;
}

/* The entry that setters speak of; NULL after an error, and of a request in its place. */
static struct wr_entry *current(struct ibv_qp_ex *qp)
{
    struct wr_batch *batch = batch_of(qp);
    if (batch->error == 0 && batch->entry_count == 0 && batch->slot == NULL) {
        fail(batch, EINVAL);
    }
    return batch->error != 0 || batch->slot != NULL ? NULL
                                                    : &batch->entries[batch->entry_count - 1];
}

/* Begins a request with what the application left in wr_id and wr_flags. */
static struct send_request *begin(struct ibv_qp_ex *qp, enum work_kind kind)
{
    static _Thread_local struct send_request refused; /* written after an error, never read */
    struct wr_batch *batch = batch_of(qp);
    batch->slot = NULL;
    struct wr_entry *entries = batch->error != 0
                                   ? NULL
                                   : reserve(batch, batch->entries, &batch->entry_room,
                                             batch->entry_count, 1, sizeof *entries);
    if (entries == NULL) {
        return &refused;
    }
    batch->entries = entries;
    struct wr_entry *entry = &entries[batch->entry_count++];
    *entry = (struct wr_entry){.first_sge = batch->sge_count};
    entry->request.id = qp->wr_id;
    entry->request.kind = kind;
    convert_send_flags(qp->wr_flags & ~(unsigned)IBV_SEND_INLINE, &entry->request);
    return &entry->request;
}

/* The same in its place; NULL: it is to begin as an entry. */
static struct send_slot *open_slot(struct ibv_qp_ex *extended, enum work_kind kind)
{
    struct soft_qp *qp = soft_qp(&extended->qp_base);
    struct wr_batch *batch = &qp->batch;
    batch->slot =
        batch->error != 0 || batch->entry_count != 0
            ? NULL
            : in_place_open(qp, batch->slot_count, kind, extended->wr_id, extended->wr_flags);
    batch->slot_count += batch->slot != NULL;
    return batch->slot;
}

static void wr_send(struct ibv_qp_ex *qp)
{
    if (open_slot(qp, WORK_SEND) == NULL) {
        begin(qp, WORK_SEND);
    }
}

static void wr_send_immediate(struct ibv_qp_ex *qp, __be32 immediate)
{
    struct send_slot *slot = open_slot(qp, WORK_SEND_IMMEDIATE);
    if (slot != NULL) {
        slot->immediate = immediate;
    } else {
        begin(qp, WORK_SEND_IMMEDIATE)->immediate = immediate;
    }
}

static void wr_send_invalidate(struct ibv_qp_ex *qp, uint32_t key)
{
    begin(qp, WORK_SEND_INVALIDATE)->invalidate = (struct memory_key){key};
}

static void wr_local_invalidate(struct ibv_qp_ex *qp, uint32_t key)
{
    begin(qp, WORK_LOCAL_INVALIDATE)->invalidate = (struct memory_key){key};
}

static struct send_request *begin_remote(struct ibv_qp_ex *qp, enum work_kind kind, uint32_t key,
                                         uint64_t address)
{
    struct send_request *request = begin(qp, kind);
    request->remote_key = (struct memory_key){key};
    request->remote_address = address;
    return request;
}

static void begin_access(struct ibv_qp_ex *qp, enum work_kind kind, uint32_t key, uint64_t address,
                         __be32 immediate)
{
    struct send_slot *slot = open_slot(qp, kind);
    if (slot != NULL) {
        slot->immediate = immediate;
        slot->remote_key = (struct memory_key){key};
        slot->remote_address = address;
    } else {
        begin_remote(qp, kind, key, address)->immediate = immediate;
    }
}

static void wr_read(struct ibv_qp_ex *qp, uint32_t key, uint64_t address)
{
    begin_access(qp, WORK_READ, key, address, 0);
}

static void wr_write(struct ibv_qp_ex *qp, uint32_t key, uint64_t address)
{
    begin_access(qp, WORK_WRITE, key, address, 0);
}

static void wr_write_immediate(struct ibv_qp_ex *qp, uint32_t key, uint64_t address,
                               __be32 immediate)
{
    begin_access(qp, WORK_WRITE_IMMEDIATE, key, address, immediate);
}

static void wr_compare_swap(struct ibv_qp_ex *qp, uint32_t key, uint64_t address, uint64_t compare,
                            uint64_t swap)
{
    struct send_request *request = begin_remote(qp, WORK_COMPARE_SWAP, key, address);
    request->compare = compare;
    request->swap_or_add = swap;
}

static void wr_fetch_add(struct ibv_qp_ex *qp, uint32_t key, uint64_t address, uint64_t add)
{
    begin_remote(qp, WORK_FETCH_ADD, key, address)->swap_or_add = add;
}

static void wr_bind_window(struct ibv_qp_ex *qp, struct ibv_mw *window, uint32_t key,
                           const struct ibv_mw_bind_info *info)
{
    struct send_request *request = begin(qp, WORK_BIND_WINDOW);
    struct wr_entry *entry = current(qp);
    if (entry == NULL) {
        return;
    }
    int error =
        window->type != IBV_MW_TYPE_2 ? EINVAL : convert_bind(window, key, info, &entry->bind);
    if (error != 0) {
        fail(batch_of(qp), error);
    }
    request->bind = &entry->bind;
}

static void wr_segmentation_offload(struct ibv_qp_ex *qp, void *header, uint16_t header_length,
                                    uint16_t segment_length)
{
    fail(batch_of(qp), EOPNOTSUPP);
}

static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t key, uint64_t address, const void *bytes)
{
    memcpy(&begin_remote(qp, WORK_ATOMIC_WRITE, key, address)->swap_or_add, bytes,
           sizeof(uint64_t));
}

static void wr_set_shared_queue(struct ibv_qp_ex *qp, uint32_t number)
{
    struct wr_entry *entry = current(qp);
    if (entry != NULL) {
        entry->request.xrc_srq = number & 0xffffff;
    }
}

static void wr_set_target(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
    struct wr_entry *entry = current(qp);
    if (entry != NULL && ah == NULL) {
        fail(batch_of(qp), EINVAL);
    } else if (entry != NULL) {
        convert_target(ah, qpn, qkey, &entry->target);
        entry->request.target = &entry->target;
    }
}

/* What a setter of a request in its place has said. */
static void heed(struct wr_batch *batch, int error)
{
    if (error != 0) {
        fail(batch, error);
    }
}

/* What was set before no longer counts: with inline data the one SGE has the length of those. */
static void set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list,
                         bool inline_data)
{
    struct wr_batch *batch = batch_of(qp);
    struct wr_entry *entry = current(qp);
    if (entry == NULL) {
        return;
    }
    if (count > soft_qp(&qp->qp_base)->granted.send_sge && !inline_data) {
        fail(batch, EINVAL);
        return;
    }
    struct sge *sges =
        reserve(batch, batch->sges, &batch->sge_room, batch->sge_count, count, sizeof *sges);
    if (sges == NULL) {
        return;
    }
    batch->sges = sges;
    convert_sges(list, count, sges + batch->sge_count);
    entry->first_sge = batch->sge_count;
    batch->sge_count += (uint32_t)count;
    entry->request.sge_count = (uint32_t)count;
    entry->request.inline_data = inline_data;
}

static void wr_set_sge_list(struct ibv_qp_ex *extended, size_t count, const struct ibv_sge *list)
{
    struct soft_qp *qp = soft_qp(&extended->qp_base);
    if (qp->batch.slot != NULL) {
        heed(&qp->batch, in_place_sges(qp, qp->batch.slot, list, count));
    } else {
        set_sge_list(extended, count, list, false);
    }
}

static void wr_set_sge(struct ibv_qp_ex *extended, uint32_t key, uint64_t address, uint32_t length)
{
    struct soft_qp *qp = soft_qp(&extended->qp_base);
    if (qp->batch.slot != NULL) {
        struct sge sge = {.address = address, .length = length, .key = {key}};
        heed(&qp->batch, in_place_sge(qp, qp->batch.slot, &sge));
    } else {
        struct ibv_sge sge = {.addr = address, .length = length, .lkey = key};
        set_sge_list(extended, 1, &sge, false);
    }
}

static void set_inline_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_data_buf *list)
{
    struct wr_batch *batch = batch_of(qp);
    struct wr_entry *entry = current(qp);
    if (entry == NULL) {
        return;
    }
    size_t length = 0;
    for (size_t i = 0; i < count && length <= INLINE_MAX; i++) {
        length += list[i].length <= INLINE_MAX ? list[i].length : INLINE_MAX + 1;
    }
    if (length > soft_qp(&qp->qp_base)->granted.inline_data) {
        fail(batch, EINVAL);
        return;
    }
    uint8_t *bytes =
        reserve(batch, batch->inline_bytes, &batch->inline_room, batch->inline_length, length, 1);
    if (bytes == NULL) {
        return;
    }
    batch->inline_bytes = bytes;
    entry->inline_place = batch->inline_length;
    for (size_t i = 0; i < count; i++) {
        if (list[i].length != 0) {
            memcpy(bytes + batch->inline_length, list[i].addr, list[i].length);
            batch->inline_length += (uint32_t)list[i].length;
        }
    }
    struct ibv_sge sge = {.length = (uint32_t)length};
    set_sge_list(qp, length == 0 ? 0 : 1, &sge, true);
}

static void wr_set_inline_list(struct ibv_qp_ex *extended, size_t count,
                               const struct ibv_data_buf *list)
{
    struct soft_qp *qp = soft_qp(&extended->qp_base);
    if (qp->batch.slot != NULL) {
        qp->batch.slot->length = 0;
        for (size_t i = 0; i < count; i++) {
            heed(&qp->batch, in_place_append(qp, qp->batch.slot, list[i].addr, list[i].length));
        }
    } else {
        set_inline_list(extended, count, list);
    }
}

static void wr_set_inline(struct ibv_qp_ex *extended, void *address, size_t length)
{
    struct soft_qp *qp = soft_qp(&extended->qp_base);
    if (qp->batch.slot != NULL) {
        qp->batch.slot->length = 0;
        heed(&qp->batch, in_place_append(qp, qp->batch.slot, address, length));
    } else {
        struct ibv_data_buf buffer = {.addr = address, .length = length};
        set_inline_list(extended, 1, &buffer);
    }
}

static void wr_start(struct ibv_qp_ex *extended)
{
    struct soft_qp *qp = soft_qp(&extended->qp_base);
    soft_qp_prefetch(qp, sizeof *qp);
    lock_take(&qp->send_lock, LOCK_OUTER);
    qp->batch.taker = lock_self;
    qp->batch.slot = NULL;
    qp->batch.slot_count = 0;
    qp->batch.entry_count = 0;
    qp->batch.sge_count = 0;
    qp->batch.inline_length = 0;
    qp->batch.error = 0;
}

/* What an entry names, now that no array moves any more. */
static struct send_request *settle(struct wr_batch *batch, struct wr_entry *entry)
{
    struct send_request *request = &entry->request;
    struct sge *sges = batch->sges + entry->first_sge;
    request->sges = request->sge_count == 0 ? NULL : sges;
    if (request->inline_data && request->sge_count != 0) {
        sges->address = (uintptr_t)(batch->inline_bytes + entry->inline_place);
    }
    request->target = request->target == NULL ? NULL : &entry->target;
    request->bind = request->bind == NULL ? NULL : &entry->bind;
    return request;
}

/* All or nothing: room and each request are looked at before the first is posted. */
static int check_batch(struct soft_qp *qp)
{
    struct wr_batch *batch = &qp->batch;
    int error = batch->error;
    if (error == 0 && batch->slot_count + batch->entry_count > post_room(qp)) {
        error = ENOMEM;
    }
    for (uint32_t i = 0; error == 0 && i < batch->entry_count; i++) {
        error = errno_of_post(qp_check_send(qp->qp, settle(batch, &batch->entries[i])));
    }
    return error;
}

static int wr_complete(struct ibv_qp_ex *extended)
{
    struct soft_qp *qp = soft_qp(&extended->qp_base);
    struct wr_batch *batch = &qp->batch;
    uint32_t posted = 0;
    int error = batch->error;
    if (error == 0 && batch->slot_count == 0 && batch->entry_count == 1) {
        (void)settle(batch, batch->entries); /* posting it is the check */
    } else if (error == 0 && batch->entry_count != 0) {
        error = check_batch(qp);
    }
    /* From here on it fails only where another thread resets the queue pair just now. */
    if (error == 0 && batch->slot_count != 0) {
        error = errno_of_post(qp_post_opened(qp->qp, batch->slot_count));
    }
    bool any = error == 0 && batch->slot_count != 0;
    while (error == 0 && posted < batch->entry_count) {
        error = post_request(qp, &batch->entries[posted].request);
        posted += error == 0;
    }
    if (posted != 0 || any) {
        post_ring(qp);
    }
    lock_give_for(&qp->send_lock, LOCK_OUTER, batch->taker);
    return error;
}

static void wr_abort(struct ibv_qp_ex *extended)
{
    struct soft_qp *qp = soft_qp(&extended->qp_base);
    lock_give_for(&qp->send_lock, LOCK_OUTER, qp->batch.taker);
}

void wr_fill(struct ibv_qp_ex *qp)
{
    qp->wr_atomic_cmp_swp = wr_compare_swap;
    qp->wr_atomic_fetch_add = wr_fetch_add;
    qp->wr_bind_mw = wr_bind_window;
    qp->wr_local_inv = wr_local_invalidate;
    qp->wr_rdma_read = wr_read;
    qp->wr_rdma_write = wr_write;
    qp->wr_rdma_write_imm = wr_write_immediate;
    qp->wr_send = wr_send;
    qp->wr_send_imm = wr_send_immediate;
    qp->wr_send_inv = wr_send_invalidate;
    qp->wr_send_tso = wr_segmentation_offload;
    qp->wr_set_ud_addr = wr_set_target;
    qp->wr_set_xrc_srqn = wr_set_shared_queue;
    qp->wr_set_inline_data = wr_set_inline;
    qp->wr_set_inline_data_list = wr_set_inline_list;
    qp->wr_set_sge = wr_set_sge;
    qp->wr_set_sge_list = wr_set_sge_list;
    qp->wr_start = wr_start;
    qp->wr_complete = wr_complete;
    qp->wr_abort = wr_abort;
    qp->wr_atomic_write = wr_atomic_write;
}

void wr_batch_free(struct wr_batch *batch)
{
    free(batch->entries);
    free(batch->sges);
    free(batch->inline_bytes);
    *batch = (struct wr_batch){0};
}
