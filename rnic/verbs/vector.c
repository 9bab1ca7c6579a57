#include "rnic/verbs/vector.h"

#include <stdlib.h>
#include <string.h>

static bool says_all(const struct path *path, const struct ibv_global_route *route)
{
    return memcmp(route->dgid.raw, path->remote.bytes, sizeof path->remote.bytes) == 0 &&
           route->flow_label == path->flow_label && route->hop_limit == path->hop_limit &&
           route->traffic_class == path->traffic_class;
}

bool vector_copy(const struct ibv_ah_attr *set, const struct path *path, struct vector *ret_vector)
{
    *ret_vector = (struct vector){
        .dlid = set->dlid,
        .sgid_index = set->grh.sgid_index,
        .sl = set->sl,
        .src_path_bits = set->src_path_bits,
        .static_rate = set->static_rate,
        .is_global = set->is_global,
        .port_num = set->port_num,
    };
    if (says_all(path, &set->grh)) {
        return true;
    }
    ret_vector->whole = malloc(sizeof *set);
    if (ret_vector->whole == NULL) {
        return false;
    }
    *ret_vector->whole = *set;
    return true;
}

struct ibv_ah_attr vector_of(const struct vector *vector, const struct path *path)
{
    if (vector->whole != NULL) {
        return *vector->whole;
    }
    struct ibv_ah_attr set = {
        .grh = {.flow_label = path->flow_label,
                .sgid_index = vector->sgid_index,
                .hop_limit = path->hop_limit,
                .traffic_class = path->traffic_class},
        .dlid = vector->dlid,
        .sl = vector->sl,
        .src_path_bits = vector->src_path_bits,
        .static_rate = vector->static_rate,
        .is_global = vector->is_global,
        .port_num = vector->port_num,
    };
    memcpy(set.grh.dgid.raw, path->remote.bytes, sizeof path->remote.bytes);
    return set;
}

void vector_end(struct vector *vector)
{
    free(vector->whole);
    vector->whole = NULL;
}
