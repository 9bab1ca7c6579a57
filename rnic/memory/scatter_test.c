#include "rnic/memory/scatter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/heap.h"
#include "rnic/base/random.h"

#define PLACES 6

struct world {
    struct memory *memory;
    struct domain domain;
    uint8_t bytes[PLACES][512];
    struct memory_key keys[PLACES];
};

static struct world *make_world(unsigned access)
{
    static struct world world;
    assert_int_equal(
        memory_create(heap_allocator(), PLACES, &(struct siphash_key){{1}}, &world.memory),
        STATUS_OK);
    assert_int_equal(memory_allocate_domain(world.memory, &world.domain), STATUS_OK);
    for (unsigned i = 0; i < PLACES; i++) {
        for (unsigned j = 0; j < 512; j++) {
            world.bytes[i][j] = (uint8_t)(i * 41 + j * 7);
        }
        struct region_attributes attributes = {world.domain, (i + 1) * UINT64_C(0x100000000), 512,
                                               world.bytes[i], access};
        assert_int_equal(memory_register(world.memory, &attributes, &world.keys[i]), STATUS_OK);
    }
    return &world;
}

static struct sge sge_in(const struct world *world, unsigned place, uint32_t offset,
                         uint32_t length)
{
    return (struct sge){(place + 1) * UINT64_C(0x100000000) + offset, length, world->keys[place]};
}

static void pieces_of_each_sge(void **state)
{
    struct world *world = make_world(0);
    struct sge sges[] = {sge_in(world, 0, 0, 0),   sge_in(world, 1, 10, 100),
                         sge_in(world, 2, 0, 0),   {0, 0, {0}}, /* empty: no key is needed */
                         sge_in(world, 3, 20, 50), sge_in(world, 4, 0, 0)};
    struct scatter scatter;
    scatter_init(&scatter, world->memory, world->domain, sges, 6);
    assert_int_equal(scatter.length, 150);

    struct fragment fragments[4];
    struct fragment_list list = {fragments, 4, 0};
    assert_int_equal(scatter_gather(&scatter, 60, &list), MEMORY_GRANTED);
    assert_int_equal(list.count, 1);
    assert_ptr_equal(fragments[0].bytes, world->bytes[1] + 10);
    assert_int_equal(fragments[0].length, 60);
    assert_int_equal(scatter_gather(&scatter, 60, &list), MEMORY_GRANTED); /* appends */
    assert_int_equal(list.count, 3);
    assert_ptr_equal(fragments[1].bytes, world->bytes[1] + 70);
    assert_int_equal(fragments[1].length, 40);
    assert_ptr_equal(fragments[2].bytes, world->bytes[3] + 20);
    assert_int_equal(fragments[2].length, 20);
    assert_int_equal(scatter_left(&scatter), 30);
    assert_int_equal(scatter_gather(&scatter, 31, &list), MEMORY_OUT_OF_RANGE);
    assert_int_equal(scatter_gather(&scatter, 0, &list), MEMORY_GRANTED);
    assert_int_equal(list.count, 3);
    assert_int_equal(scatter_gather(&scatter, 30, &list), MEMORY_GRANTED);
    assert_int_equal(scatter_left(&scatter), 0);

    scatter_seek(&scatter, 99);
    assert_int_equal(scatter_gather(&scatter, 2, &list), MEMORY_OUT_OF_RANGE); /* list is full */
    list.count = 3; /* room for one, two are needed */
    assert_int_equal(scatter_gather(&scatter, 2, &list), MEMORY_OUT_OF_RANGE);
    assert_int_equal(scatter.offset, 99);
    assert_int_equal(list.count, 3);
    memory_destroy(world->memory);
}

static void keys_are_checked_at_each_use(void **state)
{
    struct world *world = make_world(ACCESS_LOCAL_WRITE);
    struct sge sges[] = {sge_in(world, 0, 0, 100), sge_in(world, 1, 500, 100)};
    struct scatter scatter;
    scatter_init(&scatter, world->memory, world->domain, sges, 2);
    struct fragment fragments[4];
    struct fragment_list list = {fragments, 4, 0};
    assert_int_equal(scatter_gather(&scatter, 112, &list), MEMORY_GRANTED);
    assert_int_equal(scatter_gather(&scatter, 1, &list), MEMORY_OUT_OF_RANGE);
    assert_int_equal(scatter.offset, 112);

    uint8_t copied[64];
    scatter_seek(&scatter, 10);
    assert_int_equal(scatter_copy_out(&scatter, copied, 64), MEMORY_GRANTED);
    assert_memory_equal(copied, world->bytes[0] + 10, 64);
    assert_int_equal(memory_deregister(world->memory, world->keys[0]), STATUS_OK);
    assert_int_equal(scatter_gather(&scatter, 1, &list), MEMORY_NO_KEY);
    assert_int_equal(scatter_copy_in(&scatter, copied, 1), MEMORY_NO_KEY);
    assert_int_equal(scatter.offset, 74);
    memory_destroy(world->memory);

    world = make_world(0);
    sges[0] = sge_in(world, 0, 0, 100);
    scatter_init(&scatter, world->memory, world->domain, sges, 1);
    assert_int_equal(scatter_copy_in(&scatter, copied, 1), MEMORY_NO_RIGHT);
    assert_int_equal(scatter_copy_in(&scatter, copied, 101), MEMORY_OUT_OF_RANGE);
    scatter_init(&scatter, world->memory, (struct domain){77}, sges, 1);
    assert_int_equal(scatter_gather(&scatter, 1, &list), MEMORY_WRONG_DOMAIN);
    memory_destroy(world->memory);
}

