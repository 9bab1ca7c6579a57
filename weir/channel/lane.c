/* Queue pairs: making, posting, completing. */
#include "weir/channel/lane.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/channel/connection.h"
#include "weir/channel/receiver.h"
#include "weir/error_private.h"

#define SIGNAL_EVERY      16
#define SIGNAL_BYTES      ((uint32_t)1 << 20) /* so that progress is seen on slow links too */
#define GENERATION_MASK   0xfffu
#define ACK_TIMEOUT_LEAST 14 /* 67 ms */
#define ACK_TIMEOUT_MOST  20 /* 4.3 s */
#define RECEIVE_FLAG      ((uint64_t)1 << 63)
#define INLINE_WISHED     64u /* a small message and its header: one cache line */

/* Work request id: receive flag, 31 bits of count or buffer index, generation, slot. */
static uint64_t work_id(const struct lane *lane, uint32_t count)
{
    return (uint64_t)(count & 0x7fffffffu) << 32 |
           (lane->generation & GENERATION_MASK) << LANE_SLOT_BITS | lane->slot;
}

void lane_set_slot(struct lane *lane, uint32_t slot, uint32_t generation)
{
    lane->slot = slot;
    lane->generation = generation;
}

uint32_t lane_slot(const struct lane *lane)
{
    return lane->slot;
}

uint32_t lane_slot_of(uint64_t id)
{
    return (uint32_t)id & ((1u << LANE_SLOT_BITS) - 1);
}

bool lane_owns(const struct lane *lane, uint64_t id)
{
    return ((uint32_t)id >> LANE_SLOT_BITS) == (lane->generation & GENERATION_MASK);
}

static void unmake_pair(struct lane *lane)
{
    const struct verbs *verbs = &lane->connection->poller->fabric->library.verbs;
    if (lane->id != NULL) {
        verbs->cm_destroy_qp(lane->id);
    } else {
        verbs->destroy_qp(lane->pair);
    }
    lane->pair = NULL;
}

static bool try_pair(struct lane *lane, uint32_t inline_length)
{
    const struct verbs *verbs = &lane->connection->poller->fabric->library.verbs;
    struct ibv_pd *domain = lane->connection->domain->pd;
    struct ibv_qp_init_attr attributes = {
        .send_cq = lane->share->queue,
        .recv_cq = lane->share->queue,
        .cap = {.max_send_wr = lane->send_depth,
                .max_recv_wr = lane->receive_depth > 0 ? lane->receive_depth : 1,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = inline_length},
        .qp_type = IBV_QPT_RC,
    };
    errno = 0;
    if (lane->id != NULL) {
        if (verbs->cm_create_qp(lane->id, domain, &attributes) == 0) {
            lane->pair = lane->id->qp;
        }
    } else {
        lane->pair = verbs->create_qp(domain, &attributes);
    }
    lane->inline_max = attributes.cap.max_inline_data < inline_length
                           ? attributes.cap.max_inline_data
                           : inline_length;
    return lane->pair != NULL;
}

static enum weir_status make_pair(struct lane *lane, struct weir_error *ret_error)
{
    struct weir_poller *poller = lane->connection->poller;
    /* Not every device takes data inline, or so much of it in so many requests. */
    if (!(lane->index == 0 && try_pair(lane, INLINE_WISHED)) && !try_pair(lane, 0)) {
        return error_set(ret_error, errno == ENOMEM ? WEIR_NO_MEMORY : WEIR_SYSTEM,
                         "%s: queue pair of %u sends, %u receives: %m", poller->fabric->device,
                         lane->send_depth, lane->receive_depth);
    }
    return WEIR_OK;
}

