/* Carries the messages of calls: they are calls of rpc's, to its procedure "NAME/call". */
#ifndef WEIR_GROUP_CARRIER_H
#define WEIR_GROUP_CARRIER_H

#include "weir/group/group.h"

extern const struct calls_port carrier_port; /* its user is the group */
/* Serves the procedure. */
enum weir_status carrier_init(struct weir_group *group, struct weir_error *ret_error);
void carrier_fini(struct weir_group *group);

#endif
