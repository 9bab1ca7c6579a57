/* How much of what a socket was given may wait in this host for an interface that is slower.
 *
 * Where the slowest link of a way is the host's own, nothing tells a sender before the queue there
 * is full: everything else that leaves by it waits so long, and a TCP, which keeps but a
 * millisecond's worth of its own there ("small queues"), gets what that is of the whole. So the
 * kernel is asked, at each run, what still waits, and further runs are held back while that is more
 * than BACKLOG_NS are worth, at the rate at which it is seen to leave. Where the socket runs dry
 * while a run is held back, as behind an interface that lets go of much at once, or in a process
 * that gets no processor, more may wait, until that happens seldom. Each stream may have one run
 * there, for those of one socket share it. Where nothing waits, as on a fast link, the kernel is
 * asked seldom.
 *
 * What it says are its buffers, up to twice the bytes they hold. Pure: time comes as an argument.
 */
#ifndef WEIR_IO_BACKLOG_H
#define WEIR_IO_BACKLOG_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/time.h"

#define BACKLOG_NS     (2 * MILLISECOND_NS)
#define BACKLOG_MAX_NS (16 * MILLISECOND_NS)
#define BACKLOG_LEAST  (32u << 10) /* bytes that may wait however slowly they leave */
#define BACKLOG_RUN    (64u << 10) /* what a stream gives at once, at most */

/* Of a socket. Zeroed to begin with. */
struct backlog {
    uint64_t given; /* bytes, in all */
    uint64_t due;   /* when so many have been, it is to be asked what waits */
    uint32_t span;  /* bytes from one question to the next */

    struct instant asked; /* for a measurement; then: */
    uint64_t given_then;  /* of `given` */
    uint32_t waiting;     /* bytes */
    uint64_t rate;        /* bytes per millisecond that leave, as far as seen; 0: not yet */
    uint32_t steady;      /* so often in a row, of a link at work */

    bool holds;        /* somebody waits */
    uint64_t worth_ns; /* what leaves in so long may wait; 0: BACKLOG_NS */
};

static inline void backlog_give(struct backlog *backlog, uint32_t bytes)
{
    backlog->given += bytes;
}

/* Whether it is to be asked what waits before a stream gives more. */
static inline bool backlog_asks(const struct backlog *backlog)
{
    return backlog->given >= backlog->due;
}

/* Nobody needs to wait, whatever is heard. */
void backlog_let_pass(struct backlog *backlog);

/* What a stream has that is allowed a run now, and shows when it asks for the next. */
static inline uint64_t backlog_mark(const struct backlog *backlog)
{
    return backlog->given + 1;
}

/* So many bytes wait. Returns for how long a stream had better wait; 0: not at all. `mark`: 0 where
 * nothing of the stream can wait; one of another socket, as before this was opened, is no worse. */
uint64_t backlog_hear(struct backlog *backlog, struct instant now, uint32_t waiting, uint64_t mark);

#endif
