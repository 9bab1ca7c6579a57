/* The GIDs of the port by index. An index that a program has seen keeps its meaning: addresses that
 * appear later take free places, those that vanish leave an empty one. */
#ifndef WEIR_VERBS_GID_TABLE_H
#define WEIR_VERBS_GID_TABLE_H

#include <stdbool.h>

#include "rnic/io/address.h"

/* Length as told to programs: all that is there and some empty places. */
uint32_t gid_table_length(void);
/* Reads the host's addresses again. */
void gid_table_refresh(void);
/* False beyond the table. An empty place is a zero GID. */
bool gid_table_get(uint32_t index, struct address *ret_address);
/* Looks again at the host where it is not known. False: not ours. */
bool gid_table_find(const struct gid *gid, uint32_t *ret_index);
enum path_mtu gid_table_mtu(void);

#endif
