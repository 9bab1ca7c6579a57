#include "rnic/memory/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/heap.h"

static uint8_t bytes[4096];

static struct memory *create(uint32_t max_regions)
{
    struct memory *memory;
    assert_int_equal(
        memory_create(heap_allocator(), max_regions, &(struct siphash_key){{1}}, &memory),
        STATUS_OK);
    return memory;
}

static struct domain allocate_domain(struct memory *memory)
{
    struct domain domain;
    assert_int_equal(memory_allocate_domain(memory, &domain), STATUS_OK);
    return domain;
}

static struct memory_key register_at(struct memory *memory, struct domain domain, uint64_t address,
                                     uint64_t length, unsigned access)
{
    struct region_attributes attributes = {domain, address, length, bytes, access};
    struct memory_key key;
    assert_int_equal(memory_register(memory, &attributes, &key), STATUS_OK);
    return key;
}

static enum memory_verdict check(struct memory *memory, struct domain domain, struct memory_key key,
                                 uint64_t address, uint64_t length, unsigned rights,
                                 uint8_t **ret_bytes)
{
    struct memory_request request = {domain, key, address, length, rights, {0}, false};
    enum memory_verdict verdict = memory_check(memory, &request, ret_bytes);
    const uint8_t *found = length > 0 ? memory_find(memory, &request) : NULL;
    assert_true(found == NULL || (verdict == MEMORY_GRANTED && found == *ret_bytes));
    return verdict;
}

static void a_key_grants_its_range_and_rights(void **state)
{
    struct memory *memory = create(4);
    struct domain domain = allocate_domain(memory);
    struct domain other = allocate_domain(memory);
    struct memory_key key =
        register_at(memory, domain, 0x10000, 4096, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ);
    struct {
        uint64_t address, length;
        unsigned rights;
        enum memory_verdict verdict;
    } rows[] = {
        {0x10000, 4096, ACCESS_LOCAL_WRITE, MEMORY_GRANTED},
        {0x10000, 1, ACCESS_LOCAL_READ, MEMORY_GRANTED},
        {0x10fff, 1, ACCESS_REMOTE_READ, MEMORY_GRANTED},
        {0x10fff, 1, ACCESS_REMOTE_READ | ACCESS_LOCAL_WRITE, MEMORY_GRANTED},
        {0x10fff, 1, ACCESS_REMOTE_WRITE, MEMORY_NO_RIGHT},
        {0x10fff, 1, ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC, MEMORY_NO_RIGHT},
        {0x10000, 4097, 0, MEMORY_OUT_OF_RANGE},
        {0x0ffff, 1, 0, MEMORY_OUT_OF_RANGE},
        {0x0ffff, 2, 0, MEMORY_OUT_OF_RANGE},
        {0x11000, 1, 0, MEMORY_OUT_OF_RANGE},
        {0x10001, UINT64_MAX, 0, MEMORY_OUT_OF_RANGE},
        {0x10000, UINT64_MAX, 0, MEMORY_OUT_OF_RANGE},
        {UINT64_MAX, 1, 0, MEMORY_OUT_OF_RANGE},
        {UINT64_MAX, UINT64_MAX, 0, MEMORY_OUT_OF_RANGE},
        {0, 1, 0, MEMORY_OUT_OF_RANGE},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t *at = NULL;
        assert_int_equal(
            check(memory, domain, key, rows[i].address, rows[i].length, rows[i].rights, &at),
            rows[i].verdict);
        if (rows[i].verdict == MEMORY_GRANTED) {
            assert_ptr_equal(at, bytes + (rows[i].address - 0x10000));
        } else {
            assert_null(at);
        }
    }
    uint8_t *at = bytes;
    assert_int_equal(check(memory, other, key, 0x10000, 1, 0, &at), MEMORY_WRONG_DOMAIN);
    assert_ptr_equal(at, bytes);
    assert_int_equal(check(memory, other, (struct memory_key){0}, 0, 0, ~0u, &at), MEMORY_GRANTED);
    assert_null(at); /* nothing asked: nothing looked at */
    memory_destroy(memory);
}

