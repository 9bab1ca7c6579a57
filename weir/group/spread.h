/* A call on its way down from here, for one that asked, and its answer's way up.
 *
 * The set below is cut into parts. Each goes to its first rank, with the rest of the part below
 * that one: a child. Of a child that fails only that rank has failed; the rest is cut anew and goes
 * from here. So a dead inner node costs its own place in the tree and nobody else's.
 *
 * A child has three quarters of the time that is left, if others are below it, so that there is
 * time for them after it has let us down. */
#ifndef WEIR_GROUP_SPREAD_H
#define WEIR_GROUP_SPREAD_H

#include "weir/group/calls.h"
#include "weir/group/failures.h"

struct child {
    struct child *next;
    struct spread *spread;
    uint32_t root;
    struct ranks below; /* it */
    bool is_sent;
    void *sending; /* the port's */
};

struct spread {
    struct timer deadline;
    struct spread *next; /* of the run's */
    struct weir_group_request *run;
    void *request;        /* who asked; NULL: we */
    struct ranks waiting; /* of ours that is not begun yet */
    bool is_begun;
    bool has_own; /* this member, too, is asked for */
    uint32_t asked;
    uint64_t due_ns;
    struct child *children;
    unsigned in_flight;
    struct failures failures;
    bool is_late;
    bool is_short_of_memory; /* so some failures are not told */
    bool has_bytes;
    uint8_t *combined; /* reply_length_max of them; NULL: nobody has replied with any */
    size_t combined_length;
    weir_group_replied *replied; /* ours */
    void *argument;
};

/* Takes over `below` if it is not NULL. NULL: no memory. A run that has one is kept by it. */
struct spread *spread_create(struct weir_group_request *run, void *request, struct ranks *below,
                             bool has_own, uint64_t due_ns);
/* Sends it on. It may have ended when this returns. */
void spread_begin(struct spread *spread);
/* The handler of the run is done: those that waited for nothing else are answered. */
void spreads_own_done(struct weir_group_request *run);
/* Ends it as it stands: who has not answered has failed with `status`. */
void spread_end(struct spread *spread, enum weir_status status);

#endif
