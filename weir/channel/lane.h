/* One queue pair of a connection, and the order book of what was posted on it.
 *
 * Completions of one queue pair come in posting order, so a signalled one ends all before it; the
 * book remembers what to do for each. Not here: what is sent and why. */
#ifndef WEIR_CHANNEL_LANE_H
#define WEIR_CHANNEL_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/channel.h>

#include "weir/channel/poller.h"

#define LANE_SLOT_BITS   20
#define LANE_RETRY_COUNT 7

/* Work on a lane ended: OK, or what became of it. Not called for work that a lost connection left
 * behind; its owners hold lists of their own. */
typedef void lane_retire(struct weir_connection *connection, void *argument,
                         enum weir_status status);

struct posted {
    lane_retire *retire; /* may be NULL */
    void *argument;
    const char *what; /* "a put" */
};

struct lane {
    struct weir_connection *connection;
    struct queue_share *share;
    struct ibv_qp *pair;   /* NULL: not made yet */
    struct rdma_cm_id *id; /* rdma_cm bootstrap */
    bool is_up;
    uint8_t index; /* 0: the message lane */
    uint8_t busy;  /* transfers' pieces posted */
    uint16_t unsignalled;
    uint32_t unsignalled_bytes;
    uint32_t slot, generation;
    uint32_t send_depth, receive_depth;
    uint32_t inline_max; /* bytes that may travel in the request itself */
    struct posted *book; /* a ring; its length is a power of two, so counts may wrap */
    uint32_t book_mask;
    uint32_t oldest, next; /* running counts */
    uint32_t psn;
};

void lane_set_slot(struct lane *lane, uint32_t slot, uint32_t generation);
uint32_t lane_slot(const struct lane *lane);
uint32_t lane_slot_of(uint64_t work_id);
bool lane_owns(const struct lane *lane, uint64_t work_id);

/* Makes the queue pair: of its rdma_cm id if there is one, else a plain one in RESET. */
enum weir_status lane_create(struct lane *lane, struct weir_connection *connection, uint8_t index,
                             uint32_t send_depth, uint32_t receive_depth,
                             struct weir_error *ret_error);
/* Destroys it and the id. After this the device touches no memory for it. */
void lane_destroy(struct lane *lane);

/* The exponent of a queue pair's local ACK timeout, 4.096 us * 2^it: all LANE_RETRY_COUNT retries
 * together take less than half of the silence timeout. */
uint8_t lane_ack_timeout(const struct weir_connection *connection);

/* Posts one request (wr_id and flags are filled in here). A signal is asked for if the caller
 * wants it, and by itself every so often. False: the connection has failed. */
bool lane_post(struct lane *lane, struct ibv_send_wr *request, bool wants_signal,
               const struct posted *posted);
/* Posts receive buffers of the connection's pool, at most LANE_RECEIVES_MAX at once. False: the
 * connection has failed. */
#define LANE_RECEIVES_MAX 8
bool lane_post_receives(struct lane *lane, const uint32_t *indexes, unsigned count);

void lane_complete(struct lane *lane, const struct ibv_wc *completion);

#endif