static void only_the_exact_key_fits(void **state)
{
    struct memory *memory = create(2);
    struct domain domain = allocate_domain(memory);
    struct memory_key key = register_at(memory, domain, 0, 8, 0);
    uint8_t *at;
    unsigned granted = 0;
    for (uint32_t value = 0; value < 1024; value++) {
        struct memory_key guess = {value};
        bool fits = check(memory, domain, guess, 0, 1, 0, &at) == MEMORY_GRANTED;
        assert_true(!fits || guess.value == key.value);
        granted += fits;
    }
    assert_int_equal(granted, 1);
    assert_int_equal(check(memory, domain, (struct memory_key){UINT32_MAX}, 0, 1, 0, &at),
                     MEMORY_NO_KEY);
    memory_destroy(memory);
}

static void stale_keys_are_refused(void **state)
{
    struct memory *memory = create(2);
    struct domain domain = allocate_domain(memory);
    struct memory_key past[256];
    uint8_t *at;
    for (unsigned i = 0; i < 256; i++) { /* two numbers take turns: 128 variants each */
        struct memory_key key = register_at(memory, domain, 0, 8, 0);
        assert_int_equal(check(memory, domain, key, 0, 8, 0, &at), MEMORY_GRANTED);
        for (unsigned j = 0; j < i; j++) {
            assert_int_equal(check(memory, domain, past[j], 0, 8, 0, &at), MEMORY_NO_KEY);
        }
        past[i] = key;
        assert_int_equal(memory_deregister(memory, key), STATUS_OK);
        assert_int_equal(check(memory, domain, key, 0, 8, 0, &at), MEMORY_NO_KEY);
        assert_int_equal(memory_deregister(memory, key), STATUS_NOT_FOUND);
    }
    assert_int_equal(memory_region_count(memory), 0);
    memory_destroy(memory);
}

static void capacity_is_exact(void **state)
{
    struct memory *memory = create(3);
    struct domain domain = allocate_domain(memory);
    struct memory_key keys[3];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++) {
            keys[i] = register_at(memory, domain, 0, 8, 0);
        }
        struct region_attributes attributes = {domain, 0, 8, bytes, 0};
        struct memory_key key = {77};
        assert_int_equal(memory_register(memory, &attributes, &key), STATUS_FULL);
        assert_int_equal(key.value, 77);
        assert_int_equal(memory_region_count(memory), 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(memory_deregister(memory, keys[(i + round) % 3]), STATUS_OK);
        }
    }
    memory_destroy(memory);

    memory = NULL;
    assert_int_equal(memory_create(heap_allocator(), 1u << 24, &(struct siphash_key){{1}}, &memory),
                     STATUS_INVALID);
    assert_null(memory);
    memory_destroy(NULL);
}

static void what_cannot_be_registered(void **state)
{
    struct memory *memory = create(4);
    struct domain domain = allocate_domain(memory);
    const struct region_attributes wrong[] = {
        {domain, 0, 8, bytes, ACCESS_REMOTE_WRITE},
        {domain, 0, 8, bytes, ACCESS_REMOTE_ATOMIC | ACCESS_REMOTE_READ},
        {domain, UINT64_MAX, 2, bytes, 0},
        {domain, 2, UINT64_MAX, bytes, 0},
        {domain, 0, UINT64_MAX, bytes, 0},
        {{0}, 0, 8, bytes, 0},
        {{domain.value + 1}, 0, 8, bytes, 0},
        {{UINT32_MAX}, 0, 8, bytes, 0},
    };
    struct memory_key key;
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(memory_register(memory, &wrong[i], &key), STATUS_INVALID);
    }
    assert_int_equal(memory_region_count(memory), 0);

    uint8_t *at;
    key = register_at(memory, domain, UINT64_MAX, 1, 0); /* the very last address */
    assert_int_equal(check(memory, domain, key, UINT64_MAX, 1, 0, &at), MEMORY_GRANTED);
    assert_int_equal(check(memory, domain, key, UINT64_MAX, 2, 0, &at), MEMORY_OUT_OF_RANGE);
    assert_int_equal(check(memory, domain, key, 0, 1, 0, &at), MEMORY_OUT_OF_RANGE);
    key = register_at(memory, domain, 0x5000, 0, 0); /* an empty region grants nothing */
    assert_int_equal(check(memory, domain, key, 0x5000, 1, 0, &at), MEMORY_OUT_OF_RANGE);
    memory_destroy(memory);
}