enum weir_status lane_create(struct lane *lane, struct weir_connection *connection, uint8_t index,
                             uint32_t send_depth, uint32_t receive_depth,
                             struct weir_error *ret_error)
{
    lane->connection = connection;
    lane->index = index;
    lane->send_depth = send_depth;
    lane->receive_depth = receive_depth;
    uint32_t length = 1;
    while (length < send_depth) {
        length *= 2;
    }
    lane->book_mask = length - 1;
    lane->book = calloc(length, sizeof(*lane->book));
    if (lane->book == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    lane->share = poller_reserve(connection->poller, send_depth + receive_depth);
    if (lane->share == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "%s: completion queue for %u: %m",
                         connection->poller->fabric->device, send_depth + receive_depth);
    }
    enum weir_status status = make_pair(lane, ret_error);
    if (status == WEIR_OK && !poller_add_lane(connection->poller, lane)) {
        status = error_set(ret_error, WEIR_NO_MEMORY, "too many queue pairs");
        unmake_pair(lane);
    }
    return status;
}

void lane_destroy(struct lane *lane)
{
    if (lane->connection == NULL && lane->id == NULL) {
        return;
    }
    struct weir_poller *poller = lane->connection->poller;
    const struct verbs *verbs = &poller->fabric->library.verbs;
    if (lane->pair != NULL) {
        poller_remove_lane(poller, lane);
        unmake_pair(lane);
    }
    if (lane->id != NULL) {
        verbs->cm_destroy_id(lane->id);
    }
    if (lane->share != NULL) {
        poller_unreserve(lane->share, lane->send_depth + lane->receive_depth);
    }
    free(lane->book);
    *lane = (struct lane){0};
}

uint8_t lane_ack_timeout(const struct weir_connection *connection)
{
    uint64_t budget_us =
        (uint64_t)connection->options.silence_timeout_ms * 1000 / 2 / (LANE_RETRY_COUNT + 1);
    uint8_t exponent = ACK_TIMEOUT_LEAST;
    while (exponent < ACK_TIMEOUT_MOST && (UINT64_C(4096) << (exponent + 1)) / 1000 <= budget_us) {
        exponent++;
    }
    return exponent;
}

bool lane_post(struct lane *lane, struct ibv_send_wr *request, bool wants_signal,
               const struct posted *posted)
{
    struct ibv_send_wr *bad;
    uint32_t bytes = request->num_sge > 0 ? request->sg_list[0].length : 0;
    bool is_signalled = wants_signal || lane->unsignalled + 1 >= SIGNAL_EVERY ||
                        lane->unsignalled_bytes + bytes >= SIGNAL_BYTES;
    request->wr_id = work_id(lane, lane->next);
    request->next = NULL;
    if (is_signalled) {
        request->send_flags |= IBV_SEND_SIGNALED;
    }
    /* The depth is the sum of what each kind of work may have posted. */
    int error = lane->next - lane->oldest < lane->send_depth
                    ? ibv_post_send(lane->pair, request, &bad)
                    : ENOMEM;
    if (error != 0) {
        connection_fail(lane->connection, WEIR_SYSTEM, "%s could not be posted: %s", posted->what,
                        strerror(error));
        return false;
    }
    lane->book[lane->next & lane->book_mask] = *posted;
    lane->next++;
    lane->unsignalled = is_signalled ? 0 : (uint16_t)(lane->unsignalled + 1);
    lane->unsignalled_bytes = is_signalled ? 0 : lane->unsignalled_bytes + bytes;
    return true;
}

bool lane_post_receives(struct lane *lane, const uint32_t *indexes, unsigned count)
{
    struct weir_connection *connection = lane->connection;
    uint32_t key = memory_local_key(connection->buffers.memory);
    struct ibv_sge pieces[LANE_RECEIVES_MAX];
    struct ibv_recv_wr requests[LANE_RECEIVES_MAX];
    struct ibv_recv_wr *bad;
    for (unsigned i = 0; i < count; i++) {
        pieces[i] = (struct ibv_sge){
            .addr = (uintptr_t)buffers_receive(&connection->buffers, indexes[i]),
            .length = connection->buffers.size,
            .lkey = key,
        };
        requests[i] = (struct ibv_recv_wr){
            .wr_id = work_id(lane, indexes[i]) | RECEIVE_FLAG,
            .next = i + 1 < count ? &requests[i + 1] : NULL,
            .sg_list = &pieces[i],
            .num_sge = 1,
        };
    }
    int error = ibv_post_recv(lane->pair, requests, &bad);
    if (error != 0) {
        connection_fail(connection, WEIR_SYSTEM, "a receive could not be posted: %s",
                        strerror(error));
    }
    return error == 0;
}

