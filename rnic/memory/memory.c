/* The tables of protection domains and keys, and the check of a key. Windows: window.c.
 *
 * A region's number is the index in its key; number 0 is never given out, so no key is 0 and no
 * number of a domain either. A freed number waits in a queue behind others, and its next key has
 * another variant: the same key comes again only after 256 registrations of that number, so a stale
 * one is refused; but variants of a window are its user's choice. Numbers never used yet are not in
 * that queue (`used` counts them), so creating a large table touches none of it. */
#include "rnic/memory/memory.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/memory/memory_private.h"

#define KEY_INDEX_MAX ((UINT32_C(1) << 24) - 1)
#define REUSE_AFTER   1024u /* freed numbers that wait, as long as there are unused ones */

static uint8_t zeroes[PACKET_PAYLOAD_MAX]; /* what a null region holds; never written */

enum status memory_create(struct allocator *allocator, uint32_t max_regions,
                          const struct siphash_key *key, struct memory **ret_memory)
{
    if (max_regions > KEY_INDEX_MAX) {
        return STATUS_INVALID;
    }
    struct memory *memory = allocator->allocate(allocator, sizeof *memory);
    if (memory == NULL) {
        return STATUS_NO_MEMORY;
    }
    memory->allocator = allocator;
    memory->regions =
        allocator->allocate(allocator, (max_regions + (size_t)1) * sizeof(struct region));
    memory->domains = allocator->allocate(allocator, (MEMORY_DOMAINS_MAX + (size_t)1) *
                                                         sizeof(struct domain_entry));
    if (memory->regions == NULL || memory->domains == NULL) {
        memory_destroy(memory);
        return STATUS_NO_MEMORY;
    }
    memory->secret = secret_init(key);
    list_init(&memory->bound);
    memory->region_numbers.limit = max_regions;
    memory->domain_numbers.limit = MEMORY_DOMAINS_MAX;
    *ret_memory = memory;
    return STATUS_OK;
}

void memory_destroy(struct memory *memory)
{
    if (memory != NULL) {
        struct allocator *allocator = memory->allocator;
        allocator->release(allocator, memory->domains);
        allocator->release(allocator, memory->regions);
        allocator->release(allocator, memory);
    }
}

static uint32_t numbers_alive(const struct numbers *numbers)
{
    return numbers->used - numbers->free;
}

/* 0: none. */
static uint32_t region_number_take(struct memory *memory)
{
    struct numbers *numbers = &memory->region_numbers;
    if (numbers->used < numbers->limit && numbers->free < REUSE_AFTER) {
        return ++numbers->used;
    }
    uint32_t number = numbers->first_free;
    if (number != 0) {
        numbers->first_free = memory->regions[number].next_free;
        numbers->free--;
    }
    return number;
}

static void region_number_give(struct memory *memory, uint32_t number)
{
    struct numbers *numbers = &memory->region_numbers;
    memory->regions[number].next_free = 0;
    if (numbers->first_free == 0) {
        numbers->first_free = number;
    } else {
        memory->regions[numbers->last_free].next_free = number;
    }
    numbers->last_free = number;
    numbers->free++;
}

static struct domain_entry *find_domain(const struct memory *memory, struct domain domain)
{
    if (domain.value > memory->domain_numbers.used || !memory->domains[domain.value].alive) {
        return NULL;
    }
    return &memory->domains[domain.value];
}

enum status memory_allocate_domain(struct memory *memory, struct domain *ret_domain)
{
    struct numbers *numbers = &memory->domain_numbers;
    uint32_t number = numbers->first_free;
    if (number != 0) {
        numbers->first_free = memory->domains[number].next_free;
        numbers->free--;
    } else if (numbers->used < numbers->limit) {
        number = ++numbers->used;
    } else {
        return STATUS_FULL;
    }
    memory->domains[number] = (struct domain_entry){.alive = true};
    *ret_domain = (struct domain){number};
    return STATUS_OK;
}

