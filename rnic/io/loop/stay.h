/* How long the background thread goes on looking for packets before it sleeps, once a stream of
 * them has come.
 *
 * The next packets of a stream are there within microseconds. To sleep until then costs the sender,
 * which has to wake us, and ourselves even more. So the thread stays, and learns how long: where
 * nothing comes meanwhile (the sender may need this very processor), half as long the next time.
 * Who has become too impatient for a sender's pace learns nothing any more, for nothing ever comes
 * in time: so after many sleeps in a row that were over at once it is patient again, as a trial.
 * Pure arithmetic: no clock, no thread. */
#ifndef WEIR_IO_STAY_H
#define WEIR_IO_STAY_H

#include <stdbool.h>

#include "rnic/base/time.h"

struct stay {
    uint64_t patience_ns;
    struct instant began, came, left;
    uint64_t count; /* packets since `came` */
    uint32_t naps;  /* short sleeps in a row */
};

void stay_init(struct stay *stay);
/* The thread has just taken `packets` at once. True: they are of a stream, it stays. */
bool stay_begin(struct stay *stay, struct instant now, uint64_t packets);
/* It has looked again, and taken `packets`. False: it is to sleep, or to look at other things than
 * packets first. */
bool stay_on(struct stay *stay, struct instant now, uint64_t packets);

#endif
