#include "rnic/verbs/gid_table.h"

#include <pthread.h>
#include <stdlib.h>

#define SHORTEST 16u /* places at least; programs loop over them all */

struct gid_table {
    struct address_table addresses;
    const char *places;
    uint32_t generation;
    uint32_t first; /* index of the first address: 1 where 0 is another name of it */
};

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; /* of all tables */

static void after_fork(void)
{
    pthread_mutex_init(&table_lock, NULL);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

struct gid_table *gid_table_create(const char *places, bool has_infiniband_name)
{
    struct gid_table *table = calloc(1, sizeof *table);
    if (table != NULL) {
        table->places = places;
        table->first = has_infiniband_name ? 1 : 0;
    }
    return table;
}

/* With table_lock held. ADDRESS_MAX: nowhere. */
static uint32_t place_of(const struct address_table *addresses, const struct gid *gid)
{
    for (uint32_t i = 0; i < addresses->count; i++) {
        if (gid_equal(&addresses->entries[i].gid, gid)) {
            return i;
        }
    }
    return ADDRESS_MAX;
}

/* Those that are gone leave empty places. */
static bool remove_gone(struct address_table *addresses, const struct address_table *now)
{
    bool changed = false;
    for (uint32_t i = 0; i < addresses->count; i++) {
        const struct gid *gid = &addresses->entries[i].gid;
        if (!gid_is_zero(gid) && address_find(now, gid) == NULL) {
            addresses->entries[i] = (struct address){.loopback = false};
            changed = true;
        }
    }
    return changed;
}

static bool refresh_locked(struct gid_table *table)
{
    static const struct gid nobody;
    struct address_table now;
    if (address_read(&now) == STATUS_NO_MEMORY) {
        return false; /* what was known stands until the host can be asked */
    }
    if (table->places != NULL) {
        address_keep(&now, table->places, '+');
    }
    struct address_table *addresses = &table->addresses;
    bool changed = remove_gone(addresses, &now);
    for (uint32_t i = 0; i < now.count; i++) {
        uint32_t place = place_of(addresses, &now.entries[i].gid);
        if (place == ADDRESS_MAX) {
            place = place_of(addresses, &nobody);
            changed = true;
        }
        if (place == ADDRESS_MAX && addresses->count < ADDRESS_MAX) {
            place = addresses->count++;
        }
        if (place != ADDRESS_MAX) {
            addresses->entries[place] = now.entries[i];
        }
    }
    table->generation += changed;
    return changed;
}

bool gid_table_refresh(struct gid_table *table)
{
    pthread_mutex_lock(&table_lock);
    bool changed = refresh_locked(table);
    pthread_mutex_unlock(&table_lock);
    return changed;
}

static void read_once_locked(struct gid_table *table)
{
    if (table->addresses.count == 0) {
        refresh_locked(table);
    }
}

uint32_t gid_table_generation(struct gid_table *table)
{
    pthread_mutex_lock(&table_lock);
    uint32_t generation = table->generation;
    pthread_mutex_unlock(&table_lock);
    return generation;
}

bool gid_table_is_empty(struct gid_table *table)
{
    bool empty = true;
    pthread_mutex_lock(&table_lock);
    read_once_locked(table);
    for (uint32_t i = 0; i < table->addresses.count; i++) {
        empty &= gid_is_zero(&table->addresses.entries[i].gid);
    }
    pthread_mutex_unlock(&table_lock);
    return empty;
}

uint32_t gid_table_length(struct gid_table *table)
{
    pthread_mutex_lock(&table_lock);
    read_once_locked(table);
    uint32_t length = table->addresses.count + table->first < SHORTEST ? SHORTEST : ADDRESS_MAX;
    pthread_mutex_unlock(&table_lock);
    return length;
}

bool gid_table_get(struct gid_table *table, uint32_t index, struct address *ret_address)
{
    if (index >= gid_table_length(table)) {
        return false;
    }
    pthread_mutex_lock(&table_lock);
    uint32_t place = index < table->first ? 0 : index - table->first;
    *ret_address = place < table->addresses.count ? table->addresses.entries[place]
                                                  : (struct address){.loopback = false};
    pthread_mutex_unlock(&table_lock);
    return true;
}

bool gid_table_find(struct gid_table *table, const struct gid *gid, uint32_t *ret_index)
{
    if (gid_is_zero(gid)) {
        return false;
    }
    pthread_mutex_lock(&table_lock);
    uint32_t place = place_of(&table->addresses, gid);
    if (place == ADDRESS_MAX) {
        refresh_locked(table);
        place = place_of(&table->addresses, gid);
    }
    pthread_mutex_unlock(&table_lock);
    if (place == ADDRESS_MAX) {
        return false;
    }
    *ret_index = place + table->first;
    return true;
}

enum path_mtu gid_table_mtu(struct gid_table *table)
{
    pthread_mutex_lock(&table_lock);
    read_once_locked(table);
    enum path_mtu mtu =
        table->addresses.count == 0 ? PATH_MTU_1024 : address_port_mtu(&table->addresses);
    pthread_mutex_unlock(&table_lock);
    return mtu;
}