enum status memory_free_domain(struct memory *memory, struct domain domain)
{
    struct domain_entry *entry = find_domain(memory, domain);
    if (entry == NULL) {
        return STATUS_NOT_FOUND;
    }
    if (entry->users > 0) {
        return STATUS_BUSY;
    }
    struct numbers *numbers = &memory->domain_numbers;
    *entry = (struct domain_entry){.next_free = numbers->first_free};
    numbers->first_free = domain.value;
    numbers->free++;
    return STATUS_OK;
}

void memory_domain_use(struct memory *memory, struct domain domain, int change)
{
    struct domain_entry *entry = find_domain(memory, domain);
    CHECK(entry != NULL);
    CHECK(change >= 0 || entry->users >= (uint32_t)-change);
    entry->users += (uint32_t)change;
}

/* True if no address of the range lies beyond 2^64, on either side of the mapping. */
static bool range_is_sound(const struct region_attributes *attributes)
{
    uint64_t length = attributes->length;
    return length == 0 || (length - 1 <= UINT64_MAX - attributes->address &&
                           length - 1 <= UINTPTR_MAX - (uintptr_t)attributes->bytes);
}

bool memory_domain_is_alive(const struct memory *memory, struct domain domain)
{
    return find_domain(memory, domain) != NULL;
}

static bool is_sound(const struct memory *memory, const struct region_attributes *attributes)
{
    unsigned remote_change = attributes->access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC);
    return (remote_change == 0 || (attributes->access & ACCESS_LOCAL_WRITE) != 0) &&
           range_is_sound(attributes) && find_domain(memory, attributes->domain) != NULL;
}

struct region *memory_take_key(struct memory *memory, enum key_kind kind,
                               const struct region_attributes *attributes,
                               struct memory_key *ret_key)
{
    uint32_t number = region_number_take(memory);
    if (number == 0) {
        return NULL;
    }
    struct region *region = &memory->regions[number];
    if (region->variant_step == 0) {
        uint64_t chance = secret_u64(&memory->secret);
        region->variant = (uint8_t)chance;
        region->variant_step = (uint8_t)(chance >> 8 | 1);
    }
    region->variant = (uint8_t)(region->variant + region->variant_step);
    region->kind = (uint8_t)kind;
    region->attributes = *attributes;
    memory_domain_use(memory, attributes->domain, +1);
    *ret_key = (struct memory_key){number << KEY_VARIANT_BITS | region->variant};
    return region;
}

static void tell_opened(const struct memory *memory, const struct region *region,
                        struct memory_key key)
{
    struct memory_observer *observer = memory->observer;
    if (observer != NULL) {
        observer->opened(observer, key, &region->attributes);
    }
}

static void tell_closed(const struct memory *memory, const struct region *region,
                        struct memory_key key)
{
    struct memory_observer *observer = memory->observer;
    if (observer != NULL && region->kind != KEY_NULL) {
        observer->closed(observer, key);
    }
}

void memory_give_key(struct memory *memory, struct region *region)
{
    memory_domain_use(memory, region->attributes.domain, -1);
    memset(&region->attributes, 0, sizeof region->attributes);
    region_number_give(memory, (uint32_t)(region - memory->regions));
}

enum status memory_register(struct memory *memory, const struct region_attributes *attributes,
                            struct memory_key *ret_key)
{
    if (!is_sound(memory, attributes)) {
        return STATUS_INVALID;
    }
    const struct region *region = memory_take_key(memory, KEY_REGION, attributes, ret_key);
    if (region == NULL) {
        return STATUS_FULL;
    }
    tell_opened(memory, region, *ret_key);
    return STATUS_OK;
}

enum status memory_register_null(struct memory *memory, struct domain domain,
                                 struct memory_key *ret_key)
{
    struct region_attributes attributes = {
        .domain = domain, .length = UINT64_MAX, .access = ACCESS_LOCAL_WRITE};
    if (!memory_domain_is_alive(memory, domain)) {
        return STATUS_INVALID;
    }
    return memory_take_key(memory, KEY_NULL, &attributes, ret_key) != NULL ? STATUS_OK
                                                                           : STATUS_FULL;
}

