/* The completion queue: the engine pushes, the application polls.
 *
 * One producer (the engine) and one consumer (the application, under its own lock). The order in
 * which records were pushed is the order in which they are polled.
 *
 * Arming: after completion_queue_arm, the next push that matches calls the notifier once and
 * disarms. Who arms and then polls loses nothing: either the poll sees the record or the notifier
 * is called. Who polls and then arms, as devices allow that look at what has not been polled when
 * they are armed, is told of what came between the two. */
#ifndef WEIR_QUEUE_COMPLETION_QUEUE_H
#define WEIR_QUEUE_COMPLETION_QUEUE_H

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"
#include "rnic/queue/work.h"

struct completion_queue;

struct completion_queue_notifier {
    /* A completion event is due. Called by the engine; must not call back into the core. */
    void (*completed)(struct completion_queue_notifier *notifier, struct completion_queue *queue);
    /* The queue has overrun: a record was lost and the queue takes no more. Called once. */
    void (*overrun)(struct completion_queue_notifier *notifier, struct completion_queue *queue);
    /* The first completion that an armed, moderated queue keeps to itself came: after the period
     * that the application set, completion_queue_announce is due. NULL: there is no period. */
    void (*held)(struct completion_queue_notifier *notifier, struct completion_queue *queue);
};

/* `notifier` may be NULL, and outlives the queue. INVALID: capacity 0 or above QUEUE_CAPACITY_MAX.
 */
enum status completion_queue_create(struct allocator *allocator, uint32_t capacity,
                                    struct completion_queue_notifier *notifier,
                                    struct completion_queue **ret_queue) MUST_USE;
/* The caller has made sure that no queue pair uses it any more. */
void completion_queue_destroy(struct completion_queue *queue);

/* Engine side. `solicited`: a receive completion whose packet asked for an event, or any error.
 * False: overrun, now or before. */
bool completion_queue_push(struct completion_queue *queue, const struct completion *completion,
                           bool solicited);

/* The same for who writes the record where it is to lie; NULL: it is for completion_queue_push. */
struct completion *completion_queue_open(struct completion_queue *queue);
/* Pushes the one that was opened last. */
void completion_queue_push_opened(struct completion_queue *queue, bool solicited);

/* Application side: takes up to `count`; returns how many. */
uint32_t completion_queue_poll(struct completion_queue *queue, uint32_t count,
                               struct completion *ret_completions);
/* How many there are; the one that is `ahead` of them from being polled, which stays until as many
 * are dropped. */
uint32_t completion_queue_ready(const struct completion_queue *queue);
const struct completion *completion_queue_at(const struct completion_queue *queue, uint32_t ahead);
/* Takes `count` records that have been looked at. */
void completion_queue_drop(struct completion_queue *queue, uint32_t count);
/* Any thread; as good as a poll that finds nothing. */
bool completion_queue_is_empty(const struct completion_queue *queue);
/* Arming for any completion overrides an earlier arming for solicited ones only. True: completions
 * stand in the queue that no event has told of, since it was not armed when they came; it is not
 * armed now, and an event is due, which is the caller's to raise. Never where events are moderated
 * or only solicited ones are wanted. */
bool completion_queue_arm(struct completion_queue *queue, bool solicited_only);
/* It was armed once, and is not now: whoever polls it arms it again before it sleeps, or hears of
 * nothing any more. */
bool completion_queue_is_between_arms(const struct completion_queue *queue);
uint32_t completion_queue_depth(const struct completion_queue *queue);
uint32_t completion_queue_capacity(const struct completion_queue *queue);
bool completion_queue_is_overrun(const struct completion_queue *queue);
/* Bytes that the records of a queue of `capacity` take. */
size_t completion_queue_record_bytes(uint32_t capacity);
/* INVALID below the current depth. The engine's lock and the consumer's lock are both held. */
enum status completion_queue_resize(struct completion_queue *queue, uint32_t capacity) MUST_USE;
/* The same for an allocator that is not to be called under those locks: `*records` is memory for
 * the records, from the queue's allocator; after success it is that of the former ones. */
enum status completion_queue_resize_into(struct completion_queue *queue, uint32_t capacity,
                                         void **records) MUST_USE;

/* Nobody can hear of events, so arming does nothing and pushing is cheaper. Before the first push.
 */
void completion_queue_never_arm(struct completion_queue *queue);

/* Moderation: an armed queue is announced by the completion that makes `count`, or when the period
 * that began with the first is over. At most 1: each at once. Engine's lock. */
void completion_queue_moderate(struct completion_queue *queue, uint32_t count);
/* The period is over. Engine's lock. */
void completion_queue_announce(struct completion_queue *queue);

/* From now on a record that finds no room is lost without a word. Engine's lock. */
void completion_queue_ignore_overrun(struct completion_queue *queue);

/* A record of the queue pair that nobody has polled and that says that something failed (not that
 * it was flushed in consequence). False: there is none. Both locks are held, as above. */
bool completion_queue_find_failure(const struct completion_queue *queue, struct qpn qpn,
                                   struct completion *ret_completion);
/* Drops the records of a queue pair that is reset or gone. Both locks are held, as above. */
void completion_queue_forget(struct completion_queue *queue, struct qpn qpn);

/* Counts the queue pairs that push here; destroy is refused by device/control while any is left. */
void completion_queue_use(struct completion_queue *queue, int change);
uint32_t completion_queue_users(const struct completion_queue *queue);

#endif
