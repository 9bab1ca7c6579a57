/* How whoever drives transfers waits for what comes next.
 *
 * While a stream comes, its next chunk is there within some tenths of a millisecond, and the engine
 * is driven by whoever looks. To sleep until then means that the engine's own thread has to wake
 * up, take over, and wake us: on two processors, which the other side may need as well. So it is
 * looked again without a pause, for as long as has turned out to pay: where nothing came meanwhile,
 * half as long the next time; where something did, twice as long, up to a bound. Who has become too
 * impatient to learn anything is patient again, as a trial, after some sleeps that were over at
 * once. */
#ifndef TOOLS_PATIENCE_H
#define TOOLS_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/channel.h>

struct patience {
    uint64_t length_ns;
    uint64_t busy_ns;  /* when there was something to do, */
    uint64_t slept_ns; /* and when it last went to sleep, 0: not since */
    unsigned naps;
};

void patience_init(struct patience *patience);
/* After a look: whether something has `come`. True: look again; false: sleep. */
bool patience_lasts(struct patience *patience, uint64_t now_ns, bool come);
/* Lets the poller do what is due, and waits at most so long for something where there is no `more`
 * to do meanwhile. NULL: whoever waits sleeps. */
void patience_poll(struct patience *patience, struct weir_poller *poller, bool more,
                   int timeout_ms);

#endif
