#include "rnic/rdmacm/rsocket_peers.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "rnic/base/container.h"

#define BUCKETS PEERS_MAX

int peer_table_init(struct peer_table *table)
{
    table->buckets = calloc(BUCKETS, sizeof *table->buckets);
    if (table->buckets == NULL) {
        errno = ENOMEM;
        return -1;
    }
    for (uint32_t i = 0; i < BUCKETS; i++) {
        list_init(&table->buckets[i]);
    }
    list_init(&table->order);
    if (getrandom(&table->secret, sizeof table->secret, GRND_NONBLOCK) < 0) {
        table->secret = (uintptr_t)table->buckets;
    }
    return 0;
}

void peer_table_fini(struct peer_table *table)
{
    free(table->buckets);
    *table = (struct peer_table){0};
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static struct list *bucket_of(const struct peer_table *table, const struct sockaddr *address)
{
    uint64_t hash = mix(table->secret, address->sa_family);
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        hash = mix(hash, (uint64_t)v4->sin_addr.s_addr << 16 | v4->sin_port);
    } else {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        uint64_t halves[2];
        memcpy(halves, &v6->sin6_addr, sizeof halves);
        hash = mix(mix(mix(hash, halves[0]) * (table->secret | 1), halves[1]), v6->sin6_port);
    }
    hash = mix(hash * (table->secret | 1), hash >> 32);
    return &table->buckets[(hash >> 32) % BUCKETS];
}

static bool same(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *left = (const struct sockaddr_in *)a;
        const struct sockaddr_in *right = (const struct sockaddr_in *)b;
        return left->sin_port == right->sin_port && left->sin_addr.s_addr == right->sin_addr.s_addr;
    }
    const struct sockaddr_in6 *left = (const struct sockaddr_in6 *)a;
    const struct sockaddr_in6 *right = (const struct sockaddr_in6 *)b;
    return left->sin6_port == right->sin6_port &&
           IN6_ARE_ADDR_EQUAL(&left->sin6_addr, &right->sin6_addr);
}

struct peer_entry *peer_table_find(struct peer_table *table, const struct sockaddr *address)
{
    LIST_FOR_EACH(node, bucket_of(table, address))
    {
        struct peer_entry *entry = CONTAINER_OF(node, struct peer_entry, in_bucket);
        if (same((const struct sockaddr *)&entry->address, address)) {
            list_remove(&entry->in_order);
            list_append(&table->order, &entry->in_order);
            return entry;
        }
    }
    return NULL;
}

static struct peer_entry *take_out(struct peer_table *table, struct list_node *in_order)
{
    struct peer_entry *entry = CONTAINER_OF(in_order, struct peer_entry, in_order);
    list_remove(&entry->in_order);
    list_remove(&entry->in_bucket);
    table->count--;
    return entry;
}

struct peer_entry *peer_table_add(struct peer_table *table, struct peer_entry *entry,
                                  const struct peer_entry *kept)
{
    struct peer_entry *gone = NULL;
    if (table->count == PEERS_MAX) {
        gone = take_out(table, list_first(&table->order));
        if (gone == kept) { /* back, as if it were used now; the next one goes */
            struct peer_entry *back = gone;
            gone = take_out(table, list_first(&table->order));
            (void)peer_table_add(table, back, NULL);
        }
    }
    list_append(bucket_of(table, (const struct sockaddr *)&entry->address), &entry->in_bucket);
    list_append(&table->order, &entry->in_order);
    table->count++;
    return gone;
}

struct peer_entry *peer_table_pop(struct peer_table *table)
{
    return table->count == 0 ? NULL : take_out(table, list_first(&table->order));
}
