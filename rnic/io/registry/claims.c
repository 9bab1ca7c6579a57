/* Which process has which service name.
 *
 * Writers hold the registry's lock; the engine's search does not, for a process may be stopped in
 * the middle of a change. So each change of an entry begins and ends with a store to its `state`,
 * which tells readers by a serial number that they saw one entry, not halves of two. */
#include <stdlib.h>

#include "rnic/base/check.h"
#include "rnic/io/registry/registry_private.h"
#include "rnic/wire/mad.h"

#define MODEST_CLAIMS (REGISTRY_CLAIMS / 4 * 3)

static bool names_overlap(const struct registry_name *a, const struct registry_name *b)
{
    if (a->service_id != b->service_id) {
        return false;
    }
    if (a->scope == REGISTRY_ANY || b->scope == REGISTRY_ANY) {
        return true;
    }
    if (a->scope == REGISTRY_EXACT && b->scope == REGISTRY_EXACT) {
        return gid_equal(&a->address, &b->address);
    }
    if (a->scope != REGISTRY_EXACT && b->scope != REGISTRY_EXACT) {
        return a->scope == b->scope;
    }
    const struct registry_name *exact = a->scope == REGISTRY_EXACT ? a : b;
    const struct registry_name *wide = a->scope == REGISTRY_EXACT ? b : a;
    return gid_is_ipv4(&exact->address) == (wide->scope == REGISTRY_ANY_IPV4);
}

#define KIND_BITS 8u
#define KIND_MASK ((1u << KIND_BITS) - 1)

static enum claim_state kind_of(uint32_t state)
{
    return (enum claim_state)(state & KIND_MASK);
}

static enum claim_state claim_kind(const struct registry_claim *claim)
{
    return kind_of(atomic_load(&claim->state));
}

/* Locked. */
static void set_kind(struct registry_claim *claim, enum claim_state kind)
{
    uint32_t serial = (atomic_load(&claim->state) >> KIND_BITS) + 1;
    atomic_store(&claim->state, serial << KIND_BITS | (uint32_t)kind);
}

static uint16_t tag_of(uint64_t service_id)
{
    return (uint16_t)(service_id * UINT64_C(0x9e3779b97f4a7c15) >> 48);
}

/* Locked, in a free entry. Part by part, since somebody may read: none moves before the store that
 * made it free, as none of the loads below moves behind the last. */
static void write_claim(struct registry_file *file, struct registry_claim *claim, uint32_t slot,
                        const struct registry_name *name)
{
    const uint8_t *address = name->address.bytes;
    __atomic_store_n(&file->claim_tags[claim - file->claims], tag_of(name->service_id),
                     __ATOMIC_RELEASE);
    __atomic_store_n(&claim->slot, slot, __ATOMIC_RELEASE);
    __atomic_store_n(&claim->name.service_id, name->service_id, __ATOMIC_RELEASE);
    __atomic_store_n(&claim->name.scope, name->scope, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < sizeof name->address.bytes; i++) {
        __atomic_store_n(&claim->name.address.bytes[i], address[i], __ATOMIC_RELEASE);
    }
}

/* What an entry says, read without the lock. */
struct claim_view {
    enum claim_state kind;
    uint32_t slot;
    uint64_t stamp;
    struct registry_name name;
};

/* False: somebody is changing it. */
static bool read_claim(const struct registry_claim *claim, struct claim_view *ret_view)
{
    uint32_t state = atomic_load(&claim->state);
    ret_view->kind = kind_of(state);
    ret_view->slot = __atomic_load_n(&claim->slot, __ATOMIC_ACQUIRE);
    ret_view->stamp = __atomic_load_n(&claim->stamp, __ATOMIC_ACQUIRE);
    ret_view->name.service_id = __atomic_load_n(&claim->name.service_id, __ATOMIC_ACQUIRE);
    ret_view->name.scope = __atomic_load_n(&claim->name.scope, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < sizeof ret_view->name.address.bytes; i++) {
        ret_view->name.address.bytes[i] =
            __atomic_load_n(&claim->name.address.bytes[i], __ATOMIC_ACQUIRE);
    }
    return atomic_load_explicit(&claim->state, memory_order_relaxed) == state;
}

static bool is_held(enum claim_state kind)
{
    return kind == CLAIM_BOUND || kind == CLAIM_LISTENING;
}

static uint32_t claim_end(const struct registry *registry)
{
    uint32_t end = __atomic_load_n(&registry->file->claim_end, __ATOMIC_ACQUIRE);
    return end < REGISTRY_CLAIMS ? end : REGISTRY_CLAIMS;
}

