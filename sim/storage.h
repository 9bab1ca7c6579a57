/* A host's memory for the core: an allocator that counts, guards both ends of every block, poisons
 * what is released and keeps it to the end of the run, to see that nobody writes there any more.
 * When the host dies everything it had vanishes at once, as a process's memory does. */
#ifndef WEIR_SIM_STORAGE_H
#define WEIR_SIM_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "rnic/base/allocator.h"
#include "sim/simulator.h"

struct storage_block;

struct storage {
    struct allocator allocator; /* first: the core's view of this storage */
    struct simulator *simulator;
    struct storage_block *live;
    struct storage_block *released;
    uint64_t live_count;
    uint64_t live_bytes;
    bool packets_flow;     /* the core may not allocate now: that is for create and destroy */
    uint64_t refuse_after; /* allocations until one is refused; 0: never */
};

void storage_init(struct storage *storage, struct simulator *simulator);
/* Looks at every guard and all poison: violates "storage" if one was touched. */
void storage_check(struct storage *storage);
/* Everything vanishes without a look. */
void storage_forget(struct storage *storage);

#endif
