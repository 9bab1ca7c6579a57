/* What a slot tells of its inbox. Written once by its holder, the incarnation last; cleared by who
 * buries it, the incarnation first. */
#include "rnic/io/registry/registry_private.h"

void registry_publish_inbox(struct registry *registry, const struct registry_inbox *inbox)
{
    struct registry_slot *slot = &registry->file->slots[registry->slot];
    atomic_store_explicit(&slot->inbox_process, inbox->thread, memory_order_relaxed);
    atomic_store_explicit(&slot->inbox_descriptor, inbox->descriptor, memory_order_relaxed);
    atomic_store_explicit(&slot->inbox, inbox->incarnation, memory_order_release);
}

bool registry_find_inbox(const struct registry *registry, uint32_t slot,
                         struct registry_inbox *ret_inbox)
{
    if (slot >= SLOT_COUNT) {
        return false;
    }
    struct registry_slot *entry = &registry->file->slots[slot];
    ret_inbox->incarnation = atomic_load_explicit(&entry->inbox, memory_order_acquire);
    ret_inbox->thread = atomic_load_explicit(&entry->inbox_process, memory_order_relaxed);
    ret_inbox->descriptor = atomic_load_explicit(&entry->inbox_descriptor, memory_order_relaxed);
    return ret_inbox->incarnation != 0;
}

bool registry_has_inbox(const struct registry *registry, uint32_t slot, uint64_t incarnation)
{
    return slot < SLOT_COUNT && atomic_load_explicit(&registry->file->slots[slot].inbox,
                                                     memory_order_acquire) == incarnation;
}
