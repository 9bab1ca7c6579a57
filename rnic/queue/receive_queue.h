/* Receive buffers in posting order; owned by one queue pair or shared by many (SRQ).
 *
 * One producer (the application, under its own lock) and one consumer (the engine). */
#ifndef WEIR_QUEUE_RECEIVE_QUEUE_H
#define WEIR_QUEUE_RECEIVE_QUEUE_H

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"
#include "rnic/queue/work.h"

struct receive_queue;

struct receive_slot {
    uint64_t id;
    uint64_t length; /* bytes, all SGEs together */
    uint32_t sge_count;
    const struct sge *sges;
};

/* INVALID: limits above QUEUE_CAPACITY_MAX or QUEUE_SGE_MAX. */
enum status receive_queue_create(struct allocator *allocator, uint32_t capacity, uint32_t max_sge,
                                 struct receive_queue **ret_queue) MUST_USE;
void receive_queue_destroy(struct receive_queue *queue);

/* Application side. FULL; INVALID: too many SGEs. Lengths are not limited: a message never
 * is longer than MESSAGE_LENGTH_MAX. */
enum status receive_queue_post(struct receive_queue *queue,
                               const struct receive_request *request) MUST_USE;

/* The same for who builds a receive where it is to lie: where its SGEs go. NULL: receive_queue_post
 * says why. */
struct sge *receive_queue_open(struct receive_queue *queue, uint32_t sge_count);
/* Posts the one that was opened last. */
void receive_queue_post_opened(struct receive_queue *queue, uint64_t id, uint32_t sge_count);

/* Engine side. The slot at the head, NULL if there is none; it stays valid until it is taken. */
const struct receive_slot *receive_queue_peek(const struct receive_queue *queue);
/* Copies the head out (with its SGEs into `ret_sges`, max_sge of them) and frees the slot: used
 * where a message is under way and, on a shared queue, others go on taking. False if empty. */
bool receive_queue_take(struct receive_queue *queue, struct receive_slot *ret_slot,
                        struct sge *ret_sges);
/* Frees the slot at the head, which is there. */
void receive_queue_drop(struct receive_queue *queue);
/* With the engine's lock held: when fewer than `limit` receives are left after one was taken, the
 * notifier is told, once, under that lock; it must not call back. 0: never. */
struct receive_queue_notifier {
    void (*low)(struct receive_queue_notifier *notifier, struct receive_queue *queue);
};
void receive_queue_set_limit(struct receive_queue *queue, uint32_t limit,
                             struct receive_queue_notifier *notifier);
uint32_t receive_queue_depth(const struct receive_queue *queue);
/* Whether anything was ever posted. */
bool receive_queue_was_used(const struct receive_queue *queue);
uint32_t receive_queue_capacity(const struct receive_queue *queue);
uint32_t receive_queue_max_sge(const struct receive_queue *queue);

#endif
