/* What was measured of a case, and its figures: medians over the runs with the spread between
 * them, and of latencies the percentiles that so many samples support. */
#ifndef TOOLS_BENCH_RESULT_H
#define TOOLS_BENCH_RESULT_H

#include <jansson.h>

#include "tools/bench/histogram.h"
#include "tools/bench/plan.h"

#define RESULT_RUNS_MAX 100
/* min, 50, 90, 99, 99.9, max */
#define RESULT_POINTS 6

struct result_run {
    uint64_t count; /* of each end that posts */
    double seconds, server_seconds;
    double client_cpu_s, server_cpu_s;
    double latency_us[RESULT_POINTS];
};

struct result {
    struct plan_case item;
    char unsupported[200]; /* why there is nothing; else "" */
    const char *link;      /* what carried it: "memory", "UDP", "RDMA"; NULL: not known */
    unsigned run_count;
    struct result_run runs[RESULT_RUNS_MAX];
    struct histogram latency; /* of all runs, as measured: a ping-pong's is the round trip */
};

/* Operations of all ends in a second, of one run. */
double result_rate(const struct result *result, const struct result_run *run);
/* Takes a run in, with the samples of its latencies if it has any. */
void result_add(struct result *result, const struct result_run *run,
                const struct histogram *samples);

const char *result_point_name(unsigned point);
/* Fewer samples than this in each run leave a percentile to chance. */
uint64_t result_point_samples(unsigned point);
bool result_point_is_known(const struct result *result, unsigned point);
struct spread result_latency_us(const struct result *result, unsigned point);
struct spread result_rates(const struct result *result);
/* Microseconds of CPU, of both ends, for one operation. */
struct spread result_cpu_us(const struct result *result, bool of_server);
/* NULL, or in words why not to rely on it. */
const char *result_doubt(const struct result *result);

json_t *result_to_json(const struct result *result);

#endif
