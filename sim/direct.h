/* WRITEs and READs on the memory of another host's device, see rnic/transport/direct.h: as between
 * processes of one host, where the link between the two says so. One that the target grants may
 * still fail, in the middle of what it moves. */
#ifndef WEIR_SIM_DIRECT_H
#define WEIR_SIM_DIRECT_H

#include "rnic/transport/direct.h"

#define DIRECT_ENTRIES 64u /* of each kind; a host may have more keys */

struct host;

struct direct_end {
    struct direct_link link; /* first */
    struct host *host;
    struct direct_table table;
    struct direct_entry qps[DIRECT_ENTRIES], keys[DIRECT_ENTRIES];
    uint64_t moved, broken; /* parts of messages; those that stopped in the middle */
};

/* A host begins a life: it shows nothing. */
void direct_end_start(struct direct_end *end, struct host *host);

#endif