struct region *memory_find_key(const struct memory *memory, struct memory_key key)
{
    uint32_t number = key.value >> KEY_VARIANT_BITS;
    if (number > memory->region_numbers.used) {
        return NULL;
    }
    struct region *region = &memory->regions[number];
    bool fits = region->attributes.domain.value != 0 && region->variant == (uint8_t)key.value;
    return fits ? region : NULL;
}

static bool is_region(const struct region *region)
{
    return region != NULL && (region->kind == KEY_REGION || region->kind == KEY_NULL);
}

enum status memory_deregister(struct memory *memory, struct memory_key key)
{
    struct region *region = memory_find_key(memory, key);
    if (!is_region(region)) {
        return STATUS_NOT_FOUND;
    }
    if (region->windows > 0) {
        return STATUS_BUSY;
    }
    tell_closed(memory, region, key);
    memory_give_key(memory, region);
    return STATUS_OK;
}

enum status memory_reregister(struct memory *memory, struct memory_key key,
                              const struct region_attributes *attributes)
{
    struct region *region = memory_find_key(memory, key);
    if (!is_region(region)) {
        return STATUS_NOT_FOUND;
    }
    if (region->kind == KEY_NULL || !is_sound(memory, attributes)) {
        return STATUS_INVALID;
    }
    if (region->windows > 0) {
        return STATUS_BUSY;
    }
    tell_closed(memory, region, key);
    memory_domain_use(memory, region->attributes.domain, -1);
    memory_domain_use(memory, attributes->domain, +1);
    region->attributes = *attributes;
    tell_opened(memory, region, key);
    return STATUS_OK;
}

enum status memory_find_region(const struct memory *memory, struct domain domain, uint32_t number,
                               struct memory_key *ret_key, struct region_attributes *ret_attributes)
{
    if (number == 0 || number > memory->region_numbers.used) {
        return STATUS_NOT_FOUND;
    }
    const struct region *region = &memory->regions[number];
    if (region->attributes.domain.value != domain.value || !is_region(region)) {
        return STATUS_NOT_FOUND;
    }
    *ret_key = (struct memory_key){number << KEY_VARIANT_BITS | region->variant};
    *ret_attributes = region->attributes;
    return STATUS_OK;
}

void memory_set_observer(struct memory *memory, struct memory_observer *observer)
{
    memory->observer = observer;
}

void memory_set_probe(struct memory *memory, struct memory_probe *probe)
{
    memory->probe = probe;
}

enum memory_verdict memory_check_range(const struct region_attributes *attributes,
                                       const struct memory_request *request)
{
    /* An address below the region's wraps to an offset that only an even longer region would hold,
     * and range_is_sound has refused that one. */
    uint64_t offset = request->address - attributes->address;
    if (offset > attributes->length || request->length > attributes->length - offset) {
        return MEMORY_OUT_OF_RANGE;
    }
    return (attributes->access & request->rights) == request->rights ? MEMORY_GRANTED
                                                                     : MEMORY_NO_RIGHT;
}

/* Only of bytes in hand: a claim to a whole message says nothing about when they are touched. */
static bool is_mapped(const struct memory *memory, const struct memory_request *request,
                      uint8_t *bytes)
{
    bool write = (request->rights & MEMORY_CHANGES) != 0;
    bool claimed = !request->is_touched && request->length > PACKET_PAYLOAD_MAX;
    return memory->probe == NULL || claimed ||
           memory->probe->is_mapped(memory->probe, bytes, request->length, write);
}

bool memory_is_region(const struct memory *memory, struct memory_key key)
{
    const struct region *region = memory_find_key(memory, key);
    return region != NULL && region->kind == KEY_REGION;
}

