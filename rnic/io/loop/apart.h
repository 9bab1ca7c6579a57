/* When the background thread is to run on another processor than a sender of its host.
 *
 * The scheduler may leave it where its sender's thread is, though another processor idles. The two
 * of them then take turns at what could be done at once, copying into a lane and out of it; and
 * where the sender polls, the thread waits for the end of its slice: 4 ms. That is so by chance,
 * and stays so for as long as the thread is woken often enough. So who was rung for from its own
 * processor some times in a row, and for long records, leaves it for a while.
 *
 * Pure arithmetic: no clock, no thread. */
#ifndef WEIR_IO_APART_H
#define WEIR_IO_APART_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"

/* Zeroed: good. */
struct apart {
    uint32_t rings; /* in a row */
    bool is_away;
    struct instant until;
};

enum apart_step {
    APART_STAY,
    APART_LEAVE, /* the processor that it runs on */
    APART_RETURN,
};

/* The thread is about to sleep; `crowded`: what it has just done was to take long records of a
 * sender that had rung from its own processor. */
enum apart_step apart_next(struct apart *apart, struct instant now, bool crowded);

#endif
