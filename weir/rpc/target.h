/* A server that is called: its connection, the calls that wait for it, and those in flight.
 *
 * A slot is a place in flight, by whose index the server knows the call. It is taken until the
 * server has answered, also if the call has ended before; so an answer for which no slot is taken
 * is the server's lie. */
#ifndef WEIR_RPC_TARGET_H
#define WEIR_RPC_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/rpc.h>

#include "weir/channel/timer.h"
#include "weir/rpc/procedure.h"
#include "weir/rpc/tally.h"
#include "weir/rpc/window.h"

struct slot {
    struct weir_target *target;
    struct weir_procedure *procedure;
    struct weir_call *call; /* NULL: it has ended */
    bool is_taken;
    uint32_t next_free;
};

struct line {
    struct weir_call *first, *last;
    unsigned count;
};

struct weir_target {
    struct weir_target *next, *previous;
    struct weir_rpc *rpc;
    char *address;
    struct weir_connection *connection; /* NULL: none */
    bool is_welcome;                    /* its server said so: calls may be sent */
    bool is_proven;                     /* this connection has brought an answer */
    bool is_destroyed;
    unsigned holds;             /* of who is in the middle of it, and calls back */
    struct timer again;         /* set: connecting waits */
    struct timer rest;          /* set: sending waits, for the server has no room */
    unsigned again_ms, rest_ms; /* how long they were set for last; 0: not of late */
    struct weir_error trouble;  /* why it was not connected last */
    struct line waiting;        /* ordered by sequence */
    struct line ended;
    bool *known; /* by a procedure's index: the server serves it; NULL: nothing is known */
    size_t known_count;
    struct slot *slots; /* in_flight_max of them */
    uint32_t first_free;
    unsigned in_flight;
    struct window window;
    uint64_t next_sequence, next_sent;
    struct tally tally;
    uint64_t connections; /* made */
};

void line_remove(struct line *line, struct weir_call *call);
/* Where its sequence has it. */
void line_insert(struct line *line, struct weir_call *call);

/* Among those that wait. */
void target_line_up(struct weir_target *target, struct weir_call *call);
void target_leave_line(struct weir_target *target, struct weir_call *call);
/* Sends what may be sent, and connects if something waits. */
void target_advance(struct weir_target *target);
void target_free_slot(struct weir_target *target, uint32_t index);
static inline bool target_knows(const struct weir_target *target,
                                const struct weir_procedure *procedure)
{
    return procedure->index < target->known_count && target->known[procedure->index];
}
/* The server has no room for call number `sent`. */
void target_rest(struct weir_target *target, uint64_t sent);
/* Tells the server that nobody waits for what is in the slot. */
void target_send_cancel(struct weir_target *target, uint32_t slot);
/* Before it calls back, and after. It may be destroyed then: release may free it. */
void target_hold(struct weir_target *target);
void target_release(struct weir_target *target);
/* Ends all of an rpc's that is ending. They stay, for who is told of anything may name them. */
void targets_end(struct weir_rpc *rpc);
void targets_fini(struct weir_rpc *rpc);

#endif
