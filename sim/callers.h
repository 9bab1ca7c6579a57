/* A simulated group whose members call each other over trees (weir/group/calls.h), on one agenda,
 * with one seed: while some die, stop, or are silent, and messages take their time or are lost.
 *
 * That somebody is dead each learns at a time of its own. A call between two that is lost fails
 * when its time is over; one to a member that dies, soon after. A stopped member reads what came
 * when it goes on. */
#ifndef WEIR_SIM_CALLERS_H
#define WEIR_SIM_CALLERS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/agenda.h"
#include "sim/dice.h"
#include "weir/group/calls.h"

#define CALLERS_MS   UINT64_C(1000000)
#define CALLS_IN_RUN 24u

struct callers;
struct exchange;

struct caller_node {
    struct callers *group;
    struct calls calls;
    struct weir_group_procedure *procedure;
    uint32_t rank;
    bool is_up, is_stopped;
    uint64_t goes_on_ns, armed_ns;
    uint8_t *holds_dead;    /* of each rank */
    struct exchange *asked; /* requests that it has not answered */
};

/* One call to the group, as the judge knows it. */
struct judged_call {
    bool is_made, is_told;
    uint32_t caller, timeout_ms, asked;
    uint64_t made_ns, told_ns;
    uint8_t *runs;    /* by rank */
    uint8_t *excused; /* it was dead or stopped, or did not reply, while it ran */
};

struct callers_counts {
    uint64_t calls, replied, failed, messages, lost, deaths, stops, repaired, refused, silent;
};

struct callers {
    struct caller_node *nodes;
    uint32_t size;
    uint64_t now_ns, hash;
    struct dice network, faults;
    uint32_t loss;                        /* per million, of messages either way */
    uint32_t silent;                      /* percent, of handlers that never reply */
    uint64_t delay_ns, rumor_ns, work_ns; /* at most */
    struct agenda agenda;
    struct judged_call calls[CALLS_IN_RUN];
    unsigned made;
    struct callers_counts counts;
    FILE *trace;
    char violation[256]; /* "": none */
};

void callers_open(struct callers *group, uint32_t size, uint64_t seed, FILE *trace);
void callers_close(struct callers *group);
void callers_run(struct callers *group, uint64_t until_ns);

/* To all, from that rank. */
void callers_call(struct callers *group, uint32_t rank, unsigned radix, uint32_t timeout_ms);
void callers_kill(struct callers *group, uint32_t rank);
void callers_stop(struct callers *group, uint32_t rank, uint64_t time_ns);
void callers_violate(struct callers *group, const char *format, uint32_t a, uint32_t b);

#endif
