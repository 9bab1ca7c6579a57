/* A queue pair's address vector, as it was set. Most of it is in the core's path as a rule, so only
 * the rest is kept. */
#ifndef WEIR_VERBS_VECTOR_H
#define WEIR_VERBS_VECTOR_H

#include <infiniband/verbs.h>

#include "rnic/wire/path.h"

struct vector {
    uint16_t dlid;
    uint8_t sgid_index, sl, src_path_bits, static_rate, is_global, port_num;
    struct ibv_ah_attr *whole; /* where the path does not say all; else NULL */
};

/* `path` is what was made of it. False: no memory. */
bool vector_copy(const struct ibv_ah_attr *set, const struct path *path, struct vector *ret_vector);
struct ibv_ah_attr vector_of(const struct vector *vector, const struct path *path);
void vector_end(struct vector *vector);

#endif
