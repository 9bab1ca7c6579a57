/* What a responder needs for the peer's READs and atomics, and most never need. */
#ifndef WEIR_TRANSPORT_READS_H
#define WEIR_TRANSPORT_READS_H

#include "rnic/transport/pace.h"
#include "rnic/transport/replay.h"

struct environment;

struct reads {
    struct replay replay;
    struct pace pace;
};

/* Room for `count` at once, in what `*reads` points to: environment->no_reads as long as none was
 * asked for. NO_MEMORY: nothing has changed. */
enum status reads_reserve(struct reads **reads, struct environment *environment,
                          uint32_t count) MUST_USE;
void reads_free(struct reads *reads, struct environment *environment);

#endif
