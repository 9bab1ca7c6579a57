/* A call as this member knows it, and what came of its handler: it is what handlers have as struct
 * weir_group_request.
 *
 *     NOT_HERE -> RUNNING -> DONE
 *
 * It stays until the whole call's time is over, for another may ask for it after who asked first is
 * dead, and is to hear the same; then until it is answered and nothing asks for it. */
#ifndef WEIR_GROUP_RUN_H
#define WEIR_GROUP_RUN_H

#include "weir/group/call_message.h"
#include "weir/group/calls.h"

enum run_state {
    RUN_NOT_HERE, /* or not yet */
    RUN_RUNNING,
    RUN_DONE,
};

struct weir_group_request {
    struct timer expiry; /* not set: it is over */
    struct weir_group_request *next, *previous;
    struct calls *calls;
    uint64_t caller, number;
    uint32_t caller_rank;
    unsigned radix;
    uint32_t total_ms;
    struct weir_group_procedure *procedure;
    enum run_state state;
    enum weir_status status; /* DONE */
    uint32_t code;
    uint8_t *reply; /* NULL: of no bytes */
    size_t reply_length;
    uint8_t *bytes;
    size_t length;
    struct spread *spreads;
    unsigned holds; /* of who calls back, and goes on with it */
};

/* NULL: no memory, or as much is held as may be. `request`: all but the ranks and the bytes. */
struct weir_group_request *run_create(struct calls *calls, const struct call_request *request,
                                      const struct weir_piece *pieces, unsigned count,
                                      struct weir_group_procedure *procedure);
struct weir_group_request *run_find(const struct calls *calls, uint64_t caller, uint64_t number);
/* Runs the handler, unless that was done before. */
void run_start(struct weir_group_request *run);
void run_hold(struct weir_group_request *run);
/* Frees it if it is over. */
void run_release(struct weir_group_request *run);
void run_free(struct weir_group_request *run);

#endif
