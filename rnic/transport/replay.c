/* A ring whose positions count up without end; the storage is a power of two. */
#include "rnic/transport/replay.h"

#include <string.h>

#include "rnic/base/check.h"

static struct replay_entry *entry_at(const struct replay *replay, uint64_t position)
{
    return &replay->entries[position & replay->mask];
}

/* The oldest that is remembered or may be under way. */
static uint64_t oldest(const struct replay *replay)
{
    return replay->first < replay->turn ? replay->first : replay->turn;
}

enum status replay_init(struct replay *replay, struct allocator *allocator, uint32_t capacity)
{
    *replay = REPLAY_OF_NONE;
    return replay_reserve(replay, allocator, capacity);
}

enum status replay_reserve(struct replay *replay, struct allocator *allocator, uint32_t capacity)
{
    if (capacity == 0 && replay->entries == NULL) {
        return STATUS_OK;
    }
    uint32_t storage = 1;
    while (storage < capacity) {
        storage *= 2;
    }
    if (replay->entries != NULL && storage <= replay->mask + 1) {
        return STATUS_OK;
    }
    struct replay_entry *entries = allocator->allocate(allocator, storage * sizeof *entries);
    if (entries == NULL) {
        return STATUS_NO_MEMORY;
    }
    for (uint64_t position = oldest(replay); position != replay->added; position++) {
        entries[position & (storage - 1)] = *entry_at(replay, position);
    }
    replay_fini(replay, allocator);
    replay->entries = entries;
    replay->mask = storage - 1;
    return STATUS_OK;
}

void replay_fini(struct replay *replay, struct allocator *allocator)
{
    allocator->release(allocator, replay->entries);
    replay->entries = NULL;
}

void replay_reset(struct replay *replay, uint32_t limit)
{
    CHECK(limit <= replay->mask + 1);
    replay->limit = limit;
    replay->added = 0;
    replay->first = 0;
    replay->turn = 0;
}

static void keep_limit(struct replay *replay)
{
    if (replay->added - replay->first > replay->limit) {
        replay->first = replay->added - replay->limit;
    }
}

void replay_set_limit(struct replay *replay, uint32_t limit)
{
    CHECK(limit <= replay->mask + 1);
    replay->limit = limit;
    keep_limit(replay);
}

static bool is_under_way(const struct replay_entry *entry)
{
    return entry->next != entry->end;
}

struct replay_entry *replay_pending(struct replay *replay)
{
    while (replay->turn != replay->added) {
        struct replay_entry *entry = entry_at(replay, replay->turn);
        if (is_under_way(entry)) {
            return entry;
        }
        replay->turn++;
    }
    return NULL;
}

void replay_sent(struct replay_entry *entry, uint32_t count)
{
    entry->next += count;
    entry->answered |= entry->next == entry->packet_count;
}

void replay_drop(struct replay_entry *entry)
{
    entry->next = entry->end;
}

struct replay_entry *replay_add(struct replay *replay)
{
    struct replay_entry *oldest = replay_pending(replay);
    if (replay->added - replay->turn >= replay->limit) {
        if (oldest == NULL || !oldest->answered) {
            return NULL;
        }
        /* Who sends a new request has had that answer: the question for it again was an echo. */
        replay_drop(oldest);
        replay->turn++;
    }
    struct replay_entry *entry = entry_at(replay, replay->added);
    replay->added++;
    keep_limit(replay);
    memset(entry, 0, sizeof *entry);
    return entry;
}

void replay_forget(struct replay *replay, struct psn expected)
{
    while (replay->first != replay->added &&
           psn_distance(expected, entry_at(replay, replay->first)->first_psn) >= 0) {
        replay->first++;
    }
}

static bool covers(const struct replay_entry *entry, struct psn psn)
{
    int32_t distance = psn_distance(entry->first_psn, psn);
    return distance >= 0 && (uint32_t)distance < entry->packet_count;
}

struct replay_entry *replay_find(const struct replay *replay, struct psn psn)
{
    for (uint64_t position = replay->added; position != replay->first; position--) {
        struct replay_entry *entry = entry_at(replay, position - 1);
        if (covers(entry, psn)) {
            return entry;
        }
    }
    return NULL;
}

struct psn replay_before(const struct replay *replay, struct psn psn)
{
    for (uint64_t position = replay->added; position != replay->first; position--) {
        const struct replay_entry *entry = entry_at(replay, position - 1);
        if (covers(entry, psn)) {
            psn = psn_add(entry->first_psn, PSN_MASK);
        }
    }
    return psn;
}

void replay_restart(struct replay *replay, struct replay_entry *entry, uint32_t start, uint32_t end,
                    bool keeps_due)
{
    CHECK(start < end && end <= entry->packet_count);
    uint64_t position = replay->added - 1;
    while (entry_at(replay, position) != entry) {
        position--;
    }
    if (keeps_due && is_under_way(entry)) {
        start = entry->next < start ? entry->next : start;
        end = entry->end > end ? entry->end : end;
    }
    entry->start = entry->next = start;
    entry->end = end;
    entry->repeated = true;
    if (position < replay->turn) {
        replay->turn = position;
    }
    for (uint64_t later = position + 1; later != replay->added; later++) {
        struct replay_entry *behind = entry_at(replay, later);
        if (is_under_way(behind)) {
            behind->next = behind->start;
            behind->repeated = true;
        }
    }
}
