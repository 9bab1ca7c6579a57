/* The simulated time: one queue of events ordered by (time, number), one seed, one trace.
 *
 * Nothing in the simulated world happens but inside an event, and nothing but the seed decides
 * what: the same seed gives the same trace, which its hash shows. The first violated oracle ends
 * the run. */
#ifndef WEIR_SIM_SIMULATOR_H
#define WEIR_SIM_SIMULATOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "rnic/base/time.h"

struct simulator_event {
    uint64_t time_ns;
    uint64_t number;
    void (*run)(void *context, uint64_t argument);
    void *context;
    uint64_t argument;
};

struct simulator {
    struct instant now;
    uint64_t seed;

    struct simulator_event *heap;
    uint32_t count;
    uint32_t capacity;
    uint64_t next_number;
    uint64_t events_run;

    uint64_t hash;     /* over everything that was traced */
    FILE *trace;       /* NULL: only the hash */
    bool trace_times;  /* each line begins with the instant */
    bool trace_detail; /* frames with queue pair and header fields */

    char violation[512]; /* empty: none yet. "oracle: what" */
};

enum simulator_end {
    SIMULATOR_IDLE,      /* no event is left */
    SIMULATOR_LIMIT,     /* still busy at the limit */
    SIMULATOR_VIOLATION, /* an oracle spoke */
};

void simulator_init(struct simulator *simulator, uint64_t seed, FILE *trace);
void simulator_fini(struct simulator *simulator);

/* Runs `run(context, argument)` at `when`, or now if that is past. Equal times run in the order in
 * which they were asked for. There is no cancelling: an event finds out itself that it is stale. */
void simulator_at(struct simulator *simulator, struct instant when,
                  void (*run)(void *context, uint64_t argument), void *context, uint64_t argument);
void simulator_after(struct simulator *simulator, uint64_t delay_ns,
                     void (*run)(void *context, uint64_t argument), void *context,
                     uint64_t argument);

/* Until nothing is left, the clock would pass `until`, or `max_events` more have run. */
enum simulator_end simulator_run(struct simulator *simulator, struct instant until,
                                 uint64_t max_events);

/* Enters a number into the trace hash. */
static inline void simulator_mix(struct simulator *simulator, uint64_t value)
{
    uint64_t hash = (simulator->hash ^ value) * UINT64_C(0x9fb21c651e98df25);
    simulator->hash = hash ^ (hash >> 32);
}

/* One line of the trace, if one is kept: callers mix what matters into the hash themselves. */
void simulator_note(struct simulator *simulator, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* An oracle is violated; the first one counts. */
void simulator_violate(struct simulator *simulator, const char *oracle, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool simulator_is_violated(const struct simulator *simulator)
{
    return simulator->violation[0] != '\0';
}

#endif
