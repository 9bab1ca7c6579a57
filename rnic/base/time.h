/* Instants. Time enters the core as an argument of its entry points and nowhere else.
 * Durations are uint64_t nanoseconds in names that end in _ns. */
#ifndef WEIR_BASE_TIME_H
#define WEIR_BASE_TIME_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds since an arbitrary start that is the same for one device's whole life. */
struct instant {
    uint64_t ns;
};

#define MILLISECOND_NS UINT64_C(1000000)

#define INSTANT_NEVER ((struct instant){UINT64_MAX})

static inline bool instant_is_never(struct instant instant)
{
    return instant.ns == UINT64_MAX;
}

static inline bool instant_before(struct instant a, struct instant b)
{
    return a.ns < b.ns;
}

/* The earlier of two; NEVER is later than everything. */
static inline struct instant instant_earlier(struct instant a, struct instant b)
{
    return a.ns < b.ns ? a : b;
}

/* Saturates at NEVER. */
static inline struct instant instant_after(struct instant start, uint64_t duration_ns)
{
    return UINT64_MAX - start.ns < duration_ns ? INSTANT_NEVER
                                               : (struct instant){start.ns + duration_ns};
}

/* 0 if `since` is not earlier than `now`. */
static inline uint64_t instant_elapsed_ns(struct instant since, struct instant now)
{
    return since.ns < now.ns ? now.ns - since.ns : 0;
}

#endif