bool memory_is_steady(const struct memory *memory, struct memory_key key)
{
    const struct region *region = memory_find_key(memory, key);
    return region != NULL && region->kind == KEY_REGION &&
           (region->attributes.access & ACCESS_ON_DEMAND) == 0;
}

/* Reads find zeroes and writes vanish, so the address does not matter. */
static enum memory_verdict check_null(const struct memory *memory,
                                      const struct memory_request *request, uint8_t **ret_bytes)
{
    if (request->qpn.value != 0) {
        return MEMORY_NO_KEY; /* no peer reaches it */
    }
    if (request->length > PACKET_PAYLOAD_MAX) {
        *ret_bytes = NULL; /* a claim, see is_mapped */
        return MEMORY_GRANTED;
    }
    bool write = (request->rights & MEMORY_CHANGES) != 0;
    *ret_bytes = write ? (uint8_t *)memory->discard : zeroes;
    return MEMORY_GRANTED;
}

enum memory_verdict memory_check(const struct memory *memory, const struct memory_request *request,
                                 uint8_t **ret_bytes)
{
    if (request->length == 0) {
        *ret_bytes = NULL;
        return MEMORY_GRANTED;
    }
    const struct region *region = memory_find_key(memory, request->key);
    if (region == NULL) {
        return MEMORY_NO_KEY;
    }
    const struct region_attributes *attributes = &region->attributes;
    if (attributes->domain.value != request->domain.value) {
        return MEMORY_WRONG_DOMAIN;
    }
    enum memory_verdict verdict = MEMORY_GRANTED;
    if (region->kind == KEY_WINDOW_1 || region->kind == KEY_WINDOW_2) {
        verdict = window_check(region, request);
    }
    if (verdict == MEMORY_GRANTED) {
        verdict = memory_check_range(attributes, request);
    }
    if (verdict != MEMORY_GRANTED) {
        return verdict;
    }
    if (region->kind == KEY_NULL) {
        return check_null(memory, request, ret_bytes);
    }
    uint64_t offset = request->address - attributes->address;
    uint8_t *bytes = (uint8_t *)((uintptr_t)attributes->bytes + (uintptr_t)offset);
    if ((attributes->access & ACCESS_ON_DEMAND) != 0 && !is_mapped(memory, request, bytes)) {
        return MEMORY_NOT_MAPPED;
    }
    *ret_bytes = bytes;
    return MEMORY_GRANTED;
}

uint8_t *memory_find(const struct memory *memory, const struct memory_request *request)
{
    const struct region *region = memory_find_key(memory, request->key);
    if (region == NULL) {
        return NULL;
    }
    const struct region_attributes *attributes = &region->attributes;
    bool is_granted = region->kind == KEY_REGION && (attributes->access & ACCESS_ON_DEMAND) == 0 &&
                      attributes->domain.value == request->domain.value &&
                      memory_check_range(attributes, request) == MEMORY_GRANTED;
    uint64_t offset = request->address - attributes->address;
    return is_granted ? (uint8_t *)((uintptr_t)attributes->bytes + (uintptr_t)offset) : NULL;
}

const char *memory_verdict_name(enum memory_verdict verdict)
{
    switch (verdict) {
    case MEMORY_GRANTED:
        return "granted";
    case MEMORY_NO_KEY:
        return "no such key";
    case MEMORY_WRONG_DOMAIN:
        return "key of another protection domain";
    case MEMORY_WRONG_QP:
        return "window of another queue pair";
    case MEMORY_OUT_OF_RANGE:
        return "outside the region";
    case MEMORY_NO_RIGHT:
        return "access not allowed";
    case MEMORY_NOT_MAPPED:
        return "no memory there";
    }
    return "unknown";
}

uint32_t memory_region_count(const struct memory *memory)
{
    return numbers_alive(&memory->region_numbers);
}

uint32_t memory_domain_count(const struct memory *memory)
{
    return numbers_alive(&memory->domain_numbers);
}
