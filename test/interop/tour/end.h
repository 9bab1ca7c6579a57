/* The verbs objects of one end of a case, made anew for each. */
#ifndef WEIR_TOUR_END_H
#define WEIR_TOUR_END_H

#include "test/interop/tour/case.h"
#include "test/interop/tour/link.h"

#define REGION_LENGTH  16384u
#define RECEIVE_LENGTH 8192u
#define SHORT_LENGTH   16u
#define TARGET_FILL    0x5e
#define BUFFER_FILL    0xa1
#define TOUR_QKEY      0x11223344u

/* What the other end must know. */
struct introduction {
    uint32_t qpn, psn, rkey, other_rkey, cqe;
    uint64_t address;
    union ibv_gid gid;
    char stack[16];
};

struct end {
    struct ibv_context *context;
    uint8_t gid_index;
    union ibv_gid gid;
    char stack[16]; /* device name without its number */
    struct ibv_pd *pd, *other_pd;
    struct ibv_cq *send_cq, *receive_cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_ah *ah;
    struct ibv_mr *target, *other_target, *buffer, *other_buffer, *read_only;
    uint8_t *pages; /* guard, target, guard, buffer */
    uint32_t psn;
    unsigned cqe; /* of the receives */
    unsigned mtu; /* path MTU of the tour in bytes; set by who plays it */
};

/* A length of a script in a tour of this path MTU: what is of the order of a packet grows with it.
 */
uint32_t end_scaled(const struct end *end, uint32_t length);
/* False where half of the tour's path MTU is wanted and is none. */
bool end_can_play(const struct end *end, const struct tour_case *row);

/* The device that has the link's own address among its GIDs. */
void end_open(struct end *end, const struct link *link);
void end_close(struct end *end);

/* Queue pair and regions as `row` asks; the queue pair is in INIT. */
void end_prepare(struct end *end, const struct tour_case *row, bool is_responder);
struct introduction end_introduce(const struct end *end);
/* To RTS, or to where the row wants the responder. */
void end_connect(struct end *end, const struct tour_case *row, bool is_responder,
                 const struct introduction *peer);
void end_clear(struct end *end);

void end_post_receive(struct end *end, const struct tour_case *row);
/* 0 or an errno value. */
int end_post_request(struct end *end, const struct tour_case *row, const struct introduction *peer);
/* A SEND without data that cannot fail: what was sent before it has arrived or never will. */
int end_post_fence(struct end *end, const struct tour_case *row, const struct introduction *peer);

/* "intact", or what happened to the memory that the peer may have reached for. */
const char *end_memory(const struct end *end, bool is_responder);
enum ibv_qp_state end_state(const struct end *end);

#endif
