#include "rnic/memory/window.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/heap.h"

#define BASE   0x10000u
#define LOCAL  ((struct qpn){0})
#define MINE   ((struct qpn){100})
#define OTHERS ((struct qpn){200})

static uint8_t bytes[4096];

struct fixture {
    struct memory *memory;
    struct domain domain, other;
    struct memory_key region;
};

static struct memory_key register_in(struct fixture *f, struct domain domain, unsigned access)
{
    struct region_attributes attributes = {domain, BASE, sizeof bytes, bytes, access};
    struct memory_key key;
    assert_int_equal(memory_register(f->memory, &attributes, &key), STATUS_OK);
    return key;
}

static int start(void **state)
{
    static struct fixture f;
    assert_int_equal(memory_create(heap_allocator(), 16, &(struct siphash_key){{1}}, &f.memory),
                     STATUS_OK);
    assert_int_equal(memory_allocate_domain(f.memory, &f.domain), STATUS_OK);
    assert_int_equal(memory_allocate_domain(f.memory, &f.other), STATUS_OK);
    f.region = register_in(&f, f.domain, ACCESS_LOCAL_WRITE | ACCESS_BIND_WINDOW);
    *state = &f;
    return 0;
}

static int stop(void **state)
{
    memory_destroy(((struct fixture *)*state)->memory);
    return 0;
}

static struct memory_key allocate(struct fixture *f, enum window_type type)
{
    struct memory_key key;
    assert_int_equal(window_allocate(f->memory, f->domain, type, &key), STATUS_OK);
    return key;
}

static struct memory_key next(struct memory_key key)
{
    return (struct memory_key){(key.value & ~0xffu) | ((key.value + 1) & 0xff)};
}

/* 256 bytes at 1024 of the region. */
static struct window_bind some(struct fixture *f, struct memory_key window)
{
    return (struct window_bind){
        .window = window,
        .key = next(window),
        .region = f->region,
        .address = BASE + 1024,
        .length = 256,
        .access = ACCESS_REMOTE_WRITE,
    };
}

static enum memory_verdict ask(struct fixture *f, struct qpn qpn, struct memory_key key,
                               uint64_t address, uint64_t length, unsigned rights,
                               uint8_t **ret_bytes)
{
    struct memory_request request = {f->domain, key, address, length, rights, qpn, false};
    if (qpn_equal(qpn, LOCAL)) {
        assert_null(memory_find(f->memory, &request));
    }
    return memory_check(f->memory, &request, ret_bytes);
}

static void a_window_opens_its_part_of_the_region(void **state)
{
    struct fixture *f = *state;
    struct memory_key window = allocate(f, WINDOW_TYPE_1);
    uint8_t *at = NULL;
    assert_int_equal(ask(f, MINE, window, BASE, 1, 0, &at), MEMORY_NO_KEY);
    struct window_bind bind = some(f, window);
    assert_int_equal(window_bind(f->memory, f->domain, MINE, &bind), STATUS_OK);
    assert_int_equal(ask(f, MINE, window, BASE + 1024, 1, 0, &at), MEMORY_NO_KEY);
    struct {
        struct qpn qpn;
        uint64_t address, length;
        unsigned rights;
        enum memory_verdict verdict;
    } rows[] = {
        {MINE, BASE + 1024, 256, ACCESS_REMOTE_WRITE, MEMORY_GRANTED},
        {OTHERS, BASE + 1279, 1, ACCESS_REMOTE_WRITE, MEMORY_GRANTED},
        {LOCAL, BASE + 1024, 1, 0, MEMORY_NO_KEY},
        {MINE, BASE + 1023, 1, ACCESS_REMOTE_WRITE, MEMORY_OUT_OF_RANGE},
        {MINE, BASE + 1024, 257, ACCESS_REMOTE_WRITE, MEMORY_OUT_OF_RANGE},
        {MINE, BASE + 1280, 1, ACCESS_REMOTE_WRITE, MEMORY_OUT_OF_RANGE},
        {MINE, BASE + 1024, 8, ACCESS_REMOTE_READ, MEMORY_NO_RIGHT},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        at = NULL;
        assert_int_equal(
            ask(f, rows[i].qpn, bind.key, rows[i].address, rows[i].length, rows[i].rights, &at),
            rows[i].verdict);
        assert_ptr_equal(at, rows[i].verdict == MEMORY_GRANTED ? bytes + (rows[i].address - BASE)
                                                               : NULL);
    }
    struct memory_request foreign = {f->other, bind.key, BASE + 1024, 1, 0, MINE, false};
    assert_int_equal(memory_check(f->memory, &foreign, &at), MEMORY_WRONG_DOMAIN);
}

