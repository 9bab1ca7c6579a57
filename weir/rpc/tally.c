/* Latencies of calls. */
#include "weir/rpc/tally.h"

void tally_latency(struct tally *tally, uint64_t passed_ns)
{
    struct weir_latency *latency = &tally->told.latency;
    if (latency->count == 0 || passed_ns < latency->least_ns) {
        latency->least_ns = passed_ns;
    }
    if (passed_ns > latency->greatest_ns) {
        latency->greatest_ns = passed_ns;
    }
    latency->count++;
    tally->latency_sum_ns += passed_ns;
}

struct weir_call_statistics tally_told(const struct tally *tally)
{
    struct weir_call_statistics told = tally->told;
    if (told.latency.count > 0) {
        told.latency.mean_ns = tally->latency_sum_ns / told.latency.count;
    }
    return told;
}
