/* The servers that a group is connected to: of many members only few at a time. Who was not called
 * for the longest time goes when there are too many; who is being called never does. */
#ifndef WEIR_GROUP_LINKS_H
#define WEIR_GROUP_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include <weir/rpc.h>

struct link {
    struct link *newer, *older; /* in the order used */
    struct link *chain;         /* the next in its bucket */
    struct links *links;
    struct weir_target *target;
    uint32_t rank;
    unsigned under_way; /* calls */
};

#define LINK_BUCKETS 256u

struct links {
    struct weir_rpc *rpc;
    unsigned most, count;
    struct link *newest, *oldest;
    struct link *buckets[LINK_BUCKETS]; /* by rank */
};

/* Calls under way end with CANCELED. */
void links_fini(struct links *links);
/* For one call to the member at that address. NULL: no memory. */
struct link *links_take(struct links *links, uint32_t rank, const char *address);
/* That call is over. */
void links_give(struct link *link);

#endif
