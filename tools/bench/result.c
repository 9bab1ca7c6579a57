#include "tools/bench/result.h"

#define SECONDS_LEAST 0.01
#define COUNT_LEAST   20

static const struct {
    const char *name;
    double fraction; /* 0: the least */
    uint64_t samples;
} points[RESULT_POINTS] = {{"min", 0, 1},      {"p50", 0.5, 1},        {"p90", 0.9, 10},
                           {"p99", 0.99, 100}, {"p99.9", 0.999, 1000}, {"max", 1, 1}};

const char *result_point_name(unsigned point)
{
    return points[point].name;
}

uint64_t result_point_samples(unsigned point)
{
    return points[point].samples;
}

static double scale_us(const struct plan_case *item)
{
    return plan_is_ping_pong(item) ? 0.5e-3 : 1e-3;
}

void result_add(struct result *result, const struct result_run *run,
                const struct histogram *samples)
{
    if (result->run_count == RESULT_RUNS_MAX) {
        return;
    }
    struct result_run *kept = &result->runs[result->run_count++];
    *kept = *run;
    if (samples == NULL || samples->count == 0) {
        return;
    }
    for (unsigned i = 0; i < RESULT_POINTS; i++) {
        double ns = points[i].fraction > 0 ? histogram_quantile(samples, points[i].fraction)
                                           : (double)samples->least;
        kept->latency_us[i] = ns * scale_us(&result->item);
    }
    histogram_merge(&result->latency, samples);
}

bool result_point_is_known(const struct result *result, unsigned point)
{
    for (unsigned i = 0; i < result->run_count; i++) {
        if (result->runs[i].count < points[point].samples) {
            return false;
        }
    }
    return result->run_count > 0;
}

struct spread result_latency_us(const struct result *result, unsigned point)
{
    double values[RESULT_RUNS_MAX];
    for (unsigned i = 0; i < result->run_count; i++) {
        values[i] = result->runs[i].latency_us[point];
    }
    return spread_of(values, result->run_count);
}

double result_rate(const struct result *result, const struct result_run *run)
{
    double rate = run->seconds > 0 ? (double)run->count / run->seconds : 0;
    if (result->item.both_ways && run->server_seconds > 0) {
        rate += (double)run->count / run->server_seconds;
    }
    return rate;
}

struct spread result_rates(const struct result *result)
{
    double values[RESULT_RUNS_MAX];
    for (unsigned i = 0; i < result->run_count; i++) {
        values[i] = result_rate(result, &result->runs[i]);
    }
    return spread_of(values, result->run_count);
}

struct spread result_cpu_us(const struct result *result, bool of_server)
{
    double values[RESULT_RUNS_MAX];
    for (unsigned i = 0; i < result->run_count; i++) {
        const struct result_run *run = &result->runs[i];
        double operations = (double)run->count * (result->item.both_ways ? 2 : 1);
        values[i] = (of_server ? run->server_cpu_s : run->client_cpu_s) / operations * 1e6;
    }
    return spread_of(values, result->run_count);
}

const char *result_doubt(const struct result *result)
{
    for (unsigned i = 0; i < result->run_count; i++) {
        if (result->runs[i].count < COUNT_LEAST) {
            return "too short: fewer than 20 operations in a run";
        }
        if (result->runs[i].seconds < SECONDS_LEAST) {
            return "too short: a run of less than 10 ms";
        }
    }
    return result->run_count < 3 ? "fewer than 3 runs: the spread says little" : NULL;
}

static json_t *spread_to_json(struct spread spread)
{
    return json_pack("{s:f, s:f, s:f}", "median", spread.median, "min", spread.least, "max",
                     spread.greatest);
}

/* [[microseconds, how many], ...]: where each bucket ends, so that nothing was slower than said. */
static json_t *histogram_to_json(const struct result *result)
{
    json_t *list = json_array();
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (result->latency.buckets[i] > 0) {
            double end_ns =
                i + 1 < HISTOGRAM_BUCKETS ? (double)(histogram_bucket_begin(i + 1) - 1) : 1.8e19;
            double most_ns = (double)result->latency.greatest;
            json_array_append_new(
                list,
                json_pack("[f, I]", (end_ns < most_ns ? end_ns : most_ns) * scale_us(&result->item),
                          (json_int_t)result->latency.buckets[i]));
        }
    }
    return list;
}

static json_t *latency_to_json(const struct result *result)
{
    json_t *latency = json_object();
    for (unsigned i = 0; i < RESULT_POINTS; i++) {
        json_object_set_new(latency, points[i].name,
                            result_point_is_known(result, i)
                                ? spread_to_json(result_latency_us(result, i))
                                : json_null());
    }
    return latency;
}

static json_t *runs_to_json(const struct result *result)
{
    json_t *list = json_array();
    for (unsigned i = 0; i < result->run_count; i++) {
        const struct result_run *run = &result->runs[i];
        json_array_append_new(list,
                              json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)run->count,
                                        "seconds", run->seconds, "client_cpu_s", run->client_cpu_s,
                                        "server_cpu_s", run->server_cpu_s));
    }
    return list;
}

json_t *result_to_json(const struct result *result)
{
    const struct plan_case *item = &result->item;
    json_t *object = plan_case_to_json(item);
    if (result->unsupported[0] != '\0') {
        json_object_set_new(object, "unsupported", json_string(result->unsupported));
        return object;
    }
    const char *doubt = result_doubt(result);
    json_object_set_new(object, "method", json_string(plan_method(item)));
    json_object_set_new(object, "verified", json_true()); /* else there would be no result */
    json_object_set_new(object, "link",
                        result->link != NULL ? json_string(result->link) : json_null());
    json_object_set_new(object, "doubt", doubt != NULL ? json_string(doubt) : json_null());
    if (item->measure == PLAN_LATENCY) {
        json_object_set_new(object, "latency_us", latency_to_json(result));
        json_object_set_new(object, "histogram_us", histogram_to_json(result));
    } else {
        struct spread rate = result_rates(result);
        double size = (double)item->size;
        json_object_set_new(object, "operations_per_s", spread_to_json(rate));
        json_object_set_new(object, "bytes_per_s",
                            spread_to_json((struct spread){rate.median * size, rate.least * size,
                                                           rate.greatest * size}));
    }
    json_object_set_new(object, "client_cpu_us_per_operation",
                        spread_to_json(result_cpu_us(result, false)));
    json_object_set_new(object, "server_cpu_us_per_operation",
                        spread_to_json(result_cpu_us(result, true)));
    json_object_set_new(object, "runs", runs_to_json(result));
    return object;
}