/* What a failed completion says about the peer and the operation. */
static enum weir_status meaning(enum ibv_wc_status status, const char **ret_words)
{
    switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
        *ret_words = "the peer's memory does not grant it";
        return WEIR_ACCESS;
    case IBV_WC_RETRY_EXC_ERR:
        *ret_words = "the peer's device no longer answers";
        return WEIR_PEER_LOST;
    case IBV_WC_RNR_RETRY_EXC_ERR:
        *ret_words = "the peer has no receive posted";
        return WEIR_PROTOCOL;
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
        *ret_words = "the peer's device refused it";
        return WEIR_PROTOCOL;
    case IBV_WC_REM_ABORT_ERR:
        *ret_words = "the peer's device gave up";
        return WEIR_PEER_LOST;
    case IBV_WC_LOC_LEN_ERR:
        *ret_words = "longer than its buffer";
        return WEIR_PROTOCOL;
    default:
        *ret_words = "the device here refused it";
        return WEIR_SYSTEM;
    }
}

/* The software RNIC says with its failure how many bytes the way takes, where that was the reason.
 */
static bool is_too_narrow(const struct weir_connection *connection, const struct ibv_wc *completion)
{
    return connection->poller->fabric->kind == WEIR_FABRIC_SOFT &&
           completion->status == IBV_WC_RETRY_EXC_ERR && completion->vendor_err != 0;
}

static void fail(struct lane *lane, const struct ibv_wc *completion, const struct posted *posted)
{
    struct weir_connection *connection = lane->connection;
    const struct verbs *verbs = &connection->poller->fabric->library.verbs;
    char narrow[96];
    if (completion->status == IBV_WC_WR_FLUSH_ERR) {
        connection_flushed(connection);
        return;
    }
    const char *words;
    enum weir_status status = meaning(completion->status, &words);
    if (is_too_narrow(connection, completion)) {
        snprintf(narrow, sizeof(narrow),
                 "its packets are longer than the %u bytes that the way to the peer takes now",
                 completion->vendor_err);
        words = narrow;
    }
    connection_fail(connection, status, "%s failed: %s (%s, vendor 0x%x)",
                    posted != NULL ? posted->what : "a receive", words,
                    verbs->wc_status_str(completion->status), completion->vendor_err);
    if (posted != NULL && posted->retire != NULL) {
        posted->retire(connection, posted->argument, status);
    }
}

/* Ends the book's entries up to the one that `completion` is of. */
static void complete_send(struct lane *lane, const struct ibv_wc *completion)
{
    uint32_t count = (uint32_t)(completion->wr_id >> 32) & 0x7fffffffu;
    uint32_t ahead = (count - lane->oldest) & 0x7fffffffu;
    if (ahead >= lane->next - lane->oldest) {
        return; /* flushed after it was retired */
    }
    uint32_t last = lane->oldest + ahead;
    while (lane->oldest != last + 1) {
        struct posted posted = lane->book[lane->oldest & lane->book_mask];
        bool is_last = lane->oldest == last;
        lane->oldest++;
        if (is_last && completion->status != IBV_WC_SUCCESS) {
            fail(lane, completion, &posted);
        } else if (posted.retire != NULL) {
            posted.retire(lane->connection, posted.argument, WEIR_OK);
        }
    }
}

void lane_complete(struct lane *lane, const struct ibv_wc *completion)
{
    struct weir_connection *connection = lane->connection;
    if (completion->status == IBV_WC_SUCCESS) {
        connection->keepalive.has_heard = true;
    }
    connection->retiring = lane;
    if ((completion->wr_id & RECEIVE_FLAG) == 0) {
        complete_send(lane, completion);
    } else if (completion->status != IBV_WC_SUCCESS) {
        fail(lane, completion, NULL);
    } else {
        receiver_take(connection, (uint32_t)(completion->wr_id >> 32) & 0x7fffffffu, completion);
    }
}
