/* What senders are told of their receiver's sleep: that it wants to be woken, whether it fences for
 * them, and where they leave which processor they ring on. The owner's end of it; theirs is in
 * outbox_flush and outbox_wake. */
#ifndef WEIR_IO_INBOX_SLEEP_H
#define WEIR_IO_INBOX_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

struct inbox_head;

/* Zeroed, but for the head: awake. */
struct inbox_sleep {
    struct inbox_head *head;
    uint32_t count; /* of sleeps, so far */
    bool fences_for_all;
};

/* From now on, and until the owner falls asleep, senders do without a fence, where heavy ones work:
 * for who has not slept for long, as the next time costs more (heavy_fence.h). */
void inbox_sleep_fence_for_all(struct inbox_sleep *sleep);
/* Or cannot. */
bool inbox_sleep_fences_for_all(const struct inbox_sleep *sleep);
/* Pairs with outbox_flush. For all senders once: from then on each has its own again. */
void inbox_sleep_fence(struct inbox_sleep *sleep);
/* Senders ring from now on. Who finds that there is something after all, ends it. */
void inbox_sleep_begin(struct inbox_sleep *sleep);
void inbox_sleep_end(struct inbox_sleep *sleep);
/* False also after a sender has woken us. */
bool inbox_sleep_is_on(const struct inbox_sleep *sleep);
/* The latest one was ended by a sender that ran on the caller's own processor. */
bool inbox_sleep_was_ended_here(const struct inbox_sleep *sleep);

#endif
