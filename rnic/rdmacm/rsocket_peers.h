/* The peers of a datagram socket by their address, so many at most: strangers become peers by one
 * packet, whose source may be a lie. Who was used least lately gives way; it is met anew over UDP.
 *
 * Finding and adding take constant time, whoever chooses the addresses: the hash has a secret. Not
 * here: locks, and what a peer is (rsocket_datagram_peer.c). */
#ifndef WEIR_RDMACM_RSOCKET_PEERS_H
#define WEIR_RDMACM_RSOCKET_PEERS_H

#include <stdint.h>
#include <sys/socket.h>

#include "rnic/base/list.h"

#define PEERS_MAX 4096u

struct peer_entry { /* zeroed, but for the address, before it is added */
    struct list_node in_bucket, in_order;
    struct sockaddr_storage address;
};

struct peer_table {
    struct list *buckets;
    struct list order; /* least lately used first */
    uint32_t count;
    uint64_t secret;
};

/* 0, or -1 and errno. A table of zeroes has no peers and can be finished. */
int peer_table_init(struct peer_table *table);
void peer_table_fini(struct peer_table *table); /* its entries are the caller's */

/* NULL: unknown. Who is found counts as used. */
struct peer_entry *peer_table_find(struct peer_table *table, const struct sockaddr *address);
/* Returns who had to give way, now out of the table; NULL: nobody. Never `kept`, which may be NULL.
 */
struct peer_entry *peer_table_add(struct peer_table *table, struct peer_entry *entry,
                                  const struct peer_entry *kept);
/* Takes anyone out; NULL: there is nobody. */
struct peer_entry *peer_table_pop(struct peer_table *table);

#endif
