/* The tables of protection domains and regions, and the check of a key.
 *
 * A region's number is the index in its key; number 0 is never given out, so no key is 0 and no
 * number of a domain either. A freed number waits in a queue behind others, and its next key has
 * another variant: the same key comes again only after 256 registrations of that number, so a stale
 * one is refused. Numbers never used yet are not in that queue (`used` counts them), so creating a
 * large table touches none of it. */
#include "rnic/memory/memory.h"

#include <string.h>

#include "rnic/base/check.h"
#include "rnic/base/random.h"

#define KEY_VARIANT_BITS 8
#define KEY_INDEX_MAX    ((UINT32_C(1) << 24) - 1)
#define DOMAINS_MAX      32768u
#define REUSE_AFTER      1024u /* freed numbers that wait, as long as there are unused ones */

struct region {
    struct region_attributes attributes; /* domain 0: free */
    uint32_t next_free;
    uint8_t variant;
    uint8_t variant_step; /* odd, so that all variants pass before one comes again; 0: unused yet */
};

struct domain_entry {
    uint32_t next_free;
    uint32_t users; /* regions, queue pairs */
    bool alive;
};

/* Numbers 1 .. limit, the free ones linked through their entries' next_free. */
struct numbers {
    uint32_t limit;
    uint32_t used;                  /* 1 .. used have been given out at least once */
    uint32_t first_free, last_free; /* 0: none */
    uint32_t free;                  /* in the queue */
};

struct memory {
    struct allocator *allocator;
    struct random random;
    struct numbers region_numbers;
    struct numbers domain_numbers;
    struct region *regions; /* by number; entry 0 is not used */
    struct domain_entry *domains;
};

enum status memory_create(struct allocator *allocator, uint32_t max_regions, uint64_t seed,
                          struct memory **ret_memory)
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
    memory->domains =
        allocator->allocate(allocator, (DOMAINS_MAX + (size_t)1) * sizeof(struct domain_entry));
    if (memory->regions == NULL || memory->domains == NULL) {
        memory_destroy(memory);
        return STATUS_NO_MEMORY;
    }
    random_seed(&memory->random, seed);
    memory->region_numbers.limit = max_regions;
    memory->domain_numbers.limit = DOMAINS_MAX;
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

static bool is_sound(const struct memory *memory, const struct region_attributes *attributes)
{
    unsigned remote_change = attributes->access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC);
    return (remote_change == 0 || (attributes->access & ACCESS_LOCAL_WRITE) != 0) &&
           range_is_sound(attributes) && find_domain(memory, attributes->domain) != NULL;
}

enum status memory_register(struct memory *memory, const struct region_attributes *attributes,
                            struct memory_key *ret_key)
{
    if (!is_sound(memory, attributes)) {
        return STATUS_INVALID;
    }
    uint32_t number = region_number_take(memory);
    if (number == 0) {
        return STATUS_FULL;
    }
    struct region *region = &memory->regions[number];
    if (region->variant_step == 0) {
        uint64_t chance = random_u64(&memory->random);
        region->variant = (uint8_t)chance;
        region->variant_step = (uint8_t)(chance >> 8 | 1);
    }
    region->variant = (uint8_t)(region->variant + region->variant_step);
    region->attributes = *attributes;
    memory_domain_use(memory, attributes->domain, +1);
    *ret_key = (struct memory_key){number << KEY_VARIANT_BITS | region->variant};
    return STATUS_OK;
}

static struct region *find_region(const struct memory *memory, struct memory_key key)
{
    uint32_t number = key.value >> KEY_VARIANT_BITS;
    if (number > memory->region_numbers.used) {
        return NULL;
    }
    struct region *region = &memory->regions[number];
    bool fits = region->attributes.domain.value != 0 && region->variant == (uint8_t)key.value;
    return fits ? region : NULL;
}

enum status memory_deregister(struct memory *memory, struct memory_key key)
{
    struct region *region = find_region(memory, key);
    if (region == NULL) {
        return STATUS_NOT_FOUND;
    }
    memory_domain_use(memory, region->attributes.domain, -1);
    memset(&region->attributes, 0, sizeof region->attributes);
    region_number_give(memory, key.value >> KEY_VARIANT_BITS);
    return STATUS_OK;
}

enum status memory_reregister(struct memory *memory, struct memory_key key,
                              const struct region_attributes *attributes)
{
    struct region *region = find_region(memory, key);
    if (region == NULL) {
        return STATUS_NOT_FOUND;
    }
    if (!is_sound(memory, attributes)) {
        return STATUS_INVALID;
    }
    memory_domain_use(memory, region->attributes.domain, -1);
    memory_domain_use(memory, attributes->domain, +1);
    region->attributes = *attributes;
    return STATUS_OK;
}

enum status memory_invalidate(struct memory *memory, struct domain domain, struct memory_key key)
{
    const struct region *region = find_region(memory, key);
    if (region == NULL || region->attributes.domain.value != domain.value) {
        return STATUS_NOT_FOUND;
    }
    return STATUS_DENIED;
}

enum memory_verdict memory_check(const struct memory *memory, const struct memory_request *request,
                                 uint8_t **ret_bytes)
{
    if (request->length == 0) {
        *ret_bytes = NULL;
        return MEMORY_GRANTED;
    }
    const struct region *region = find_region(memory, request->key);
    if (region == NULL) {
        return MEMORY_NO_KEY;
    }
    const struct region_attributes *attributes = &region->attributes;
    if (attributes->domain.value != request->domain.value) {
        return MEMORY_WRONG_DOMAIN;
    }
    /* An address below the region's wraps to an offset that only an even longer region would hold,
     * and range_is_sound has refused that one. */
    uint64_t offset = request->address - attributes->address;
    if (offset > attributes->length || request->length > attributes->length - offset) {
        return MEMORY_OUT_OF_RANGE;
    }
    if ((attributes->access & request->rights) != request->rights) {
        return MEMORY_NO_RIGHT;
    }
    *ret_bytes = (uint8_t *)((uintptr_t)attributes->bytes + (uintptr_t)offset);
    return MEMORY_GRANTED;
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
    case MEMORY_OUT_OF_RANGE:
        return "outside the region";
    case MEMORY_NO_RIGHT:
        return "access not allowed";
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