static void inline_bytes_need_no_key(void **state)
{
    uint8_t text[10] = "012345678";
    struct scatter scatter;
    scatter_init_inline(&scatter, text, 10);
    struct fragment fragment;
    struct fragment_list list = {&fragment, 1, 0};
    scatter_seek(&scatter, 4);
    assert_int_equal(scatter_gather(&scatter, 3, &list), MEMORY_GRANTED);
    assert_ptr_equal(fragment.bytes, text + 4);
    assert_int_equal(fragment.length, 3);
    uint8_t copied[3];
    assert_int_equal(scatter_copy_out(&scatter, copied, 3), MEMORY_GRANTED);
    assert_memory_equal(copied, "78", 3);
    assert_int_equal(scatter_left(&scatter), 0);
}

/* 2^31 bytes in two SGEs: offsets near the end are reached without walking there. */
static void the_longest_message(void **state)
{
    struct memory *memory;
    assert_int_equal(memory_create(heap_allocator(), 1, &(struct siphash_key){{1}}, &memory),
                     STATUS_OK);
    struct domain domain;
    assert_int_equal(memory_allocate_domain(memory, &domain), STATUS_OK);
    struct region_attributes attributes = {domain, 0, UINT64_C(1) << 32, (uint8_t *)0x1000, 0};
    struct memory_key key;
    assert_int_equal(memory_register(memory, &attributes, &key), STATUS_OK);
    struct sge sges[2] = {{0, (UINT32_C(1) << 31) - 1, key}, {UINT32_C(1) << 31, 1, key}};
    struct scatter scatter;
    scatter_init(&scatter, memory, domain, sges, 2);
    assert_int_equal(scatter.length, MESSAGE_LENGTH_MAX);
    scatter_seek(&scatter, MESSAGE_LENGTH_MAX - 2);
    struct fragment fragments[2];
    struct fragment_list list = {fragments, 2, 0};
    assert_int_equal(scatter_gather(&scatter, 2, &list), MEMORY_GRANTED);
    assert_int_equal((uintptr_t)fragments[0].bytes, 0x1000 + (UINT64_C(1) << 31) - 2);
    assert_int_equal((uintptr_t)fragments[1].bytes, 0x1000 + (UINT64_C(1) << 31));
    memory_destroy(memory);
}

/* Random lists, seeks and lengths against the plain concatenation of the pieces. */
static void agrees_with_a_flat_copy(void **state)
{
    struct random random;
    random_seed(&random, 7);
    for (int run = 0; run < 2000; run++) {
        struct world *world = make_world(ACCESS_LOCAL_WRITE);
        struct sge sges[PLACES];
        uint8_t flat[PLACES * 512];
        uint32_t total = 0;
        uint32_t count = (uint32_t)random_below(&random, PLACES + 1);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t length = random_below(&random, 3) == 0 ? 0 : random_below(&random, 200);
            uint32_t offset = (uint32_t)random_below(&random, 512 - length);
            sges[i] = sge_in(world, i, offset, length);
            memcpy(flat + total, world->bytes[i] + offset, length);
            total += length;
        }
        struct scatter scatter;
        scatter_init(&scatter, world->memory, world->domain, sges, count);
        assert_int_equal(scatter.length, total);
        for (int step = 0; step < 10; step++) {
            uint32_t from = (uint32_t)random_below(&random, total + 1);
            uint32_t length = (uint32_t)random_below(&random, total - from + 1);
            uint8_t copied[PLACES * 512];
            scatter_seek(&scatter, from);
            if (random_below(&random, 2) == 0) {
                memset(copied, step, length);
                memset(flat + from, step, length);
                assert_int_equal(scatter_copy_in(&scatter, copied, length), MEMORY_GRANTED);
            } else {
                assert_int_equal(scatter_copy_out(&scatter, copied, length), MEMORY_GRANTED);
                assert_memory_equal(copied, flat + from, length);
            }
            assert_int_equal(scatter.offset, from + length);
        }
        memory_destroy(world->memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_each_sge),       cmocka_unit_test(keys_are_checked_at_each_use),
        cmocka_unit_test(inline_bytes_need_no_key), cmocka_unit_test(the_longest_message),
        cmocka_unit_test(agrees_with_a_flat_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
