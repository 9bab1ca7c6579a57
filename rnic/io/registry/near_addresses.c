#include "rnic/io/registry/near_addresses.h"

#include <string.h>

static bool may_be_near(const struct near_addresses *near, const struct gid *gid)
{
    bool is_bound_to = false;
    for (uint32_t i = 0; i < NEAR_BIND_MAX; i++) {
        is_bound_to |= gid_equal(&near->bind[i], gid);
    }
    return is_bound_to || !near->is_bound;
}

/* Asking the kernel takes a while: once, and after changes, however many peers there are. Where it
 * cannot answer now, what was known counts until it can. */
static void read_again(struct near_addresses *near)
{
    struct address_table table;
    atomic_store(&near->are_old, false);
    near->reads++;
    if (address_read(&table) == STATUS_NO_MEMORY) {
        near_addresses_changed(near);
        return;
    }
    near->count = 0;
    for (uint32_t i = 0; i < table.count; i++) {
        if (may_be_near(near, &table.entries[i].gid)) {
            near->gids[near->count++] = table.entries[i].gid;
        }
    }
}

void near_addresses_init(struct near_addresses *near, const struct gid *bind)
{
    near->is_bound = bind != NULL;
    if (bind != NULL) {
        memcpy(near->bind, bind, sizeof near->bind);
    }
    read_again(near);
}

bool near_addresses_have(struct near_addresses *near, const struct gid *gid)
{
    if (near_addresses_are_old(near)) {
        read_again(near);
    }
    if (near->count > 0 && gid_equal(&near->gids[0], gid)) {
        return true;
    }
    for (uint32_t i = 1; i < near->count; i++) {
        if (gid_equal(&near->gids[i], gid)) {
            near->gids[i] = near->gids[0];
            near->gids[0] = *gid;
            return true;
        }
    }
    return false;
}
