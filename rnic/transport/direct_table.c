/* Each entry is a sequence lock: version, content, version again. */
#include "rnic/transport/direct_table.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/prefetch.h"
#include "rnic/memory/access.h"

#define KEY_VARIANT_BITS 8u /* keys of one number, of which one is valid, share a place */
#define CONTENT_WORDS    (DIRECT_ENTRY_WORDS - 1)

union content {
    uint64_t words[CONTENT_WORDS];
    struct direct_qp qp;
    struct direct_key key;
};

BUILD_CHECK(sizeof(struct direct_qp) <= CONTENT_WORDS * sizeof(uint64_t));
BUILD_CHECK(sizeof(struct direct_key) <= CONTENT_WORDS * sizeof(uint64_t));
BUILD_CHECK(sizeof(_Atomic uint64_t) == sizeof(uint64_t));

static struct direct_entry *qp_entry(const struct direct_table *table, struct qpn number)
{
    return &table->qps[number.value % table->qp_count];
}

uint32_t direct_table_place(struct memory_key key, uint32_t count)
{
    return (key.value >> KEY_VARIANT_BITS) % count;
}

static struct direct_entry *key_entry(const struct direct_table *table, struct memory_key key)
{
    return &table->keys[direct_table_place(key, table->key_count)];
}

static void write_entry(struct direct_entry *entry, const union content *content)
{
    uint64_t version = atomic_load_explicit(&entry->words[0], memory_order_relaxed);
    atomic_store_explicit(&entry->words[0], version | 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (uint32_t i = 0; i < CONTENT_WORDS; i++) {
        atomic_store_explicit(&entry->words[i + 1], content->words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&entry->words[0], (version | 1) + 1, memory_order_release);
}

/* False: it is being written just now. */
static bool read_words(const struct direct_entry *entry, uint64_t *ret_words, uint64_t *ret_version)
{
    uint64_t before = atomic_load_explicit(&entry->words[0], memory_order_acquire);
    for (uint32_t i = 0; i < CONTENT_WORDS; i++) {
        ret_words[i] = atomic_load_explicit(&entry->words[i + 1], memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_acquire);
    *ret_version = atomic_load_explicit(&entry->words[0], memory_order_relaxed);
    return before == *ret_version && (before & 1) == 0;
}

static bool read_entry(const struct direct_entry *entry, union content *ret_content)
{
    uint64_t version;
    return read_words(entry, ret_content->words, &version);
}

/* Reads it where it is not known already. False: see above. */
static bool look(struct direct_row *row, const struct direct_entry *entry)
{
    if (row->entry == entry &&
        row->version == atomic_load_explicit(&entry->words[0], memory_order_acquire)) {
        return true;
    }
    bool read = read_words(entry, row->words, &row->version);
    row->entry = read ? entry : NULL;
    return read;
}

void direct_table_show_qp(const struct direct_table *table, const struct direct_qp *qp)
{
    union content content = {.words = {0}};
    content.qp = *qp;
    write_entry(qp_entry(table, qp->number), &content);
}

bool direct_table_hide_qp(const struct direct_table *table, struct qpn number)
{
    struct direct_entry *entry = qp_entry(table, number);
    union content content;
    if (!read_entry(entry, &content) || !qpn_equal(content.qp.number, number)) {
        return false;
    }
    write_entry(entry, &(union content){.words = {0}});
    return true;
}

void direct_table_show_key(const struct direct_table *table, const struct direct_key *key)
{
    struct direct_entry *entry = key_entry(table, key->key);
    union content content;
    if (read_entry(entry, &content) && content.key.key.value == 0) {
        content = (union content){.words = {0}};
        content.key = *key;
        write_entry(entry, &content);
    }
}

bool direct_table_hide_key(const struct direct_table *table, struct memory_key key)
{
    struct direct_entry *entry = key_entry(table, key);
    union content content;
    if (!read_entry(entry, &content) || content.key.key.value != key.value) {
        return false;
    }
    write_entry(entry, &(union content){.words = {0}});
    return true;
}

bool direct_table_read_key(const struct direct_table *table, uint32_t place,
                           struct direct_key *ret_key)
{
    union content content;
    bool shown = read_entry(&table->keys[place], &content) && content.key.key.value != 0;
    *ret_key = content.key;
    return shown;
}

bool direct_table_find_key(const struct direct_table *table, struct memory_key key,
                           struct direct_key *ret_key)
{
    uint32_t place = direct_table_place(key, table->key_count);
    return direct_table_read_key(table, place, ret_key) && ret_key->key.value == key.value;
}

/* What the responder asks of a packet before it looks at the key. */
static bool takes(const struct direct_qp *qp, const struct direct_access *access)
{
    unsigned needed = access->write ? ACCESS_REMOTE_WRITE : ACCESS_REMOTE_READ;
    return qpn_equal(qp->number, access->target) && qpn_equal(qp->destination, access->initiator) &&
           gid_equal(&qp->local, &access->path->remote) &&
           gid_equal(&qp->remote, &access->path->local) &&
           psn_equal(qp->first_psn, access->first_psn) && qp->mtu_shift == access->mtu_shift &&
           (qp->rights & needed) != 0;
}

/* The queue pair's part of both is the same. */
static bool is_of_same(const struct direct_access *one, const struct direct_access *other)
{
    return one->path == other->path && qpn_equal(one->initiator, other->initiator) &&
           qpn_equal(one->target, other->target);
}

static bool opens(const struct direct_key *key, const struct direct_qp *qp,
                  const struct direct_access *access)
{
    unsigned needed = access->write ? ACCESS_REMOTE_WRITE : ACCESS_REMOTE_READ;
    uint64_t offset = access->address - key->address;
    return key->key.value == access->key.value && key->domain == qp->domain &&
           (key->qpn.value == 0 || qpn_equal(key->qpn, qp->number)) && offset <= key->length &&
           access->length <= key->length - offset && (key->rights & needed) != 0;
}

static struct direct_there find(const struct direct_key *key, const struct direct_access *access)
{
    uint64_t offset = access->address - key->address + access->offset;
    return (struct direct_there){
        .bytes = key->bytes + offset,
        .length = key->length,
        .common = key->common,
        .within = offset - key->common.lead,
    };
}

/* Those of many queue pairs are in nobody's cache: all at once instead of one after the other. */
static void prefetch_entries(const struct direct_table *table, const struct direct_access *accesses,
                             uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (!qpn_equal(accesses[i].target, accesses[i - 1].target)) {
            prefetch(qp_entry(table, accesses[i].target), sizeof(struct direct_entry));
        }
    }
}

uint32_t direct_table_grants(const struct direct_table *table, struct direct_seen *seen,
                             const struct direct_access *accesses, uint32_t count,
                             struct direct_there *ret_there)
{
    prefetch_entries(table, accesses, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct direct_access *access = &accesses[i];
        bool same = i > 0 && is_of_same(access, access - 1);
        bool known = i > 0 && access->key.value == access[-1].key.value;
        ret_there[i].bytes = 0;
        if (!same &&
            (access->target.value == 0 || !look(&seen->qp, qp_entry(table, access->target)) ||
             !takes(&seen->qp.qp, access))) {
            return i;
        }
        if (access->key.value == 0 ||
            (!known && !look(&seen->key, key_entry(table, access->key))) ||
            !opens(&seen->key.key, &seen->qp.qp, access)) {
            return i;
        }
        ret_there[i] = find(&seen->key.key, access);
    }
    return count;
}
