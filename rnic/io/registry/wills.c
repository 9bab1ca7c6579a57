/* Wills in the registry's file: what each slot's holder owes to peers, for the heir to do.
 *
 * A will is written by one system call, with a checksum: what a kill cuts in two does not count,
 * nor does what an earlier holder of the slot has left. They are not mapped, since a store to a
 * page for which there is no room would end the process; a write just fails. */
#include <assert.h>
#include <stddef.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rnic/base/crc32.h"
#include "rnic/cm/cm.h"
#include "rnic/io/registry/registry_private.h"
#include "rnic/io/system/raw_file.h"

#define READ_AT_ONCE 64u
#define PAGE         UINT64_C(4096)

/* All places are filled: what has a checksum has no padding. */
struct record {
    uint32_t checksum;   /* of what follows */
    uint32_t generation; /* of the slot's holder; no holder has 0 */
    uint32_t debt;
    uint32_t local_id, remote_id;
    uint32_t local_qpn, remote_qpn;
    uint32_t flow_label;
    uint64_t transaction;
    struct gid local, remote;
    uint8_t zero[2]; /* where records of earlier builds have a port */
    uint8_t traffic_class, hop_limit, ack_timeout;
    uint8_t zero_too[3];
};

static_assert(sizeof(struct record) == 80, "no padding");

static off_t place_of(uint32_t slot, uint32_t index)
{
    uint64_t start = (sizeof(struct registry_file) + PAGE - 1) / PAGE * PAGE;
    uint64_t window = WILLS_PER_SLOT * sizeof(struct record);
    return (off_t)(start + slot * window + index * sizeof(struct record));
}

static uint32_t checksum_of(const struct record *record)
{
    const uint8_t *bytes = (const uint8_t *)record;
    size_t from = offsetof(struct record, generation);
    return crc32_update(0, bytes + from, sizeof *record - from);
}

static struct record pack(const struct cm_will *will, uint32_t generation)
{
    struct record record = {
        .generation = generation,
        .debt = (uint32_t)will->debt,
        .local_id = will->local_id,
        .remote_id = will->remote_id,
        .local_qpn = will->local_qpn.value,
        .remote_qpn = will->remote_qpn.value,
        .flow_label = will->path.flow_label,
        .transaction = will->transaction,
        .local = will->path.local,
        .remote = will->path.remote,
        .traffic_class = will->path.traffic_class,
        .hop_limit = will->path.hop_limit,
        .ack_timeout = will->ack_timeout,
    };
    record.checksum = checksum_of(&record);
    return record;
}

static struct cm_will unpack(const struct record *record)
{
    return (struct cm_will){
        .debt = (enum cm_debt)record->debt,
        .local_id = record->local_id,
        .remote_id = record->remote_id,
        .transaction = record->transaction,
        .path =
            {
                .local = record->local,
                .remote = record->remote,
                .traffic_class = record->traffic_class,
                .hop_limit = record->hop_limit,
                .flow_label = record->flow_label & 0xfffff,
            },
        .local_qpn = {record->local_qpn & 0xffffff},
        .remote_qpn = {record->remote_qpn & 0xffffff},
        .ack_timeout = record->ack_timeout,
    };
}

/* False: not written. More than a file may have is asked for at the price of a signal. */
static bool write_record(const struct registry *registry, uint32_t index,
                         const struct record *record)
{
    off_t at = place_of(registry->slot, index);
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < (rlim_t)at + sizeof *record ||
        !registry_has_file(registry)) {
        return false;
    }
    return raw_write_at(registry->descriptor, record, sizeof *record, at) ==
           (ssize_t)sizeof *record;
}

static void keep(struct registry *registry, uint32_t index, const struct cm_will *will)
{
    struct registry_slot *slot = &registry->file->slots[registry->slot];
    struct record record = pack(will, atomic_load(&slot->generation));
    uint8_t bit = (uint8_t)(1u << index % 8), *kept = &registry->will_kept[index / 8];
    if (write_record(registry, index, &record)) {
        registry->will_count += (*kept & bit) == 0;
        *kept |= bit;
        if (index >= atomic_load(&slot->will_end)) {
            atomic_store(&slot->will_end, index + 1);
        }
    }
}

static void forget(struct registry *registry, uint32_t index)
{
    static const struct record none;
    uint8_t bit = (uint8_t)(1u << index % 8), *kept = &registry->will_kept[index / 8];
    if ((*kept & bit) != 0 && write_record(registry, index, &none)) {
        registry->will_count--;
        *kept &= (uint8_t)~bit;
    }
}

void registry_keep_will(struct registry *registry, uint32_t index, const struct cm_will *will)
{
    if (index >= WILLS_PER_SLOT) {
        return;
    }
    if (will != NULL) {
        keep(registry, index, will);
    } else {
        forget(registry, index);
    }
}

/* Its own slot's, or one that the slot's holder had inherited; and of nobody who lives. */
static bool is_believable(const struct registry *registry, uint32_t slot, uint32_t generation,
                          const struct record *record)
{
    uint32_t giver = slot_of_communication_id(record->local_id);
    return record->generation == generation && record->checksum == checksum_of(record) &&
           record->debt < CM_DEBT_COUNT &&
           (giver == slot || !registry_slot_is_used(registry, giver));
}

void wills_read(const struct registry *registry, uint32_t slot,
                void (*visit)(void *context, const struct cm_will *will), void *context)
{
    struct record records[READ_AT_ONCE];
    const struct registry_slot *entry = &registry->file->slots[slot];
    uint32_t generation = atomic_load(&entry->generation), end = atomic_load(&entry->will_end);
    end = end < WILLS_PER_SLOT ? end : WILLS_PER_SLOT;
    for (uint32_t first = 0; first < end; first += READ_AT_ONCE) {
        ssize_t length =
            pread(registry->descriptor, records, sizeof records, place_of(slot, first));
        uint32_t count = length > 0 ? (uint32_t)length / sizeof records[0] : 0;
        for (uint32_t i = 0; i < count && first + i < end; i++) {
            if (is_believable(registry, slot, generation, &records[i])) {
                struct cm_will will = unpack(&records[i]);
                visit(context, &will);
            }
        }
    }
}

void wills_forget(struct registry *registry, uint32_t slot)
{
    struct registry_slot *entry = &registry->file->slots[slot];
    if (atomic_load(&entry->will_end) > 0) {
        atomic_store(&entry->will_end, 0);
        atomic_store(&entry->estate, 0);
        bool emptied = registry_has_file(registry) &&
                       fallocate(registry->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 place_of(slot, 0), place_of(1, 0) - place_of(0, 0)) == 0;
        (void)emptied; /* else they stay, and do not count */
    }
}