static void type_2_is_open_to_the_one_that_bound_it(void **state)
{
    struct fixture *f = *state;
    struct memory_key window = allocate(f, WINDOW_TYPE_2);
    struct window_bind bind = some(f, window);
    uint8_t *at;
    assert_int_equal(window_bind(f->memory, f->domain, MINE, &bind), STATUS_OK);
    assert_int_equal(ask(f, MINE, bind.key, BASE + 1024, 8, ACCESS_REMOTE_WRITE, &at),
                     MEMORY_GRANTED);
    assert_int_equal(ask(f, OTHERS, bind.key, BASE + 1024, 8, ACCESS_REMOTE_WRITE, &at),
                     MEMORY_WRONG_QP);
    struct window_bind again = some(f, bind.key);
    assert_int_equal(window_bind(f->memory, f->domain, MINE, &again), STATUS_STATE);

    assert_int_equal(window_invalidate(f->memory, f->domain, OTHERS, bind.key), STATUS_DENIED);
    assert_int_equal(window_invalidate(f->memory, f->other, MINE, bind.key), STATUS_NOT_FOUND);
    assert_int_equal(window_invalidate(f->memory, f->domain, MINE, window), STATUS_NOT_FOUND);
    assert_int_equal(window_invalidate(f->memory, f->domain, MINE, bind.key), STATUS_OK);
    assert_int_equal(ask(f, MINE, bind.key, BASE + 1024, 8, ACCESS_REMOTE_WRITE, &at),
                     MEMORY_NO_KEY);
    assert_int_equal(window_invalidate(f->memory, f->domain, MINE, bind.key), STATUS_STATE);
    assert_int_equal(window_bind(f->memory, f->domain, OTHERS, &again), STATUS_OK);
    assert_int_equal(ask(f, OTHERS, again.key, BASE + 1024, 8, ACCESS_REMOTE_WRITE, &at),
                     MEMORY_GRANTED);
}

static void type_1_is_bound_again_and_unbound_by_length_0(void **state)
{
    struct fixture *f = *state;
    struct memory_key window = allocate(f, WINDOW_TYPE_1);
    struct window_bind bind = some(f, window);
    uint8_t *at;
    assert_int_equal(window_bind(f->memory, f->domain, MINE, &bind), STATUS_OK);
    struct memory_key first = bind.key;
    bind.key = next(first);
    bind.address = BASE;
    bind.access = ACCESS_REMOTE_READ;
    assert_int_equal(window_bind(f->memory, f->domain, OTHERS, &bind), STATUS_OK);
    assert_int_equal(ask(f, MINE, first, BASE + 1024, 8, 0, &at), MEMORY_NO_KEY);
    assert_int_equal(ask(f, MINE, bind.key, BASE, 8, ACCESS_REMOTE_READ, &at), MEMORY_GRANTED);
    assert_int_equal(window_invalidate(f->memory, f->domain, MINE, bind.key), STATUS_DENIED);

    struct window_bind nothing = {.window = bind.key, .key = next(bind.key)};
    assert_int_equal(window_bind(f->memory, f->domain, MINE, &nothing), STATUS_OK);
    assert_int_equal(ask(f, MINE, bind.key, BASE, 8, 0, &at), MEMORY_NO_KEY);
    assert_int_equal(ask(f, MINE, nothing.key, BASE, 8, 0, &at), MEMORY_NO_KEY);
    assert_int_equal(memory_deregister(f->memory, f->region), STATUS_OK);
}

static void what_cannot_be_bound(void **state)
{
    struct fixture *f = *state;
    struct memory_key one = allocate(f, WINDOW_TYPE_1), two = allocate(f, WINDOW_TYPE_2);
    struct memory_key closed = register_in(f, f->domain, ACCESS_LOCAL_WRITE);
    struct memory_key fixed = register_in(f, f->domain, ACCESS_BIND_WINDOW);
    struct memory_key foreign = register_in(f, f->other, ACCESS_LOCAL_WRITE | ACCESS_BIND_WINDOW);
    struct memory_key null;
    assert_int_equal(memory_register_null(f->memory, f->domain, &null), STATUS_OK);
    struct {
        struct memory_key window, key, region;
        uint64_t address, length;
        unsigned access;
        enum status status;
    } rows[] = {
        {{0}, {1}, f->region, BASE, 8, 0, STATUS_NOT_FOUND},
        {{0xffffff00}, {0xffffff01}, f->region, BASE, 8, 0, STATUS_NOT_FOUND},
        {f->region, next(f->region), f->region, BASE, 8, 0, STATUS_NOT_FOUND},
        {one, next(two), f->region, BASE, 8, 0, STATUS_INVALID},
        {one, next(one), f->region, BASE, 8, ACCESS_ZERO_BASED, STATUS_INVALID},
        {two, next(two), f->region, BASE, 0, 0, STATUS_INVALID},
        {one, next(one), {0}, BASE, 8, 0, STATUS_NOT_FOUND},
        {one, next(one), next(f->region), BASE, 8, 0, STATUS_NOT_FOUND},
        {one, next(one), foreign, BASE, 8, 0, STATUS_NOT_FOUND},
        {one, next(one), null, BASE, 8, 0, STATUS_NOT_FOUND},
        {one, next(one), two, BASE, 8, 0, STATUS_NOT_FOUND},
        {one, next(one), closed, BASE, 8, 0, STATUS_DENIED},
        {one, next(one), fixed, BASE, 8, ACCESS_REMOTE_WRITE, STATUS_DENIED},
        {one, next(one), fixed, BASE, 8, ACCESS_REMOTE_ATOMIC, STATUS_DENIED},
        {one, next(one), fixed, BASE, 8, ACCESS_REMOTE_READ, STATUS_OK},
        {two, next(two), f->region, BASE - 1, 8, 0, STATUS_OUT_OF_RANGE},
        {two, next(two), f->region, BASE + 1, 4096, 0, STATUS_OUT_OF_RANGE},
        {two, next(two), f->region, BASE, UINT64_MAX, 0, STATUS_OUT_OF_RANGE},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct window_bind bind = {rows[i].window,  rows[i].key,    rows[i].region,
                                   rows[i].address, rows[i].length, rows[i].access};
        assert_int_equal(window_bind(f->memory, f->domain, MINE, &bind), rows[i].status);
    }
    struct window_bind bind = some(f, two);
    assert_int_equal(window_bind(f->memory, f->other, MINE, &bind), STATUS_NOT_FOUND);
    struct memory_key key;
    assert_int_equal(window_allocate(f->memory, (struct domain){0}, WINDOW_TYPE_1, &key),
                     STATUS_INVALID);
}

