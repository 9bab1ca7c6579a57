/* Carries the messages of who lives: they are calls of rpc's, to its procedure "NAME/swim". */
#ifndef WEIR_GROUP_HEARTBEAT_H
#define WEIR_GROUP_HEARTBEAT_H

#include "weir/group/group.h"

/* Begins to probe, and to answer. */
enum weir_status heartbeat_init(struct weir_group *group, uint64_t seed,
                                struct weir_error *ret_error);
void heartbeat_fini(struct weir_group *group);
uint64_t heartbeat_next_ns(const struct weir_group *group);
void heartbeat_advance(struct weir_group *group);

#endif
