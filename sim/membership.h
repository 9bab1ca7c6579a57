/* A simulated group: thousands of members' parts of finding out who lives (weir/group/swim.h), on
 * one event queue, with one seed. What the network loses, repeats and delays, who dies, stops,
 * leaves, lies, and who is cut off from whom: all of it follows from the seed.
 *
 * A request that is lost, or whose answer is, is told unanswered when its time is over, as rpc
 * does. A stopped member reads what came meanwhile when it goes on. */
#ifndef WEIR_SIM_MEMBERSHIP_H
#define WEIR_SIM_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sim/agenda.h"
#include "sim/dice.h"
#include "weir/group/swim.h"

#define MEMBERSHIP_PERIOD_NS    UINT64_C(1000000000)
#define MEMBERSHIP_PROBE_NS     (MEMBERSHIP_PERIOD_NS / 3)
#define MEMBERSHIP_SUSPICION_NS (8 * MEMBERSHIP_PERIOD_NS)

struct membership;

struct node {
    struct membership *group;
    struct swim swim;
    uint32_t rank;
    bool is_up, is_stopped, has_left, lies;
    bool was_disturbed; /* stopped, or cut off: others may have been wrong about it */
    uint32_t generation;
    uint64_t goes_on_ns;          /* stopped: when */
    uint64_t due_ns;              /* for when an event is queued */
    unsigned side;                /* of a partition */
    uint64_t window, window_sent; /* requests in the present period */
    uint64_t died_ns;
    uint32_t known_dead; /* by so many: since it died */
};

struct membership_counts {
    uint64_t requests, bytes, lost, duplicated, deaths, restarts, stops, partitions, leaves, lies;
    uint64_t suspected, held_dead, falsely_dead, refuted;
    uint64_t most_sent; /* requests by one member in one period */
};

struct membership {
    struct node *nodes;
    uint32_t size;
    uint64_t now_ns;
    struct dice network, faults;
    uint32_t loss, duplicate; /* per million, of messages either way */
    uint64_t delay_ns;        /* at most, each way */
    bool is_partitioned;
    struct agenda agenda; /* of struct event */
    uint64_t hash;
    struct membership_counts counts;
    FILE *trace; /* NULL: none */
    /* What is asked of each change; may be NULL. */
    void (*changed)(struct membership *group, struct node *node, uint32_t rank,
                    enum swim_state state);
    void *judge;
};

void membership_open(struct membership *group, uint32_t size, uint64_t seed, FILE *trace);
void membership_close(struct membership *group);
void membership_run(struct membership *group, uint64_t until_ns);

void membership_kill(struct membership *group, uint32_t rank);
void membership_restart(struct membership *group, uint32_t rank);
void membership_stop(struct membership *group, uint32_t rank, uint64_t time_ns);
void membership_leave(struct membership *group, uint32_t rank);
/* Whoever is on another side is not reached. Nobody is on another side: it is over. */
void membership_part(struct membership *group, uint32_t percent);
void membership_heal(struct membership *group);
/* It tells some others that members at random are whatever it likes. */
void membership_lie(struct membership *group, uint32_t rank);

#endif
