/* One call, from weir_rpc_call to `replied`.
 *
 *     WAITING -> SENT --------------------> told: answered, timed out, lost
 *        ^  |     | `-> LEAVING ----------> told: ended early, but its bulk may be in use
 *        |  |     |
 *        `--|-----'  no room there, or the connection was lost
 *           `-> ENDED --------------------> told: ended outside of weir_poll
 *
 * Invariants: WAITING and ENDED calls are in a line of their target's, SENT and LEAVING ones have a
 * slot there; memory is shown only while it has a slot; every call but a told one has a deadline.
 */
#ifndef WEIR_RPC_CALL_H
#define WEIR_RPC_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/rpc.h>

#include "weir/channel/timer.h"
#include "weir/rpc/rpc_message.h"
#include "weir/rpc/shown.h"

#define CALL_WHY_MAX 160

enum call_state {
    CALL_WAITING,
    CALL_SENT,
    CALL_LEAVING,
    CALL_ENDED,
};

struct weir_call {
    struct timer deadline;             /* of its time; LEAVING: of the server's word */
    struct weir_call *next, *previous; /* in the target's line */
    struct weir_target *target;
    struct weir_procedure *procedure;
    enum call_state state;
    bool is_idempotent;
    uint32_t slot;
    uint64_t sequence; /* in the order made */
    uint64_t sent_number;
    uint64_t begun_ns, due_ns;
    struct chunk *bytes;
    size_t length;
    weir_replied_callback *replied;
    void *argument;
    enum weir_status status; /* how it has ended, if it is not told yet */
    struct shown shown;      /* what is from here on is not cleared */
    char why[CALL_WHY_MAX];  /* set with `status` */
};

/* Sends it, which has left the line and taken a slot. False: it is back there, for the connection
 * takes nothing more. */
bool call_send(struct weir_call *call, struct weir_connection *connection);
/* The answer to it, SENT or LEAVING, whose slot is free again. CANCELED is none to a SENT one. */
void call_answer(struct weir_call *call, const struct rpc_message *message);
/* It is in flight, and has the right to be so twice. */
bool call_is_sent_again(const struct weir_call *call);
/* Its connection has ended, and so have its slot and all access to its memory: it is told, or waits
 * again. */
void call_lose(struct weir_call *call, const struct weir_error *reason);
/* Its target is being destroyed: it is told, in whatever state it is. */
void call_drop(struct weir_call *call);

#endif
