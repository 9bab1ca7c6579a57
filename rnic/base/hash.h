/* Finds objects by a hash of their name: chains of nodes that are embedded in their owners.
 *
 * Where a map takes and touches room for as many as there may ever be, this grows in place by one
 * chain for each object, which costs those of one chain [Litwin's linear hashing]. The room for all
 * chains is taken at init; what was never needed was never touched. */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stdint.h>

#include "rnic/base/allocator.h"
#include "rnic/base/status.h"

/* Embedded. */
struct hash_node {
    struct hash_node *next;
    uint32_t hash; /* its lower bits count most */
};

struct hash {
    struct allocator *allocator;
    struct hash_node **chains;
    uint32_t capacity; /* chains */
    uint32_t used;     /* of them */
    uint32_t mask;     /* of the hash bits that choose a chain, once all of them are used */
    uint32_t count;    /* nodes */
};

/* For `capacity` nodes or so: more make chains longer. NO_MEMORY, or INVALID for 0 or above 2^30.
 */
enum status hash_init(struct hash *hash, struct allocator *allocator, uint32_t capacity) MUST_USE;
/* A zeroed one is allowed. */
void hash_fini(struct hash *hash);

/* Equal hashes may be there already. */
void hash_insert(struct hash *hash, struct hash_node *node);
/* `node` is in. */
void hash_remove(struct hash *hash, struct hash_node *node);

/* A node of this hash, and the next one behind it; NULL: there is none (any more). */
struct hash_node *hash_find(const struct hash *hash, uint32_t value);
struct hash_node *hash_find_next(const struct hash_node *node);

#endif
