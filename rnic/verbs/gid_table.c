#include "rnic/verbs/gid_table.h"

#include <pthread.h>

#define SHORTEST 16u /* places at least; programs loop over them all */

static struct address_table table;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;

/* In a child: a thread that held it is gone. */
static void after_fork(void)
{
    pthread_mutex_init(&table_lock, NULL);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

/* With table_lock held. ADDRESS_MAX: nowhere. */
static uint32_t place_of(const struct gid *gid)
{
    for (uint32_t i = 0; i < table.count; i++) {
        if (gid_equal(&table.entries[i].gid, gid)) {
            return i;
        }
    }
    return ADDRESS_MAX;
}

static void refresh_locked(void)
{
    static const struct gid nobody;
    struct address_table now;
    if (address_read(&now) != STATUS_OK) {
        return;
    }
    for (uint32_t i = 0; i < table.count; i++) {
        if (address_find(&now, &table.entries[i].gid) == NULL) {
            table.entries[i] = (struct address){.gid = nobody};
        }
    }
    for (uint32_t i = 0; i < now.count; i++) {
        uint32_t place = place_of(&now.entries[i].gid);
        if (place == ADDRESS_MAX) {
            place = place_of(&nobody);
        }
        if (place == ADDRESS_MAX && table.count < ADDRESS_MAX) {
            place = table.count++;
        }
        if (place != ADDRESS_MAX) {
            table.entries[place] = now.entries[i];
        }
    }
}

void gid_table_refresh(void)
{
    pthread_mutex_lock(&table_lock);
    refresh_locked();
    pthread_mutex_unlock(&table_lock);
}

static void read_once_locked(void)
{
    if (table.count == 0) {
        refresh_locked();
    }
}

uint32_t gid_table_length(void)
{
    pthread_mutex_lock(&table_lock);
    read_once_locked();
    uint32_t length = table.count < SHORTEST ? SHORTEST : ADDRESS_MAX;
    pthread_mutex_unlock(&table_lock);
    return length;
}

bool gid_table_get(uint32_t index, struct address *ret_address)
{
    if (index >= gid_table_length()) {
        return false;
    }
    pthread_mutex_lock(&table_lock);
    *ret_address = index < table.count ? table.entries[index] : (struct address){.loopback = false};
    pthread_mutex_unlock(&table_lock);
    return true;
}

bool gid_table_find(const struct gid *gid, uint32_t *ret_index)
{
    pthread_mutex_lock(&table_lock);
    uint32_t place = gid_is_zero(gid) ? ADDRESS_MAX : place_of(gid);
    if (place == ADDRESS_MAX && !gid_is_zero(gid)) {
        refresh_locked();
        place = place_of(gid);
    }
    pthread_mutex_unlock(&table_lock);
    if (place == ADDRESS_MAX) {
        return false;
    }
    *ret_index = place;
    return true;
}

enum path_mtu gid_table_mtu(void)
{
    pthread_mutex_lock(&table_lock);
    read_once_locked();
    enum path_mtu mtu = table.count == 0 ? PATH_MTU_1024 : address_port_mtu(&table);
    pthread_mutex_unlock(&table_lock);
    return mtu;
}
