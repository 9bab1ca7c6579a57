/* Procedures: names, their numbers on the wire, who handles them, what was done with them. */
#ifndef WEIR_RPC_PROCEDURE_H
#define WEIR_RPC_PROCEDURE_H

#include <stddef.h>
#include <stdint.h>

#include <weir/rpc.h>

#include "weir/rpc/tally.h"

struct weir_procedure {
    char name[WEIR_PROCEDURE_NAME_MAX + 1];
    uint64_t number;
    size_t index;                    /* in the order of registration */
    weir_procedure_handler *handler; /* NULL: not served here */
    void *user;
    struct tally tally;
    struct weir_procedure_statistics statistics; /* but its calls */
};

/* By the low half of their numbers, which no two have: an open hash table, at most half full. */
struct procedures {
    struct weir_procedure **table;
    size_t capacity, count; /* capacity: a power of two, or 0 */
};

/* NULL: there is none. */
struct weir_procedure *procedures_find(const struct procedures *procedures, uint32_t low);
void procedures_fini(struct procedures *procedures);

#endif
