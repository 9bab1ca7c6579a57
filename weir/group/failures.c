/* Lists of failures. */
#include "weir/group/failures.h"

#include <stdlib.h>
#include <string.h>

#include "weir/bytes.h"

#define CAPACITY_LEAST 4
#define ENTRY_LENGTH   16u

void failures_fini(struct failures *failures)
{
    free(failures->entries);
    *failures = (struct failures){0};
}

static bool make_room(struct failures *failures, size_t more)
{
    if (failures->capacity - failures->count >= more) {
        return true;
    }
    size_t capacity = failures->capacity > 0 ? 2 * failures->capacity : CAPACITY_LEAST;
    capacity = capacity > failures->count + more ? capacity : failures->count + more;
    struct weir_group_failure *entries = realloc(failures->entries, capacity * sizeof(*entries));
    if (entries == NULL) {
        return false;
    }
    failures->entries = entries;
    failures->capacity = capacity;
    return true;
}

static bool is_next(const struct weir_group_failure *last, const struct weir_group_failure *next)
{
    return last->first + last->count == next->first && last->status == next->status &&
           last->code == next->code;
}

bool failures_add(struct failures *failures, struct weir_group_failure failure)
{
    struct weir_group_failure *last =
        failures->count > 0 ? &failures->entries[failures->count - 1] : NULL;
    if (last != NULL && is_next(last, &failure)) {
        last->count += failure.count;
        failures->total += failure.count;
        return true;
    }
    if (!make_room(failures, 1)) {
        return false;
    }
    failures->entries[failures->count++] = failure;
    failures->total += failure.count;
    return true;
}

bool failures_add_ranks(struct failures *failures, const struct ranks *ranks,
                        enum weir_status status, uint32_t code)
{
    for (size_t i = ranks->begin; i < ranks->end; i++) {
        const struct rank_range *range = &ranks->ranges[i];
        if (!failures_add(failures,
                          (struct weir_group_failure){range->first, range->count, status, code})) {
            return false;
        }
    }
    return true;
}

bool failures_join(struct failures *failures, const struct failures *others)
{
    if (others->count == 0) {
        return true;
    }
    if (!make_room(failures, others->count)) {
        return false;
    }
    memcpy(failures->entries + failures->count, others->entries,
           others->count * sizeof(*others->entries));
    failures->count += others->count;
    failures->total += others->total;
    return true;
}

static int compare(const void *left, const void *right)
{
    const struct weir_group_failure *a = left, *b = right;
    return a->first < b->first ? -1 : a->first > b->first;
}

void failures_settle(struct failures *failures)
{
    if (failures->count == 0) {
        return;
    }
    qsort(failures->entries, failures->count, sizeof(*failures->entries), compare);
    size_t kept = 0;
    for (size_t i = 1; i < failures->count; i++) {
        struct weir_group_failure *last = &failures->entries[kept];
        const struct weir_group_failure *next = &failures->entries[i];
        if (is_next(last, next)) {
            last->count += next->count;
        } else {
            failures->entries[++kept] = *next;
        }
    }
    failures->count = kept + 1;
}

size_t failures_packed_length(const struct failures *failures)
{
    return 4 + failures->count * ENTRY_LENGTH;
}

void failures_pack(const struct failures *failures, uint8_t *ret_bytes)
{
    put_u32(ret_bytes, (uint32_t)failures->count);
    uint8_t *at = ret_bytes + 4;
    for (size_t i = 0; i < failures->count; i++, at += ENTRY_LENGTH) {
        const struct weir_group_failure *entry = &failures->entries[i];
        put_u32(at, entry->first);
        put_u32(at + 4, entry->count);
        put_u32(at + 8, (uint32_t)entry->status);
        put_u32(at + 12, entry->code);
    }
}

/* Its ranks are those of one range, for ranges do not touch; entries ascend, and so does `at`. */
static bool are_asked(const struct ranks *asked, size_t *at, uint32_t first, uint32_t count)
{
    while (*at < asked->end && first >= asked->ranges[*at].first + asked->ranges[*at].count) {
        (*at)++;
    }
    if (*at == asked->end || first < asked->ranges[*at].first) {
        return false;
    }
    const struct rank_range *range = &asked->ranges[*at];
    return count <= range->count - (first - range->first);
}

const char *failures_parse(const uint8_t *bytes, size_t length, const struct ranks *asked,
                           struct failures *ret_failures, size_t *ret_length)
{
    struct failures failures = {0};
    if (length < 4 || get_u32(bytes) > (length - 4) / ENTRY_LENGTH) {
        return "failures shorter than their count";
    }
    uint32_t count = get_u32(bytes), least = 0;
    size_t range = asked->begin;
    const uint8_t *at = bytes + 4;
    const char *wrong = NULL;
    for (uint32_t i = 0; wrong == NULL && i < count; i++, at += ENTRY_LENGTH) {
        struct weir_group_failure entry = {get_u32(at), get_u32(at + 4),
                                           (enum weir_status)get_u32(at + 8), get_u32(at + 12)};
        if (entry.first < least) {
            wrong = "failures out of order";
        } else if (entry.count == 0 || !are_asked(asked, &range, entry.first, entry.count)) {
            wrong = "failures of ranks that were not asked";
        } else if (get_u32(at + 8) == WEIR_OK || get_u32(at + 8) >= WEIR_STATUS_COUNT) {
            wrong = "failures for no reason";
        } else if (!failures_add(&failures, entry)) {
            wrong = "no memory for the failures";
        }
        least = entry.first + entry.count;
    }
    if (wrong != NULL) {
        failures_fini(&failures);
        return wrong;
    }
    *ret_failures = failures;
    *ret_length = (size_t)(at - bytes);
    return NULL;
}