static void a_bound_region_stays(void **state)
{
    struct fixture *f = *state;
    struct memory_key one = allocate(f, WINDOW_TYPE_1), two = allocate(f, WINDOW_TYPE_2);
    struct window_bind first = some(f, one), second = some(f, two);
    struct region_attributes other = {f->domain, 0, 8, bytes, 0};
    uint8_t *at;
    assert_int_equal(window_bind(f->memory, f->domain, MINE, &first), STATUS_OK);
    assert_int_equal(window_bind(f->memory, f->domain, MINE, &second), STATUS_OK);
    assert_int_equal(memory_deregister(f->memory, f->region), STATUS_BUSY);
    assert_int_equal(memory_reregister(f->memory, f->region, &other), STATUS_BUSY);
    assert_int_equal(window_free(f->memory, one), STATUS_OK); /* by any variant */
    assert_int_equal(memory_deregister(f->memory, f->region), STATUS_BUSY);
    assert_int_equal(memory_free_domain(f->memory, f->domain), STATUS_BUSY);

    window_forget(f->memory, OTHERS);
    assert_int_equal(ask(f, MINE, second.key, BASE + 1024, 8, 0, &at), MEMORY_GRANTED);
    window_forget(f->memory, MINE);
    assert_int_equal(ask(f, MINE, second.key, BASE + 1024, 8, 0, &at), MEMORY_NO_KEY);
    assert_int_equal(memory_deregister(f->memory, f->region), STATUS_OK);
    assert_int_equal(window_free(f->memory, one), STATUS_NOT_FOUND);
    assert_int_equal(memory_deregister(f->memory, second.key), STATUS_NOT_FOUND);
    assert_int_equal(window_free(f->memory, second.key), STATUS_OK);
    assert_int_equal(memory_free_domain(f->memory, f->domain), STATUS_OK);
    assert_int_equal(memory_region_count(f->memory), 0);
}

static void addresses_of_a_zero_based_window_begin_at_0(void **state)
{
    struct fixture *f = *state;
    struct memory_key two = allocate(f, WINDOW_TYPE_2);
    struct window_bind bind = some(f, two);
    bind.access |= ACCESS_ZERO_BASED;
    uint8_t *at = NULL;
    assert_int_equal(window_bind(f->memory, f->domain, MINE, &bind), STATUS_OK);
    assert_int_equal(ask(f, MINE, bind.key, 255, 1, ACCESS_REMOTE_WRITE, &at), MEMORY_GRANTED);
    assert_ptr_equal(at, bytes + 1024 + 255);
    assert_int_equal(ask(f, MINE, bind.key, 256, 1, 0, &at), MEMORY_OUT_OF_RANGE);
    assert_int_equal(ask(f, MINE, bind.key, BASE + 1024, 1, 0, &at), MEMORY_OUT_OF_RANGE);
}

static void plain_regions_cannot_be_invalidated(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(window_invalidate(f->memory, f->domain, MINE, f->region), STATUS_DENIED);
    assert_int_equal(window_invalidate(f->memory, f->other, MINE, f->region), STATUS_NOT_FOUND);
    assert_int_equal(window_invalidate(f->memory, f->domain, MINE, next(f->region)),
                     STATUS_NOT_FOUND);
}

#define WITH(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH(a_window_opens_its_part_of_the_region),
        WITH(type_2_is_open_to_the_one_that_bound_it),
        WITH(type_1_is_bound_again_and_unbound_by_length_0),
        WITH(what_cannot_be_bound),
        WITH(a_bound_region_stays),
        WITH(addresses_of_a_zero_based_window_begin_at_0),
        WITH(plain_regions_cannot_be_invalidated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
