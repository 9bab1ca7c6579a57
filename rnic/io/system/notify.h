/* What stands behind a completion channel and behind async events: a queue of records and a
 * descriptor that is readable as long as a record waits.
 *
 * Any thread may post; several may wait. An application may poll the descriptor, and may set
 * O_NONBLOCK on it, which notify_wait honours. One post makes the descriptor readable once: two
 * records need two waits. Nothing is lost: the queue grows. */
#ifndef WEIR_IO_NOTIFY_H
#define WEIR_IO_NOTIFY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/status.h"

struct notify;

struct notify_record {
    void *object;
    uint64_t value; /* the poster's: e.g. the kind of an async event */
};

/* NO_MEMORY, also where descriptors have run out: errno tells which. */
enum status notify_create(struct notify **ret_notify) MUST_USE;
/* Nobody waits or begins to post any more; a post that is under way is awaited. NULL is allowed. */
void notify_destroy(struct notify *notify);

int notify_descriptor(const struct notify *notify);

/* Never blocks; may be called under the engine's lock. */
void notify_post(struct notify *notify, const struct notify_record *record);

/* The same, but nothing once `*is_over`; who writes that and then calls notify_forget for the
 * object knows that no such record of it comes afterwards. */
void notify_post_unless(struct notify *notify, const struct notify_record *record,
                        const atomic_bool *is_over);

/* Takes the oldest record; blocks while there is none. Returns 0, or an errno value: EAGAIN if the
 * descriptor is non-blocking and nothing waits, EINTR. */
int notify_wait(struct notify *notify, struct notify_record *ret_record) MUST_USE;

/* The same, and calls `taken` with the record before it is out of the reach of notify_forget: when
 * that returns, each record of the object has been forgotten by it or seen by `taken`. Who counts
 * in `taken` thus may look at the count after notify_forget. It must not call notify back. */
typedef void notify_taken(const struct notify_record *record);
int notify_wait_with(struct notify *notify, notify_taken *taken,
                     struct notify_record *ret_record) MUST_USE;

/* Removes the waiting records of an object that goes away; returns how many there were. In a forked
 * child it does nothing: the descriptor is the parent's. */
uint32_t notify_forget(struct notify *notify, const void *object);

#endif
