/* What has become of calls: each is counted twice, for its target and for its procedure. */
#ifndef WEIR_RPC_TALLY_H
#define WEIR_RPC_TALLY_H

#include <weir/rpc.h>

struct tally {
    struct weir_call_statistics told; /* but its latency's mean */
    uint64_t latency_sum_ns;
};

/* One more of `counter` for whatever has a target and a procedure. */
#define TALLY(of, counter) TALLY_MORE(of, counter, 1)
#define TALLY_MORE(of, counter, more)                                                              \
    ((of)->target->tally.told.counter += (more), (of)->procedure->tally.told.counter += (more))

void tally_latency(struct tally *tally, uint64_t passed_ns);
struct weir_call_statistics tally_told(const struct tally *tally);

#endif
