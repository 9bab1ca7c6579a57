/* For scenarios of selective repeat: two ends that speak it, and requests of the one to the other.
 * Header only: each test has its own copy, and uses some of it. */
#ifndef WEIR_SIM_SCENARIOS_SELECTIVE_H
#define WEIR_SIM_SCENARIOS_SELECTIVE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sim/scenario.h"

static struct scenario s;

static inline int start(void **state)
{
    (void)state;
    scenario_start_selective(&s);
    return 0;
}

static inline int stop(void **state)
{
    (void)state;
    scenario_stop(&s);
    return 0;
}

/* Of A's. */
static inline void post(enum work_kind kind, uint64_t id, uint32_t length)
{
    struct work work = {.kind = kind, .id = id, .length = length};
    assert_int_equal(scenario_post(&s.a, work), STATUS_OK);
}

static inline uint64_t count(const struct party *party, enum counter counter)
{
    return device_counters(party->host->device)->values[counter];
}

#endif