bool claims_is_listening(const struct registry_claim *claim)
{
    return claim_kind(claim) == CLAIM_LISTENING;
}

/* Locked. A claim of a live process. Those of a dead one are buried on the way. The slot is read
 * once: what is compared is what is used. */
static bool claim_counts(struct registry *registry, const struct registry_claim *claim)
{
    uint32_t slot = __atomic_load_n(&claim->slot, __ATOMIC_RELAXED);
    if (claim_kind(claim) == CLAIM_FREE || slot >= SLOT_COUNT) {
        return false;
    }
    if (registry_slot_lives(registry, slot)) {
        return true;
    }
    registry_bury(registry, slot);
    return false;
}

void claims_forget_slot(struct registry *registry, uint32_t slot)
{
    for (uint32_t i = 0; i < claim_end(registry); i++) {
        struct registry_claim *claim = &registry->file->claims[i];
        if (claim->slot == slot && claim_kind(claim) != CLAIM_FREE) {
            set_kind(claim, CLAIM_FREE);
        }
    }
}

static bool is_taken(struct registry *registry, const struct registry_name *name, bool reuse)
{
    for (uint32_t i = 0; i < claim_end(registry); i++) {
        const struct registry_claim *claim = &registry->file->claims[i];
        enum claim_state kind = claim_kind(claim);
        bool shared = reuse && claim->reuse && kind == CLAIM_BOUND;
        if (is_held(kind) && !shared && names_overlap(&claim->name, name) &&
            claim_counts(registry, claim)) {
            return true;
        }
    }
    return false;
}

/* A free entry below `end`, else a new one, else the one released longest ago. */
static struct registry_claim *find_room(struct registry *registry, uint32_t end)
{
    struct registry_claim *oldest = NULL;
    for (uint32_t i = 0; i < claim_end(registry) && i < end; i++) {
        struct registry_claim *claim = &registry->file->claims[i];
        enum claim_state kind = claim_kind(claim);
        if (kind == CLAIM_FREE) {
            return claim;
        }
        if (!is_held(kind) && (oldest == NULL || claim->stamp < oldest->stamp)) {
            oldest = claim;
        }
    }
    uint32_t place = claim_end(registry);
    if (place < end) {
        __atomic_store_n(&registry->file->claim_end, place + 1, __ATOMIC_RELEASE);
        return &registry->file->claims[place];
    }
    return oldest;
}

static enum status claim_locked(struct registry *registry, const struct registry_name *name,
                                bool reuse, uint32_t end, uint32_t *ret_claim)
{
    if (is_taken(registry, name, reuse)) {
        return STATUS_IN_USE;
    }
    struct registry_claim *claim = find_room(registry, end);
    if (claim == NULL) {
        registry_bury_dead(registry);
        claim = find_room(registry, end);
    }
    if (claim == NULL) {
        return STATUS_FULL;
    }
    set_kind(claim, CLAIM_FREE);
    write_claim(registry->file, claim, registry->slot, name);
    claim->reuse = reuse;
    set_kind(claim, CLAIM_BOUND);
    *ret_claim = (uint32_t)(claim - registry->file->claims);
    return STATUS_OK;
}

enum status registry_claim(struct registry *registry, const struct registry_name *name, bool reuse,
                           uint32_t *ret_claim)
{
    if (registry == NULL) {
        return STATUS_STATE;
    }
    enum status status = registry_lock(registry);
    if (status == STATUS_OK) {
        status = claim_locked(registry, name, reuse, REGISTRY_CLAIMS, ret_claim);
        registry_unlock(registry);
    }
    return status;
}

/* Starts where the last search of anybody ended, so that ports rest before they are used again. */
enum status registry_claim_port(struct registry *registry, uint16_t port_space,
                                const struct registry_name *name, bool reuse, bool modest,
                                uint16_t *ret_port, uint32_t *ret_claim)
{
    uint32_t end = modest ? MODEST_CLAIMS : REGISTRY_CLAIMS;
    if (registry == NULL) {
        return STATUS_STATE;
    }
    enum status status = registry_lock(registry);
    if (status != STATUS_OK) {
        return status;
    }
    status = STATUS_IN_USE;
    for (uint32_t i = 0; i < REGISTRY_PORTS && status == STATUS_IN_USE; i++) {
        uint16_t port =
            (uint16_t)(REGISTRY_PORT_FIRST + registry->file->next_stamp++ % REGISTRY_PORTS);
        struct registry_name candidate = *name;
        candidate.service_id = rdma_cm_service_id(port_space, port);
        status = claim_locked(registry, &candidate, false, end, ret_claim);
        if (status == STATUS_OK) {
            registry->file->claims[*ret_claim].reuse = reuse;
            *ret_port = port;
        }
    }
    registry_unlock(registry);
    return status;
}

