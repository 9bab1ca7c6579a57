/* The addresses of this host at which processes of our registry are. */
#ifndef WEIR_IO_NEAR_ADDRESSES_H
#define WEIR_IO_NEAR_ADDRESSES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rnic/io/udp/address.h"

#define NEAR_BIND_MAX 2u /* one of each family */

struct near_addresses {
    struct gid gids[ADDRESS_MAX]; /* the one used last in front */
    uint32_t count;
    struct gid bind[NEAR_BIND_MAX]; /* whoever is at another address is in another registry */
    bool is_bound;
    _Atomic bool are_old;
    uint64_t reads; /* how often the kernel was asked */
};

/* `bind`: those of WEIR_BIND, NEAR_BIND_MAX; NULL: all of the host. */
void near_addresses_init(struct near_addresses *near, const struct gid *bind);
bool near_addresses_have(struct near_addresses *near, const struct gid *gid);
/* They may have changed: any thread. */
static inline void near_addresses_changed(struct near_addresses *near)
{
    atomic_store(&near->are_old, true);
}
static inline bool near_addresses_are_old(const struct near_addresses *near)
{
    return atomic_load_explicit(&near->are_old, memory_order_acquire);
}

#endif
