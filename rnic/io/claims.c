/* Which process has which service name. */
#include <stdlib.h>

#include "rnic/base/check.h"
#include "rnic/io/registry_private.h"
#include "rnic/wire/mad.h"

#define PORT_FIRST 32768u
#define PORT_LAST  60999u

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

static bool is_held(uint32_t state)
{
    return state == CLAIM_BOUND || state == CLAIM_LISTENING;
}

static uint32_t claim_end(const struct registry *registry)
{
    uint32_t end = registry->file->claim_end;
    return end < REGISTRY_CLAIMS ? end : REGISTRY_CLAIMS;
}

/* A claim of a live process. Those of a dead one are buried on the way. */
static bool claim_counts(struct registry *registry, const struct registry_claim *claim)
{
    if (atomic_load(&claim->state) == CLAIM_FREE || claim->slot >= REGISTRY_SLOTS) {
        return false;
    }
    if (registry_slot_lives(registry, claim->slot)) {
        return true;
    }
    registry_bury(registry, claim->slot);
    return false;
}

void claims_forget_slot(struct registry *registry, uint32_t slot)
{
    for (uint32_t i = 0; i < claim_end(registry); i++) {
        struct registry_claim *claim = &registry->file->claims[i];
        if (claim->slot == slot) {
            atomic_store(&claim->state, CLAIM_FREE);
        }
    }
}

static bool is_taken(struct registry *registry, const struct registry_name *name, bool reuse)
{
    for (uint32_t i = 0; i < claim_end(registry); i++) {
        const struct registry_claim *claim = &registry->file->claims[i];
        uint32_t state = atomic_load(&claim->state);
        bool shared = reuse && claim->reuse && state == CLAIM_BOUND;
        if (is_held(state) && !shared && names_overlap(&claim->name, name) &&
            claim_counts(registry, claim)) {
            return true;
        }
    }
    return false;
}

/* A free entry, else a new one, else the one released longest ago. */
static struct registry_claim *find_room(struct registry *registry)
{
    struct registry_claim *oldest = NULL;
    for (uint32_t i = 0; i < claim_end(registry); i++) {
        struct registry_claim *claim = &registry->file->claims[i];
        uint32_t state = atomic_load(&claim->state);
        if (state == CLAIM_FREE) {
            return claim;
        }
        if (!is_held(state) && (oldest == NULL || claim->stamp < oldest->stamp)) {
            oldest = claim;
        }
    }
    if (claim_end(registry) < REGISTRY_CLAIMS) {
        return &registry->file->claims[registry->file->claim_end++];
    }
    return oldest;
}

static enum status claim_locked(struct registry *registry, const struct registry_name *name,
                                bool reuse, uint32_t *ret_claim)
{
    if (is_taken(registry, name, reuse)) {
        return STATUS_IN_USE;
    }
    struct registry_claim *claim = find_room(registry);
    if (claim == NULL) {
        registry_bury_dead(registry);
        claim = find_room(registry);
    }
    if (claim == NULL) {
        return STATUS_FULL;
    }
    atomic_store(&claim->state, CLAIM_FREE);
    claim->slot = registry->slot;
    claim->name = *name;
    claim->reuse = reuse;
    atomic_store(&claim->state, CLAIM_BOUND);
    *ret_claim = (uint32_t)(claim - registry->file->claims);
    return STATUS_OK;
}

enum status registry_claim(struct registry *registry, const struct registry_name *name, bool reuse,
                           uint32_t *ret_claim)
{
    registry_lock(registry);
    enum status status = claim_locked(registry, name, reuse, ret_claim);
    registry_unlock(registry);
    return status;
}

/* Starts where the last search of anybody ended, so that ports rest before they are used again. */
enum status registry_claim_port(struct registry *registry, uint8_t port_space,
                                const struct registry_name *name, uint16_t *ret_port,
                                uint32_t *ret_claim)
{
    uint32_t span = PORT_LAST - PORT_FIRST + 1;
    enum status status = STATUS_IN_USE;
    registry_lock(registry);
    for (uint32_t i = 0; i < span && status == STATUS_IN_USE; i++) {
        uint16_t port = (uint16_t)(PORT_FIRST + registry->file->next_stamp++ % span);
        struct registry_name candidate = *name;
        candidate.service_id = rdma_cm_service_id(port_space, port);
        status = claim_locked(registry, &candidate, false, ret_claim);
        if (status == STATUS_OK) {
            *ret_port = port;
        }
    }
    registry_unlock(registry);
    return status;
}

static struct registry_claim *own_claim(struct registry *registry, uint32_t index)
{
    CHECK(index < REGISTRY_CLAIMS);
    struct registry_claim *claim = &registry->file->claims[index];
    CHECK(claim->slot == registry->slot && is_held(atomic_load(&claim->state)));
    return claim;
}

enum status registry_listen(struct registry *registry, uint32_t index)
{
    registry_lock(registry);
    struct registry_claim *claim = own_claim(registry, index);
    atomic_store(&claim->state, CLAIM_FREE); /* not in its own way */
    enum status status = is_taken(registry, &claim->name, false) ? STATUS_IN_USE : STATUS_OK;
    atomic_store(&claim->state, status == STATUS_OK ? CLAIM_LISTENING : CLAIM_BOUND);
    if (status == STATUS_OK) {
        steering_attach(registry);
    }
    registry_unlock(registry);
    return status;
}

void registry_release(struct registry *registry, uint32_t index)
{
    registry_lock(registry);
    struct registry_claim *claim = own_claim(registry, index);
    bool listened = atomic_load(&claim->state) == CLAIM_LISTENING;
    claim->stamp = registry->file->next_stamp++;
    atomic_store(&claim->state, listened ? CLAIM_FORMER : CLAIM_FREE);
    if (listened) {
        steering_attach(registry);
    }
    registry_unlock(registry);
}

/* How well a claim fits a request: 0 not at all. A listener before a former one, the narrow before
 * the wide, the newest among former ones. */
static uint64_t fitness(const struct registry_claim *claim, const struct registry_name *request)
{
    uint32_t state = atomic_load(&claim->state);
    if (!names_overlap(&claim->name, request)) {
        return 0;
    }
    if (state == CLAIM_LISTENING) {
        return UINT64_MAX - (claim->name.scope != REGISTRY_EXACT) -
               (claim->name.scope == REGISTRY_ANY);
    }
    return state == CLAIM_FORMER ? claim->stamp + 1 : 0;
}

uint32_t registry_find_listener(struct registry *registry, uint64_t service_id,
                                const struct gid *address)
{
    struct registry_name request = {
        .service_id = service_id,
        .scope = REGISTRY_EXACT,
        .address = *address,
    };
    uint32_t found = REGISTRY_NO_SLOT;
    uint64_t best = 0;
    registry_lock(registry);
    for (uint32_t i = 0; i < claim_end(registry); i++) {
        const struct registry_claim *claim = &registry->file->claims[i];
        uint64_t fit = fitness(claim, &request);
        if (fit > best && claim_counts(registry, claim)) {
            found = claim->slot;
            best = fit;
        }
    }
    registry_unlock(registry);
    return found;
}
