/* The mistakes that strict mode names: one row each, and saying one of them in words.
 *
 * A warning says what happened and to whom, what to do, and where in the program: a backtrace. Each
 * place of the program is warned of once per pitfall; what is held back is counted and summed up
 * when the process ends. Thread-safe; never called with a lock of the library but the engine's. */
#ifndef WEIR_STRICT_PITFALL_H
#define WEIR_STRICT_PITFALL_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/strict/trace.h"

enum pitfall {
    PITFALL_LATE_RECEIVE,    /* a message came and no receive was posted */
    PITFALL_SHORT_RECEIVE,   /* a message came that is longer than the receive it found */
    PITFALL_CQ_OVERRUN,      /* more completions than the queue holds */
    PITFALL_UNPOLLED,        /* completions that nobody polls fill a send queue, or end unseen */
    PITFALL_DEAD_KEY,        /* a key used after its region was deregistered */
    PITFALL_WRONG_ACCESS,    /* a right that the region or the queue pair was not given */
    PITFALL_OUT_OF_REGION,   /* a range that leaves the region */
    PITFALL_UNKNOWN_KEY,     /* a key that was never given out */
    PITFALL_UNSIGNALED_FULL, /* a send queue full of work that asks for no completion */
    PITFALL_BUFFER_REUSE,    /* a buffer changed while work that names it is not done */
    PITFALL_UNACKED_EVENT,   /* an event not acknowledged before its object is destroyed */
    PITFALL_WRITE_ORDER,     /* written bytes read before anything said that they are all there */
    PITFALL_MEMLOCK,         /* more memory registered than may be locked */
    PITFALL_PATH_MTU,        /* packets longer than the way to the peer takes */
    PITFALL_UNANSWERED,      /* a queue pair to whom nobody has ever answered gives up */
    PITFALL_WRONG_CALL,      /* arguments that are refused with EINVAL */
    PITFALL_LIMIT,           /* more asked for than the adapter of the profile has */
    PITFALL_COUNT,
};

/* "late-receive", static: the name in warnings and in WEIR_STRICT=no-NAME. */
const char *pitfall_name(enum pitfall pitfall);
/* A pitfall that is switched off is not warned of. NULL name or an unknown one: false. */
bool pitfall_disable(const char *name);
/* As in the beginning. */
void pitfall_enable_all(void);
/* Warnings go to the end of this file instead of standard error. False and errno: it cannot be
 * opened. */
bool pitfall_log_to(const char *path);

/* Warns. `where` is the place that the warning is about and may be NULL: then the caller's own;
 * `label` says what was done there: "posted at", "deregistered at". */
__attribute__((format(printf, 4, 5))) void pitfall_warn(enum pitfall pitfall,
                                                        const struct trace *where,
                                                        const char *label, const char *format, ...);
/* How often, those not said included. */
uint64_t pitfall_count(enum pitfall pitfall);

#endif
