#include "rnic/io/direct/hot_regions.h"

#include <string.h>
#include <time.h>

#include "rnic/base/check.h"
#include "rnic/io/direct/common_private.h"

#define LOOK_NS     100000
#define LEAST_BYTES 4096u /* what is shorter has no page of its own */

void hot_regions_init(struct hot_regions *hot, struct direct_shown *shown)
{
    memset(hot, 0, sizeof *hot);
    hot->shown = shown;
    if (shown != NULL) {
        shown->common = -1;
    }
}

/* False: it cannot be turned back now. */
static bool turn_back(struct hot_regions *hot, uint32_t index, bool anyway)
{
    struct hot_region *region = &hot->regions[index];
    enum status status = anyway ? common_end_anyway(hot->common, &region->range)
                                : common_end(hot->common, &region->range);
    if (status != STATUS_OK) {
        return false;
    }
    hot->bytes -= region->range.remains ? 0 : region->range.length;
    *region = hot->regions[--hot->count];
    return true;
}

/* Those that could not be turned back when they ended. */
static void turn_back_rest(struct hot_regions *hot, bool anyway)
{
    for (uint32_t i = hot->count; i-- > 0;) {
        if (hot->regions[i].key.value == 0) {
            (void)turn_back(hot, i, anyway);
        }
    }
}

void hot_regions_tidy(struct hot_regions *hot)
{
    turn_back_rest(hot, false);
}

void hot_regions_destroy(struct hot_regions *hot)
{
    turn_back_rest(hot, true);
    common_destroy(hot->common);
    hot->common = NULL;
}

void hot_regions_abandon(struct hot_regions *hot)
{
    if (hot->common != NULL) {
        common_abandon(hot->common);
    }
    for (uint32_t i = 0; i < hot->count; i++) {
        common_unshare(hot->common, &hot->regions[i].range);
    }
    memset(hot, 0, sizeof *hot);
}

static bool overlap(uint64_t a, uint64_t a_length, uint64_t b, uint64_t b_length)
{
    return a < b + b_length && b < a + a_length;
}

/* What lies in the same pages would be moved there while they become others. */
static bool is_alone(const struct hot_regions *hot, const struct direct_table *table,
                     const struct direct_key *key)
{
    for (uint32_t place = 0; place < hot->place_end; place++) {
        struct direct_key other;
        if (direct_table_read_key(table, place, &other) && other.key.value != key->key.value &&
            overlap(key->bytes, key->length, other.bytes, other.length)) {
            return false;
        }
    }
    return true;
}

static bool has_room(const struct hot_regions *hot, const struct direct_key *key)
{
    return hot->count < HOT_REGIONS_MAX && key->length <= HOT_REGIONS_BYTES - hot->bytes;
}

static bool is_ready(struct hot_regions *hot)
{
    if (hot->common == NULL && hot->trials < HOT_REGIONS_TRIALS) {
        hot->trials++;
        if (common_create(&hot->common) != STATUS_OK) {
            hot->common = NULL;
        }
    }
    if (hot->common != NULL) {
        hot->shown->common = common_descriptor(hot->common);
    }
    return hot->common != NULL;
}

/* What has failed is tried again when there is a wish. */
static void get_ready(struct hot_regions *hot)
{
    bool wanted = hot->shown != NULL && hot->is_met && hot->has_any && hot->trials == 0;
    if (wanted && !atomic_load(&hot->forks) && common_is_quick()) {
        (void)is_ready(hot);
    }
}

static const struct direct_common never = {.lead = DIRECT_NEVER};

/* False: there is nothing to be done for it, or not now; or never, and it is shown so to who has
 * wished. */
static bool is_possible(struct hot_regions *hot, const struct direct_table *table,
                        struct direct_key *key, bool wished)
{
    if (key->common.length != 0 || key->common.lead == DIRECT_NEVER || !has_room(hot, key)) {
        return false;
    }
    bool ready = is_ready(hot);
    if (key->length <= COMMON_RANGE_MAX && is_alone(hot, table, key) &&
        (ready || hot->trials < HOT_REGIONS_TRIALS)) {
        return ready;
    }
    if (wished) {
        key->common = never;
        (void)direct_table_hide_key(table, key->key);
        direct_table_show_key(table, key);
    }
    return false;
}

/* The key is hidden, and nobody is at it. What is refused unasked may be granted when it is wished
 * for, by another thread and in another mood of the program's. */
static void begin(struct hot_regions *hot, struct direct_key *key, bool wished)
{
    struct hot_region *region = &hot->regions[hot->count];
    uint8_t *bytes = (uint8_t *)(uintptr_t)key->bytes;
    enum status status = has_room(hot, key)
                             ? common_begin(hot->common, bytes, key->length, &region->range)
                             : STATUS_FULL;
    if (status == STATUS_OK) {
        region->key = key->key;
        region->wished = wished;
        hot->count++;
        hot->made++;
        hot->bytes += region->range.length;
        key->common = (struct direct_common){.offset = region->range.offset,
                                             .lead = (uint32_t)(region->range.bytes - bytes),
                                             .length = (uint32_t)region->range.length};
    } else if (wished && (status == STATUS_DENIED || status == STATUS_TOO_LONG)) {
        key->common = never;
    }
}

