/* The GIDs of a port by index. An index that a program has seen keeps its meaning: addresses that
 * appear later take free places, those that vanish leave an empty one.
 *
 * On a link layer of InfiniBand, as programs are told (port.h), index 0 is one more name of the
 * first address, in InfiniBand's form; the addresses follow from index 1. */
#ifndef WEIR_VERBS_GID_TABLE_H
#define WEIR_VERBS_GID_TABLE_H

#include <stdbool.h>

#include "rnic/io/udp/address.h"

struct gid_table;

/* `places`: those of address_keep that the port has, separated by '+'; NULL for all of the host.
 * Outlives the table. NULL: no memory. */
struct gid_table *gid_table_create(const char *places, bool has_infiniband_name);

/* Length as told to programs: all that is there and some empty places. */
uint32_t gid_table_length(struct gid_table *table);
/* Reads the host's addresses again. True: there was a change. */
bool gid_table_refresh(struct gid_table *table);
/* Another number after each reading that changed something. */
uint32_t gid_table_generation(struct gid_table *table);
/* No address at all: the port is down. */
bool gid_table_is_empty(struct gid_table *table);
/* The address behind an index. False beyond the table. An empty place is a zero GID. */
bool gid_table_get(struct gid_table *table, uint32_t index, struct address *ret_address);
/* Looks again at the host where it is not known. False: not ours. */
bool gid_table_find(struct gid_table *table, const struct gid *gid, uint32_t *ret_index);
enum path_mtu gid_table_mtu(struct gid_table *table);

#endif
