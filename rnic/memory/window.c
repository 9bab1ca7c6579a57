/* Binding and its end. Invariant: a window's target counts it in `windows`, and one of type 2 is in
 * memory->bound exactly while it has a target. */
#include "rnic/memory/window.h"

#include "rnic/base/check.h"
#include "rnic/memory/memory_private.h"

#define RIGHTS  (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC)
#define CHANGES (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC)

static bool is_window(const struct region *region)
{
    return region->kind == KEY_WINDOW_1 || region->kind == KEY_WINDOW_2;
}

enum status window_allocate(struct memory *memory, struct domain domain, enum window_type type,
                            struct memory_key *ret_key)
{
    struct region_attributes attributes = {.domain = domain};
    if (!memory_domain_is_alive(memory, domain)) {
        return STATUS_INVALID;
    }
    enum key_kind kind = type == WINDOW_TYPE_1 ? KEY_WINDOW_1 : KEY_WINDOW_2;
    return memory_take_key(memory, kind, &attributes, ret_key) != NULL ? STATUS_OK : STATUS_FULL;
}

/* The window of that number, whatever its key is now. */
static struct region *find_window(const struct memory *memory, struct memory_key key)
{
    uint32_t number = key.value >> KEY_VARIANT_BITS;
    if (number == 0 || number > memory->region_numbers.used) {
        return NULL;
    }
    struct region *region = &memory->regions[number];
    return region->attributes.domain.value != 0 && is_window(region) ? region : NULL;
}

static void unbind(struct memory *memory, struct region *window)
{
    if (window->target == 0) {
        return;
    }
    struct region *target = &memory->regions[window->target];
    CHECK(target->windows > 0);
    target->windows--;
    window->target = 0;
    window->attributes = (struct region_attributes){.domain = window->attributes.domain};
    list_remove(&window->bound);
}

enum status window_free(struct memory *memory, struct memory_key key)
{
    struct region *window = find_window(memory, key);
    if (window == NULL) {
        return STATUS_NOT_FOUND;
    }
    unbind(memory, window);
    memory_give_key(memory, window);
    return STATUS_OK;
}

static enum status check_window(const struct region *window, const struct window_bind *bind)
{
    if ((bind->key.value ^ bind->window.value) >> KEY_VARIANT_BITS != 0) {
        return STATUS_INVALID;
    }
    if (window->kind == KEY_WINDOW_1) {
        bool zero_based = (bind->access & ACCESS_ZERO_BASED) != 0;
        return zero_based ? STATUS_INVALID : STATUS_OK; /* [IBA o10-36.2.2] */
    }
    if (window->target != 0) {
        return STATUS_STATE; /* [IBA o10-37.2.30] */
    }
    return bind->length == 0 ? STATUS_INVALID : STATUS_OK; /* [IBA o10-37.2.40] */
}

static enum status check_region(const struct region *region, struct domain domain,
                                const struct window_bind *bind)
{
    if (region == NULL || region->kind != KEY_REGION ||
        region->attributes.domain.value != domain.value) {
        return STATUS_NOT_FOUND;
    }
    const struct region_attributes *attributes = &region->attributes;
    bool changes = (bind->access & CHANGES) != 0;
    if ((attributes->access & ACCESS_BIND_WINDOW) == 0 ||
        (changes && (attributes->access & ACCESS_LOCAL_WRITE) == 0)) {
        return STATUS_DENIED; /* [IBA C10-73, C10-74] */
    }
    struct memory_request range = {.address = bind->address, .length = bind->length};
    return memory_check_range(attributes, &range) == MEMORY_GRANTED ? STATUS_OK
                                                                    : STATUS_OUT_OF_RANGE;
}

/* The part of the region that the window opens. */
static struct region_attributes opened(const struct region_attributes *region,
                                       const struct window_bind *bind)
{
    uint64_t offset = bind->address - region->address;
    return (struct region_attributes){
        .domain = region->domain,
        .address = (bind->access & ACCESS_ZERO_BASED) != 0 ? 0 : bind->address,
        .length = bind->length,
        .bytes = (uint8_t *)((uintptr_t)region->bytes + (uintptr_t)offset),
        .access = (bind->access & RIGHTS) | (region->access & ACCESS_ON_DEMAND),
    };
}

enum status window_bind(struct memory *memory, struct domain domain, struct qpn qpn,
                        const struct window_bind *bind)
{
    struct region *window = find_window(memory, bind->window);
    if (window == NULL || window->attributes.domain.value != domain.value) {
        return STATUS_NOT_FOUND; /* [IBA C10-72] */
    }
    struct region *region = NULL;
    enum status status = check_window(window, bind);
    if (status == STATUS_OK && bind->length > 0) {
        region = memory_find_key(memory, bind->region);
        status = check_region(region, domain, bind);
    }
    if (status != STATUS_OK) {
        return status;
    }
    unbind(memory, window);
    window->variant = (uint8_t)bind->key.value;
    if (region != NULL) {
        window->attributes = opened(&region->attributes, bind);
        window->target = bind->region.value >> KEY_VARIANT_BITS;
        region->windows++;
        if (window->kind == KEY_WINDOW_2) {
            window->qpn = qpn;
            list_append(&memory->bound, &window->bound);
        }
    }
    return STATUS_OK;
}

enum status window_invalidate(struct memory *memory, struct domain domain, struct qpn qpn,
                              struct memory_key key)
{
    struct region *window = memory_find_key(memory, key);
    if (window == NULL || window->attributes.domain.value != domain.value) {
        return STATUS_NOT_FOUND;
    }
    if (window->kind != KEY_WINDOW_2) {
        return STATUS_DENIED; /* [IBA o10-37.2.26] */
    }
    if (window->target == 0) {
        return STATUS_STATE;
    }
    if (!qpn_equal(window->qpn, qpn)) {
        return STATUS_DENIED;
    }
    unbind(memory, window);
    return STATUS_OK;
}

void window_forget(struct memory *memory, struct qpn qpn)
{
    LIST_FOR_EACH(node, &memory->bound)
    {
        struct region *window = CONTAINER_OF(node, struct region, bound);
        if (qpn_equal(window->qpn, qpn)) {
            unbind(memory, window);
        }
    }
}

enum memory_verdict window_check(const struct region *window, const struct memory_request *request)
{
    if (window->target == 0 || request->qpn.value == 0) {
        return MEMORY_NO_KEY;
    }
    bool other = window->kind == KEY_WINDOW_2 && !qpn_equal(window->qpn, request->qpn);
    return other ? MEMORY_WRONG_QP : MEMORY_GRANTED;
}