/* A handler of this thread's that forks would wait for us. */
static void begin_unless_forking(struct hot_regions *hot, struct direct_key *key, bool wished)
{
    struct silence silence;
    silence_begin(&silence);
    atomic_store(&hot->begins, true);
    if (!atomic_load(&hot->forks)) {
        begin(hot, key, wished);
    }
    atomic_store(&hot->begins, false);
    silence_end(&silence);
}

void hot_regions_is_to_fork(struct hot_regions *hot)
{
    atomic_store(&hot->forks, true);
    while (atomic_load(&hot->begins)) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    }
    common_fork_begins();
}

static bool grant(struct hot_regions *hot, const struct memory_key *keys, uint32_t count,
                  bool wished, struct hot_settler *settler)
{
    struct direct_key hidden[HOT_REGIONS_WISHES];
    uint32_t hidden_count = 0;
    if (hot->shown == NULL || atomic_load(&hot->forks)) {
        return true;
    }
    struct direct_table table = direct_table_of(hot->shown);
    bool read = false;
    CHECK(count <= HOT_REGIONS_WISHES);
    for (uint32_t i = 0; i < count; i++) {
        struct direct_key *key = &hidden[hidden_count];
        if (direct_table_find_key(&table, keys[i], key) && is_possible(hot, &table, key, wished)) {
            const uint8_t *bytes = (const uint8_t *)(uintptr_t)key->bytes;
            bool is_read = settler->is_read(settler, bytes, key->length);
            read |= is_read;
            hidden_count += !is_read && direct_table_hide_key(&table, key->key);
        }
    }
    bool settled = hidden_count == 0 || settler->settle(settler);
    for (uint32_t i = 0; i < hidden_count; i++) {
        if (settled) {
            begin_unless_forking(hot, &hidden[i], wished);
        }
        direct_table_show_key(&table, &hidden[i]);
    }
    return settled && !read;
}

bool hot_regions_grant(struct hot_regions *hot, const struct memory_key *keys, uint32_t count,
                       struct hot_settler *settler)
{
    hot->has_begun = true; /* others are at our memory already */
    return grant(hot, keys, count, true, settler);
}

/* The short ones that are shown, before anybody is at them. */
static void grant_first(struct hot_regions *hot, struct hot_settler *settler)
{
    struct direct_table table = direct_table_of(hot->shown);
    uint64_t bytes = HOT_REGIONS_FIRST_BYTES;
    uint32_t left = HOT_REGIONS_FIRST;
    for (uint32_t place = 0; place < hot->place_end && left > 0; place++) {
        struct direct_key key;
        if (direct_table_read_key(&table, place, &key) && key.length >= LEAST_BYTES &&
            key.length <= bytes) {
            (void)grant(hot, &key.key, 1, false, settler);
            bytes -= key.length;
            left--;
        }
    }
}

void hot_regions_expect(struct hot_regions *hot, struct hot_settler *settler)
{
    hot->is_met = true;
    get_ready(hot);
    if (hot->common != NULL && !hot->has_begun) {
        hot->has_begun = true;
        if (common_is_quick()) {
            grant_first(hot, settler);
        }
    }
}

static bool overlaps_common(const struct hot_regions *hot, const uint8_t *bytes, uint64_t length)
{
    for (uint32_t i = 0; i < hot->count; i++) {
        const struct common_range *range = &hot->regions[i].range;
        if (overlap((uintptr_t)bytes, length, (uintptr_t)range->bytes, range->length)) {
            return true;
        }
    }
    return false;
}

bool hot_regions_let_show(struct hot_regions *hot, struct memory_key key, const uint8_t *bytes,
                          uint64_t length)
{
    uint32_t place = direct_table_place(key, DIRECT_KEYS);
    hot->place_end = place < hot->place_end ? hot->place_end : place + 1;
    hot->has_any |= length >= LEAST_BYTES && length <= COMMON_RANGE_MAX;
    get_ready(hot);
    if (!overlaps_common(hot, bytes, length)) {
        return true;
    }
    turn_back_rest(hot, false);
    return !overlaps_common(hot, bytes, length);
}

void hot_regions_end(struct hot_regions *hot, struct memory_key key)
{
    for (uint32_t i = 0; i < hot->count; i++) {
        if (hot->regions[i].key.value == key.value) {
            hot->regions[i].key.value = 0;
            break;
        }
    }
    turn_back_rest(hot, false);
}

void hot_regions_end_all(struct hot_regions *hot, struct hot_settler *settler)
{
    struct direct_key shown[HOT_REGIONS_MAX];
    CHECK(atomic_load(&hot->forks));
    if (hot->count == 0) {
        return;
    }
    struct direct_table table = direct_table_of(hot->shown);
    uint32_t count = 0;
    for (uint32_t i = 0; i < hot->count; i++) {
        struct hot_region *region = &hot->regions[i];
        struct direct_key *key = &shown[count];
        if (direct_table_find_key(&table, region->key, key)) {
            key->common = region->wished ? never : (struct direct_common){0};
            count += direct_table_hide_key(&table, region->key);
        }
        region->key.value = 0;
    }
    (void)settler->settle(settler);
    turn_back_rest(hot, true);
    for (uint32_t i = 0; i < count; i++) {
        /* What could not be turned back will be, and who calls meanwhile would be at it unseen. */
        if (!overlaps_common(hot, (const uint8_t *)(uintptr_t)shown[i].bytes, shown[i].length)) {
            direct_table_show_key(&table, &shown[i]);
        }
    }
}