static void domains_outlive_their_users(void **state)
{
    struct memory *memory = create(4);
    struct domain domain = allocate_domain(memory);
    assert_int_not_equal(domain.value, 0);
    assert_int_equal(memory_domain_count(memory), 1);
    struct memory_key key = register_at(memory, domain, 0, 8, 0);
    memory_domain_use(memory, domain, +1);
    assert_int_equal(memory_free_domain(memory, domain), STATUS_BUSY);
    assert_int_equal(memory_deregister(memory, key), STATUS_OK);
    assert_int_equal(memory_free_domain(memory, domain), STATUS_BUSY);
    memory_domain_use(memory, domain, -1);
    assert_int_equal(memory_free_domain(memory, domain), STATUS_OK);
    assert_int_equal(memory_free_domain(memory, domain), STATUS_NOT_FOUND);
    assert_int_equal(memory_free_domain(memory, (struct domain){0}), STATUS_NOT_FOUND);
    assert_int_equal(memory_free_domain(memory, (struct domain){1234}), STATUS_NOT_FOUND);
    assert_int_equal(memory_domain_count(memory), 0);
    memory_destroy(memory);
}

static void a_key_can_be_given_another_meaning(void **state)
{
    (void)state;
    struct memory *memory = create(4);
    struct domain domain = allocate_domain(memory);
    struct domain other = allocate_domain(memory);
    struct memory_key key = register_at(memory, domain, 0x1000, 64, ACCESS_LOCAL_WRITE);
    uint8_t *at = NULL;
    struct region_attributes wrong = {other, 0x2000, 32, bytes, ACCESS_REMOTE_WRITE};
    assert_int_equal(memory_reregister(memory, key, &wrong), STATUS_INVALID);
    assert_int_equal(check(memory, domain, key, 0x1000, 64, ACCESS_LOCAL_WRITE, &at),
                     MEMORY_GRANTED);
    struct region_attributes next = {other, 0x2000, 32, bytes + 8, 0};
    assert_int_equal(memory_reregister(memory, key, &next), STATUS_OK);
    assert_int_equal(check(memory, domain, key, 0x2000, 8, 0, &at), MEMORY_WRONG_DOMAIN);
    assert_int_equal(check(memory, other, key, 0x1000, 8, 0, &at), MEMORY_OUT_OF_RANGE);
    assert_int_equal(check(memory, other, key, 0x2000, 8, ACCESS_LOCAL_WRITE, &at),
                     MEMORY_NO_RIGHT);
    assert_int_equal(check(memory, other, key, 0x2000, 32, 0, &at), MEMORY_GRANTED);
    assert_ptr_equal(at, bytes + 8);
    assert_int_equal(memory_free_domain(memory, domain), STATUS_OK);
    assert_int_equal(memory_deregister(memory, key), STATUS_OK);
    assert_int_equal(memory_reregister(memory, key, &next), STATUS_NOT_FOUND);
    assert_int_equal(memory_free_domain(memory, other), STATUS_OK);
    memory_destroy(memory);
}

static void a_null_region_gives_zeroes_and_keeps_nothing(void **state)
{
    (void)state;
    struct memory *memory = create(4);
    struct domain domain = allocate_domain(memory);
    struct memory_key key;
    assert_int_equal(memory_register_null(memory, (struct domain){0}, &key), STATUS_INVALID);
    assert_int_equal(memory_register_null(memory, domain, &key), STATUS_OK);
    uint8_t *to = NULL, *from = NULL;
    assert_int_equal(check(memory, domain, key, 0xdead0000, 8, ACCESS_LOCAL_WRITE, &to),
                     MEMORY_GRANTED);
    memset(to, 0xff, 8);
    assert_int_equal(check(memory, domain, key, 0xdead0000, 4096, 0, &from), MEMORY_GRANTED);
    for (int i = 0; i < 4096; i++) {
        assert_int_equal(from[i], 0);
    }
    assert_int_equal(check(memory, domain, key, 0, 4097, 0, &from), MEMORY_GRANTED);
    assert_null(from);
    assert_int_equal(check(memory, domain, key, 0, 8, ACCESS_REMOTE_READ, &from), MEMORY_NO_RIGHT);
    struct memory_request peer = {domain, key, 0, 8, 0, {77}, false};
    assert_int_equal(memory_check(memory, &peer, &from), MEMORY_NO_KEY);
    struct region_attributes other = {domain, 0, 8, bytes, 0};
    assert_int_equal(memory_reregister(memory, key, &other), STATUS_INVALID);
    assert_int_equal(memory_deregister(memory, key), STATUS_OK);
    assert_int_equal(memory_free_domain(memory, domain), STATUS_OK);
    memory_destroy(memory);
}

struct half {
    struct memory_probe probe; /* first */
    uint32_t asked;
};

