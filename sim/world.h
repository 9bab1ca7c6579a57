/* Everything of one run: hosts, network, queue pairs, their programs, the model.
 *
 * A run: a profile is drawn from the seed; hosts start; queue pairs are made and their programs
 * planned (plan.h) and played (workload.h) while the checker looks on; when all is quiet the
 * checker judges memory and what is outstanding; everything is taken down; nothing may be left. */
#ifndef WEIR_SIM_WORLD_H
#define WEIR_SIM_WORLD_H

#include "sim/model.h"
#include "sim/monitor.h"
#include "sim/seeds.h"

#define PAIR_MAX     10u
#define SINGLE_MAX   4u
#define QUEUE_MAX    32u
#define SHARED_MAX   4u
#define PENDING_MAX  256u
#define TAKEBACK_MAX 8u
#define READS_IN_MAX 8u

struct world;
struct run_options;

/* A completion queue with the application's way to look at it. */
struct application_queue {
    struct completion_queue_notifier notifier; /* first */
    struct world *world;
    struct host *host;
    uint32_t life;
    struct completion_queue *queue;
    uint32_t capacity;
    bool by_event; /* polls only when notified */
    bool solicited_only;
    bool armed, notified;
    bool poll_due;
    bool may_overrun; /* smaller than what may be outstanding */
    bool overrun;
    /* Taken out of the core, not yet looked at. */
    struct completion pending[PENDING_MAX];
    bool pending_quiet[PENDING_MAX]; /* came while the queue was armed and nobody was notified */
    uint32_t pending_head, pending_count;
};

struct profile {
    const char *name;
    uint32_t pairs_max;
    uint32_t ops_max;
    bool strict;    /* the network delivers everything: only illegal work may fail */
    bool rereads;   /* ... but some of it is to be asked for again: references are unreadable */
    bool tiny;      /* queues of one or two, full sinks */
    bool partition; /* hosts are cut off for a time, or for ever */
    bool death;     /* a host dies and may come back */
    bool impatient; /* timeouts shorter than the round trip: everything is repeated */
    bool selective; /* most hosts speak selective repeat, many messages are long */
    bool by_cm;     /* all reliable pairs are connected by the connection manager */
    bool talks;     /* most of what they do is to post one short SEND, and to kick */
    uint32_t illegal_percent, late_percent, disturb_percent;
    struct link_config link;
};

/* What the runs have exercised; summed over seeds to see that nothing is left out. */
struct coverage {
    uint64_t packets, events;
    uint64_t done[WORK_KIND_COUNT];
    uint64_t failed[COMPLETION_STATUS_COUNT];
    uint64_t received, datagrams, unreliable;
    uint64_t lost, corrupted, duplicated, delayed, refusals, deaths, retransmitted, duplicates;
    uint64_t early, reports, shots, reused, recovered;
    uint64_t rnr_naks, connects, disconnects, overruns;
    uint64_t referred, unread, shorts, posted, held;
    uint64_t moved, batches, broken, stale, taken_back; /* directly */
};

enum takeback_end {
    TAKEBACK_FAILS,
    TAKEBACK_DESTROYS,
    TAKEBACK_RESETS,
};

/* See takeback.h. */
struct takeback {
    struct host *host; /* NULL: it is over */
    uint32_t life;
    struct territory *territory; /* NULL: it is a queue pair */
    struct end *end;
    enum takeback_end kind; /* what becomes of it */
    bool sees_stopped;      /* does not wait for who stands outside of the call */
    struct direct_wait wait;
};

struct world {
    struct simulator simulator;
    struct network network;
    struct monitor monitor;
    struct profile profile;
    struct dice plan; /* what is done */
    struct dice play; /* when */
    struct dice stranger;
    struct dice reuse;
    bool ipv6;

    struct host hosts[HOST_MAX];
    uint32_t host_count;
    struct host_application application;
    struct space spaces[2 * HOST_MAX];
    struct space *space_of[HOST_MAX]; /* of the host's present life */

    struct pair *pairs[PAIR_MAX];
    uint32_t pair_count;
    struct end *singles[SINGLE_MAX]; /* UD */
    uint32_t single_count;
    struct end *ends[END_MAX];
    uint32_t end_count;
    struct application_queue *queues[QUEUE_MAX];
    uint32_t queue_count;
    struct intakes *shared[SHARED_MAX];
    uint32_t shared_count;
    struct cell cells[CELL_MAX];
    uint32_t cell_count;
    struct contact *contacts[PAIR_MAX]; /* pairs that meet through cm */
    uint32_t contact_count;
    struct takeback takebacks[TAKEBACK_MAX];
    uint32_t takeback_count;
    struct inquiry *inquiries[PAIR_MAX];
    uint32_t inquiry_count;

    struct scratch scratch;
    struct coverage *coverage;
    const struct run_options *options;
};

/* For looking at one thing: overrides what the seed would choose. */
struct run_options {
    const char *profile; /* by name; NULL: by the seed */
    /* With loss > 0, per million: the one link that loses, all others are sound. */
    unsigned lossy_from, lossy_to;
    uint32_t loss;
    bool selective; /* every host speaks it, whatever the profile */
    FILE *trace;    /* NULL: none */
};
/* False: no such profile. */
bool world_has_profile(const char *name);
/* One run; adds to *coverage. */
void world_run(uint64_t seed, const struct run_options *options, struct coverage *coverage,
               struct run_result *ret_result);

#endif
