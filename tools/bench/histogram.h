/* Times in nanoseconds, counted in buckets whose width grows with the value: every figure is within
 * 1/256 of what was measured, in constant memory. The least and the greatest are kept exactly.
 *
 * Also the summary of a few runs. Pure arithmetic: no clock, no output. */
#ifndef TOOLS_BENCH_HISTOGRAM_H
#define TOOLS_BENCH_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_FINE    7 /* 2^7 buckets for each power of two */
#define HISTOGRAM_BUCKETS ((64 - HISTOGRAM_FINE + 1) << HISTOGRAM_FINE)

struct histogram {
    uint64_t count, least, greatest;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_clear(struct histogram *histogram);
void histogram_add(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *histogram, const struct histogram *other);
/* The least value that `fraction` of all values do not exceed, 0 < fraction <= 1; 0 if there are
 * none. */
double histogram_quantile(const struct histogram *histogram, double fraction);

/* Of bucket `index`: the values it holds are from here to before the next one's begin. */
uint64_t histogram_bucket_begin(size_t index);
size_t histogram_bucket_of(uint64_t value);

/* Of several runs. */
struct spread {
    double median, least, greatest;
};
/* Sorts `values`; all zero if there are none. */
struct spread spread_of(double *values, size_t count);

#endif
