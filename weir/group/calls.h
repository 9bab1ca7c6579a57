/* Calls over a tree, as one member has them: what it runs, and whom it hands them on to.
 *
 * It reads no clock and sends nothing: struct calls_port does, so that the same code runs in a
 * simulated world. Times in, answers in, deaths in; the port's calls out.
 *
 *     a call  ----  run     its handler here, once, and what came of it:         run.h
 *      |----------  spread  one for each that asked for it and a set of ranks
 *      |             `--- children  parts of that set, each sent to its first:   spread.h
 *      `----------  seen    that it never runs again:                            seen.h
 *
 * Who asks, asks for this member and a set of ranks below it, and is answered for exactly these. So
 * whatever is asked twice, because a tree was repaired, each rank counts once on the way up. */
#ifndef WEIR_GROUP_CALLS_H
#define WEIR_GROUP_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/group.h>

#include "weir/channel/timer.h"
#include "weir/group/ranks.h"
#include "weir/group/seen.h"

struct child;
struct spread;

struct weir_group_procedure {
    struct weir_group_procedure *next;
    char name[WEIR_PROCEDURE_NAME_MAX + 1];
    uint64_t number;
    weir_group_handler *handler; /* NULL: not served here */
    weir_group_combine *combine;
    void *user;
};

struct calls_port {
    uint64_t (*now_ns)(void *user);
    /* OK: it may be called. Or why it is not. */
    enum weir_status (*standing)(void *user, uint32_t rank);
    /* To child->root. calls_answered or calls_failed follows, once, later, unless it is canceled.
     * False: no memory. */
    bool (*send)(void *user, struct child *child, const struct weir_piece *pieces, unsigned count,
                 unsigned timeout_ms);
    void (*cancel)(void *user, struct child *child);
    /* Answers who asked: calls_take's `request`. */
    void (*reply)(void *user, void *request, const struct weir_piece *pieces, unsigned count);
    void (*refuse)(void *user, void *request, enum weir_status status);
};

struct calls {
    const struct calls_port *port;
    void *user;
    uint32_t rank; /* ours, or WEIR_RANK_NONE */
    unsigned radix;
    size_t reply_length_max, held_length_max;
    struct weir_group_procedure *procedures;
    struct weir_group_request *first, *last; /* runs, in the order begun */
    unsigned count;
    size_t held_length;
    unsigned own;             /* calls that are ours */
    uint64_t id, next_number; /* of ours */
    struct timers deadlines;
    struct seen seen;
    bool is_ending;
};

/* Once its port and options are set. `id`: random, ours alone. */
void calls_init(struct calls *calls, uint64_t id);
/* All that is under way ends with CANCELED. */
void calls_fini(struct calls *calls);
/* NULL: none of this number. */
struct weir_group_procedure *calls_find_procedure(const struct calls *calls, uint64_t number);

/* Ours: weir_group_call, without the checks of its ranks. `ranks` are taken over if OK. */
enum weir_status calls_begin(struct calls *calls, struct weir_group_procedure *procedure,
                             const struct weir_piece *pieces, unsigned count,
                             const struct weir_group_call_options *options, struct ranks *ranks,
                             weir_group_replied *replied, void *argument);
/* A request of a peer's, to be answered within timeout_ms. */
void calls_take(struct calls *calls, void *request, const uint8_t *bytes, size_t length,
                unsigned timeout_ms);
/* Nobody waits for its answer any more. It is refused at once, to be rid of it. */
void calls_gone(struct calls *calls, const void *request);
/* What the child's first rank has replied, or that it did not. */
void calls_answered(struct child *child, const uint8_t *bytes, size_t length);
void calls_failed(struct child *child, enum weir_status status, uint32_t code);
/* That rank is dead. */
void calls_died(struct calls *calls, uint32_t rank);

uint64_t calls_next_ns(const struct calls *calls);
void calls_advance(struct calls *calls);

#endif
