#include "rnic/base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/heap.h"
#include "rnic/base/random.h"

static char things[512];

static void capacity_and_names(void **state)
{
    struct map map;
    assert_int_equal(map_init(&map, heap_allocator(), 0), STATUS_INVALID);
    assert_int_equal(map_init(&map, heap_allocator(), UINT32_MAX), STATUS_INVALID);
    assert_int_equal(map_init(&map, heap_allocator(), 2), STATUS_OK);
    assert_null(map_find(&map, 0));
    assert_int_equal(map_insert(&map, 0, &things[0]), STATUS_OK);
    assert_int_equal(map_insert(&map, 0, &things[1]), STATUS_IN_USE);
    assert_int_equal(map_insert(&map, UINT32_MAX, &things[1]), STATUS_OK);
    assert_int_equal(map_insert(&map, 7, &things[2]), STATUS_FULL);
    assert_ptr_equal(map_find(&map, 0), &things[0]);
    assert_ptr_equal(map_find(&map, UINT32_MAX), &things[1]);
    assert_null(map_find(&map, 7));
    assert_null(map_remove(&map, 7));
    assert_ptr_equal(map_remove(&map, 0), &things[0]);
    assert_null(map_find(&map, 0));
    assert_int_equal(map_insert(&map, 7, &things[2]), STATUS_OK);
    map_fini(&map);
    map_fini(&map);
}

static void *refuse(struct allocator *allocator, size_t size)
{
    return NULL;
}

static void no_memory(void **state)
{
    struct allocator poor = {refuse, NULL};
    struct map map = {0};
    assert_int_equal(map_init(&map, &poor, 2), STATUS_NO_MEMORY);
    map_fini(&map);
}

/* A full map of clustered keys against a plain array, through many insertions and removals. */
static void agrees_with_an_array(void **state)
{
    enum {
        KEYS = 512,
        CAPACITY = 256
    };
    void *model[KEYS] = {0};
    uint32_t count = 0;
    struct map map;
    struct random random;
    random_seed(&random, 1);
    assert_int_equal(map_init(&map, heap_allocator(), CAPACITY), STATUS_OK);
    for (int step = 0; step < 100000; step++) {
        uint32_t key = (uint32_t)random_below(&random, KEYS);
        uint32_t name = key << 23; /* keys that differ in few bits collide */
        if (random_below(&random, 2) == 0) {
            enum status expected = model[key] != NULL  ? STATUS_IN_USE
                                   : count == CAPACITY ? STATUS_FULL
                                                       : STATUS_OK;
            assert_int_equal(map_insert(&map, name, &things[key]), expected);
            if (expected == STATUS_OK) {
                model[key] = &things[key];
                count++;
            }
        } else {
            assert_ptr_equal(map_remove(&map, name), model[key]);
            count -= model[key] != NULL;
            model[key] = NULL;
        }
        uint32_t other = (uint32_t)random_below(&random, KEYS);
        assert_ptr_equal(map_find(&map, other << 23), model[other]);
    }

    uint32_t cursor = 0, key = 0, walked = 0;
    void *value = NULL;
    while (map_next(&map, &cursor, &key, &value)) {
        assert_ptr_equal(model[key >> 23], value);
        walked++;
    }
    assert_int_equal(walked, count);
    assert_int_equal(map.count, count);
    map_fini(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(capacity_and_names),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(agrees_with_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