/* The upper half of `bytes` is missing, and the lower may not be written. */
static bool half_is_mapped(struct memory_probe *probe, uint8_t *at, uint64_t length, bool write)
{
    ((struct half *)probe)->asked++;
    return !write && at + length <= bytes + sizeof bytes / 2;
}

static void pages_on_demand_may_be_missing(void **state)
{
    (void)state;
    struct memory *memory = create(4);
    struct domain domain = allocate_domain(memory);
    struct half half = {{half_is_mapped}, 0};
    memory_set_probe(memory, &half.probe);
    struct memory_key pinned = register_at(memory, domain, 0, 4096, ACCESS_LOCAL_WRITE);
    struct memory_key key =
        register_at(memory, domain, 0, 4096, ACCESS_LOCAL_WRITE | ACCESS_ON_DEMAND);
    uint8_t *at = NULL;
    assert_int_equal(check(memory, domain, pinned, 4000, 8, 0, &at), MEMORY_GRANTED);
    assert_int_equal(half.asked, 0);
    assert_int_equal(check(memory, domain, key, 0, 8, 0, &at), MEMORY_GRANTED);
    assert_int_equal(check(memory, domain, key, 4000, 8, 0, &at), MEMORY_NOT_MAPPED);
    assert_int_equal(check(memory, domain, key, 0, 8, ACCESS_LOCAL_WRITE, &at), MEMORY_NOT_MAPPED);
    assert_int_equal(half.asked, 3);
    assert_int_equal(check(memory, domain, key, 0, 4097, 0, &at), MEMORY_OUT_OF_RANGE);
    assert_int_equal(half.asked, 3);
    memory_destroy(memory);
}

static void only_pages_that_stay_are_steady(void **state)
{
    (void)state;
    struct memory *memory = create(4);
    struct domain domain = allocate_domain(memory);
    struct memory_key pinned = register_at(memory, domain, 0, 4096, ACCESS_LOCAL_WRITE), null;
    struct memory_key key =
        register_at(memory, domain, 0, 4096, ACCESS_LOCAL_WRITE | ACCESS_ON_DEMAND);
    assert_int_equal(memory_register_null(memory, domain, &null), STATUS_OK);
    assert_true(memory_is_steady(memory, pinned));
    assert_false(memory_is_steady(memory, key));
    assert_false(memory_is_steady(memory, null));
    assert_int_equal(memory_deregister(memory, pinned), STATUS_OK);
    assert_false(memory_is_steady(memory, pinned));
    memory_destroy(memory);
}

static void a_region_is_found_by_its_number(void **state)
{
    (void)state;
    struct memory *memory = create(4);
    struct domain domain = allocate_domain(memory);
    struct domain other = allocate_domain(memory);
    struct memory_key key = register_at(memory, domain, 0x1000, 64, ACCESS_LOCAL_WRITE), found;
    struct region_attributes attributes;
    uint32_t number = key.value >> 8;
    assert_int_equal(memory_find_region(memory, domain, number, &found, &attributes), STATUS_OK);
    assert_int_equal(found.value, key.value);
    assert_int_equal(attributes.address, 0x1000);
    assert_int_equal(memory_find_region(memory, other, number, &found, &attributes),
                     STATUS_NOT_FOUND);
    assert_int_equal(memory_find_region(memory, domain, 0, &found, &attributes), STATUS_NOT_FOUND);
    assert_int_equal(memory_find_region(memory, domain, number + 1, &found, &attributes),
                     STATUS_NOT_FOUND);
    assert_int_equal(memory_deregister(memory, key), STATUS_OK);
    assert_int_equal(memory_find_region(memory, domain, number, &found, &attributes),
                     STATUS_NOT_FOUND);
    memory_destroy(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_grants_its_range_and_rights),
        cmocka_unit_test(only_the_exact_key_fits),
        cmocka_unit_test(stale_keys_are_refused),
        cmocka_unit_test(capacity_is_exact),
        cmocka_unit_test(what_cannot_be_registered),
        cmocka_unit_test(domains_outlive_their_users),
        cmocka_unit_test(a_key_can_be_given_another_meaning),
        cmocka_unit_test(a_null_region_gives_zeroes_and_keeps_nothing),
        cmocka_unit_test(pages_on_demand_may_be_missing),
        cmocka_unit_test(only_pages_that_stay_are_steady),
        cmocka_unit_test(a_region_is_found_by_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
