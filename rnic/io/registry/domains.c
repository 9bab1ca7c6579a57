/* Which process has which shared XRC domain open. */
#include "rnic/io/registry/registry_private.h"

/* Locked. An entry of a dead process counts for nobody. */
static struct registry_domain *find(const struct registry *registry,
                                    const struct registry_domain *wanted, bool ours)
{
    for (uint32_t i = 0; i < REGISTRY_DOMAINS; i++) {
        struct registry_domain *entry = &registry->file->domains[i];
        if (entry->is_used && entry->slot < SLOT_COUNT && entry->space == wanted->space &&
            entry->name == wanted->name &&
            (ours ? entry->slot == registry->slot : registry_slot_lives(registry, entry->slot))) {
            return entry;
        }
    }
    return NULL;
}

static enum status hold(struct registry *registry, const struct registry_domain *wanted,
                        enum registry_hold how)
{
    bool is_open = find(registry, wanted, false) != NULL;
    if (is_open ? how == REGISTRY_HOLD_NEW : how == REGISTRY_HOLD_OPEN) {
        return is_open ? STATUS_IN_USE : STATUS_NOT_FOUND;
    }
    for (uint32_t i = 0; i < REGISTRY_DOMAINS; i++) {
        struct registry_domain *entry = &registry->file->domains[i];
        if (!entry->is_used) {
            *entry = *wanted;
            entry->is_used = 1; /* last: who is killed before it has claimed nothing */
            return STATUS_OK;
        }
    }
    return STATUS_FULL;
}

enum status registry_hold_domain(struct registry *registry, uint64_t space, uint64_t name,
                                 enum registry_hold how)
{
    if (registry == NULL) {
        return STATUS_STATE;
    }
    struct registry_domain wanted = {.slot = registry->slot, .space = space, .name = name};
    enum status status = registry_lock(registry);
    if (status == STATUS_OK) {
        status = hold(registry, &wanted, how);
        if (status == STATUS_FULL && registry_bury_dead(registry) > 0) {
            status = hold(registry, &wanted, how);
        }
        registry_unlock(registry);
    }
    return status;
}

void registry_release_domain(struct registry *registry, uint64_t space, uint64_t name)
{
    if (registry == NULL || registry_lock(registry) != STATUS_OK) {
        return; /* it ends with us */
    }
    struct registry_domain wanted = {.space = space, .name = name};
    struct registry_domain *entry = find(registry, &wanted, true);
    if (entry != NULL) {
        entry->is_used = 0;
    }
    registry_unlock(registry);
}

void domains_forget_slot(struct registry *registry, uint32_t slot)
{
    for (uint32_t i = 0; i < REGISTRY_DOMAINS; i++) {
        struct registry_domain *entry = &registry->file->domains[i];
        if (entry->slot == slot) {
            entry->is_used = 0;
        }
    }
}
