/* The send queue of one queue pair: a ring of work requests.
 *
 * One producer (the application, under its own lock) and one consumer (the engine). A slot belongs
 * to the application until send_queue_post has returned OK, then to the engine until
 * send_queue_retire. Positions count up without end; the ring wraps, they do not. */
#ifndef WEIR_QUEUE_SEND_QUEUE_H
#define WEIR_QUEUE_SEND_QUEUE_H

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"
#include "rnic/queue/work.h"

struct send_queue;

/* What an atomic brings. */
struct atomic_operands {
    uint64_t compare;
    uint64_t swap_or_add;
};

/* A posted request and what the transport notes on it: one line, and the data are behind it. */
struct send_slot {
    uint64_t id;
    uint64_t remote_address;
    uint32_t length; /* bytes of the message, all SGEs together */
    uint32_t immediate;
    struct memory_key invalidate;
    struct memory_key remote_key;
    uint32_t xrc_srq;   /* XRC only */
    uint16_t sge_count; /* 0 with inline_data, and of BIND_WINDOW */
    enum work_kind kind : 8;
    bool signaled, solicited, fence, inline_data;
    bool has_target;

    /* The transport's; all zero when the slot has just been posted. */
    enum completion_status status : 8;
    bool started : 1;     /* first_psn is assigned */
    bool finished : 1;    /* done, waiting for those before it */
    bool by_packets : 1;  /* it does not go without, see transport/direct.h */
    uint8_t demand_shift; /* READ: log2 of the bytes that one request on the wire asks for */
    struct psn first_psn;
    uint32_t packet_count; /* PSNs it takes; for READ those of the response */
    uint32_t received;     /* bytes of a READ response placed so far */
    uint32_t moved;        /* bytes moved without packets */
};

/* Behind the slot: the target, if it has one; then what is sent; then an atomic's operands. */
static inline const struct datagram_target *send_slot_target(const struct send_slot *slot)
{
    return (const struct datagram_target *)(slot + 1);
}

static inline const void *send_slot_data(const struct send_slot *slot)
{
    const uint8_t *behind = (const uint8_t *)(slot + 1);
    return slot->has_target ? behind + sizeof(struct datagram_target) : behind;
}

/* sge_count of them. */
static inline const struct sge *send_slot_sges(const struct send_slot *slot)
{
    return send_slot_data(slot);
}

/* The same for who fills a slot that has no target (send_queue_open). */
static inline void *send_slot_room(struct send_slot *slot)
{
    return slot + 1;
}

/* `length` of them, where inline_data. */
static inline const uint8_t *send_slot_inline(const struct send_slot *slot)
{
    return send_slot_data(slot);
}

/* Of COMPARE_SWAP and FETCH_ADD, and of an ATOMIC_WRITE of no SGEs. */
static inline const struct atomic_operands *send_slot_operands(const struct send_slot *slot)
{
    return (const struct atomic_operands *)(send_slot_sges(slot) + slot->sge_count);
}

/* Of BIND_WINDOW. */
static inline const struct window_bind *send_slot_bind(const struct send_slot *slot)
{
    return send_slot_data(slot);
}

struct send_queue_limits {
    uint32_t capacity; /* requests; exactly that many can be outstanding */
    uint32_t max_sge;
    uint32_t max_inline;  /* bytes */
    bool takes_datagrams; /* requests have targets */
};

/* Bytes of a send queue that are worth a prefetch: what posting and completing touch, and a first
 * slot. */
#define SEND_QUEUE_PREFETCH 192u

/* INVALID: limits above QUEUE_CAPACITY_MAX, QUEUE_SGE_MAX, QUEUE_INLINE_MAX. Capacity 0 is allowed
 * and always full. */
enum status send_queue_create(struct allocator *allocator, const struct send_queue_limits *limits,
                              struct send_queue **ret_queue) MUST_USE;
/* The same in memory of the caller's, zeroed and aligned to 8, which outlives it: for many queues
 * of one slot, for there nothing is kept apart. */
size_t send_queue_bytes(const struct send_queue_limits *limits);
enum status send_queue_create_in(void *memory, const struct send_queue_limits *limits,
                                 struct send_queue **ret_queue) MUST_USE;
void send_queue_destroy(struct send_queue *queue);

/* Application side. Copies the request. FULL; INVALID: too many SGEs, no such kind, no `bind`
 * or `target` where one belongs, or inline data with a kind that sends none; TOO_LONG: inline data
 * above max_inline, or a message above MESSAGE_LENGTH_MAX. */
enum status send_queue_post(struct send_queue *queue, const struct send_request *request) MUST_USE;

/* Application side, for who builds a request where it is to lie: the slot that is `ahead` places
 * behind those posted. What stands before the transport's notes in it is the caller's to fill, and
 * what belongs behind it. NULL: full. */
struct send_slot *send_queue_open(struct send_queue *queue, uint32_t ahead);
/* Posts the first `count` slots that were opened. */
void send_queue_post_opened(struct send_queue *queue, uint32_t count);

/* What send_queue_post would say if there were room. */
enum status send_queue_check(const struct send_queue *queue,
                             const struct send_request *request) MUST_USE;

/* Engine side: positions head <= p < tail hold requests. */
uint64_t send_queue_head(const struct send_queue *queue);
uint64_t send_queue_tail(const struct send_queue *queue);
struct send_slot *send_queue_slot(struct send_queue *queue, uint64_t position);
/* That at the head, where there is one. */
struct send_slot *send_queue_oldest(struct send_queue *queue);
/* Gives the slot at the head, which the caller has found, back to the application. */
void send_queue_retire(struct send_queue *queue, struct send_slot *slot);
/* Requests that it takes. */
uint32_t send_queue_capacity(const struct send_queue *queue);

#endif