/* NULL: the file does not say so any more. */
static struct registry_claim *own_claim(struct registry *registry, uint32_t index)
{
    CHECK(index < REGISTRY_CLAIMS);
    struct registry_claim *claim = &registry->file->claims[index];
    return claim->slot == registry->slot && is_held(claim_kind(claim)) ? claim : NULL;
}

enum status registry_listen(struct registry *registry, uint32_t index)
{
    if (registry == NULL) {
        return STATUS_STATE;
    }
    enum status status = registry_lock(registry);
    if (status != STATUS_OK) {
        return status;
    }
    struct registry_claim *claim = own_claim(registry, index);
    if (claim == NULL) {
        registry_unlock(registry);
        return STATUS_STATE;
    }
    set_kind(claim, CLAIM_FREE); /* not in its own way */
    status = is_taken(registry, &claim->name, false) ? STATUS_IN_USE : STATUS_OK;
    set_kind(claim, status == STATUS_OK ? CLAIM_LISTENING : CLAIM_BOUND);
    if (status == STATUS_OK) {
        steering_attach(registry);
    }
    registry_unlock(registry);
    return status;
}

void registry_unlisten(struct registry *registry, uint32_t index)
{
    if (registry == NULL) {
        return;
    }
    bool locked = registry_lock(registry) == STATUS_OK;
    struct registry_claim *claim = own_claim(registry, index);
    if (claim != NULL) {
        set_kind(claim, CLAIM_BOUND);
    }
    if (locked) {
        steering_attach(registry);
        registry_unlock(registry);
    }
}

/* Without the lock, too: nobody else changes a claim of the living. */
void registry_release(struct registry *registry, uint32_t index)
{
    if (registry == NULL) {
        return;
    }
    bool locked = registry_lock(registry) == STATUS_OK;
    struct registry_claim *claim = own_claim(registry, index);
    bool former = locked && claim != NULL && claim_kind(claim) == CLAIM_LISTENING;
    if (former) {
        __atomic_store_n(&claim->stamp, registry->file->next_stamp++, __ATOMIC_RELAXED);
    }
    if (claim != NULL) {
        set_kind(claim, former ? CLAIM_FORMER : CLAIM_FREE);
    }
    if (former) {
        steering_attach(registry);
    }
    if (locked) {
        registry_unlock(registry);
    }
}

/* How well a claim fits a request: 0 not at all. A listener before a former one, the narrow before
 * the wide, the newest among former ones. */
static uint64_t fitness(const struct claim_view *claim, const struct registry_name *request)
{
    if (claim->slot >= SLOT_COUNT || !names_overlap(&claim->name, request)) {
        return 0;
    }
    if (claim->kind == CLAIM_LISTENING) {
        return UINT64_MAX - (claim->name.scope != REGISTRY_EXACT) -
               (claim->name.scope == REGISTRY_ANY);
    }
    return claim->kind == CLAIM_FORMER ? claim->stamp + 1 : 0;
}

uint32_t registry_find_listener(const struct registry *registry, uint64_t service_id,
                                const struct gid *address)
{
    struct registry_name request = {
        .service_id = service_id,
        .scope = REGISTRY_EXACT,
        .address = *address,
    };
    uint32_t found = SLOT_NONE, end = claim_end(registry);
    uint16_t tag = tag_of(service_id);
    uint64_t best = 0;
    for (uint32_t i = 0; i < end; i++) {
        if (__atomic_load_n(&registry->file->claim_tags[i], __ATOMIC_RELAXED) != tag) {
            continue;
        }
        const struct registry_claim *entry = &registry->file->claims[i];
        struct claim_view claim;
        if (__atomic_load_n(&entry->name.service_id, __ATOMIC_RELAXED) != service_id ||
            (!read_claim(entry, &claim) && !read_claim(entry, &claim))) {
            continue;
        }
        uint64_t fit = fitness(&claim, &request);
        if (fit > best && registry_slot_lives(registry, claim.slot)) {
            found = claim.slot;
            best = fit;
        }
    }
    return found;
}
