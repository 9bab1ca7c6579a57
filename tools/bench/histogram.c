#include "tools/bench/histogram.h"

#include <stdlib.h>
#include <string.h>

#define FINE_COUNT ((uint64_t)1 << HISTOGRAM_FINE)

void histogram_clear(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
    histogram->least = UINT64_MAX;
}

/* Values below 2^FINE have a bucket each; above, those of a power of two share 2^FINE. */
size_t histogram_bucket_of(uint64_t value)
{
    if (value < FINE_COUNT) {
        return (size_t)value;
    }
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_FINE;
    return (size_t)(((uint64_t)(shift + 1) << HISTOGRAM_FINE) + ((value >> shift) - FINE_COUNT));
}

uint64_t histogram_bucket_begin(size_t index)
{
    if (index < FINE_COUNT) {
        return index;
    }
    unsigned shift = (unsigned)(index >> HISTOGRAM_FINE) - 1;
    return (FINE_COUNT + (index & (FINE_COUNT - 1))) << shift;
}

void histogram_add(struct histogram *histogram, uint64_t value)
{
    histogram->buckets[histogram_bucket_of(value)]++;
    histogram->count++;
    histogram->least = value < histogram->least ? value : histogram->least;
    histogram->greatest = value > histogram->greatest ? value : histogram->greatest;
}

void histogram_merge(struct histogram *histogram, const struct histogram *other)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        histogram->buckets[i] += other->buckets[i];
    }
    histogram->count += other->count;
    histogram->least = other->least < histogram->least ? other->least : histogram->least;
    histogram->greatest =
        other->greatest > histogram->greatest ? other->greatest : histogram->greatest;
}

/* The middle of a bucket, where nothing outside of what was seen is said. */
static double middle(const struct histogram *histogram, size_t index)
{
    uint64_t begin = histogram_bucket_begin(index);
    uint64_t last =
        index + 1 < HISTOGRAM_BUCKETS ? histogram_bucket_begin(index + 1) - 1 : UINT64_MAX;
    double value = (double)begin + (double)(last - begin) / 2;
    if (value < (double)histogram->least) {
        return (double)histogram->least;
    }
    return value > (double)histogram->greatest ? (double)histogram->greatest : value;
}

double histogram_quantile(const struct histogram *histogram, double fraction)
{
    if (histogram->count == 0) {
        return 0;
    }
    double wanted = fraction * (double)histogram->count;
    uint64_t rank = (uint64_t)wanted;
    rank += (double)rank < wanted;
    uint64_t seen = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank && seen > 0) {
            return rank >= histogram->count ? (double)histogram->greatest : middle(histogram, i);
        }
    }
    return (double)histogram->greatest;
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

struct spread spread_of(double *values, size_t count)
{
    if (count == 0) {
        return (struct spread){0, 0, 0};
    }
    qsort(values, count, sizeof(*values), compare);
    double median =
        count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
    return (struct spread){median, values[0], values[count - 1]};
}
