#include "rnic/base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "rnic/base/heap.h"

static void *refuse(struct allocator *allocator, size_t size)
{
    return NULL;
}

static void bounds(void **state)
{
    struct allocator poor = {refuse, NULL};
    struct pool pool = {0};
    assert_int_equal(pool_init(&pool, &poor, 8, 2), STATUS_NO_MEMORY);
    assert_int_equal(pool_init(&pool, heap_allocator(), 8, 0), STATUS_INVALID);
    pool_fini(&pool);
    assert_int_equal(pool_init(&pool, heap_allocator(), 3, 1), STATUS_OK);
    void *item = pool_take(&pool);
    assert_non_null(item);
    assert_null(pool_take(&pool));
    pool_give(&pool, item);
    assert_ptr_equal(pool_take(&pool), item);
    pool_fini(&pool);
    pool_fini(&pool);
}

/* Nobody else's bytes change, and no more is touched than is needed at once. */
static void items_are_apart_and_used_again(void **state)
{
    enum {
        COUNT = 100,
        SIZE = 44
    };
    struct pool pool;
    unsigned char *items[COUNT];
    assert_int_equal(pool_init(&pool, heap_allocator(), SIZE, COUNT), STATUS_OK);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT / 2; i++) {
            items[i] = pool_take(&pool);
            assert_int_equal((uintptr_t)items[i] % 8, 0);
            memset(items[i], i, SIZE);
        }
        for (int i = 0; i < COUNT / 2; i++) {
            assert_int_equal(items[i][0], i);
            assert_int_equal(items[i][SIZE - 1], i);
            pool_give(&pool, items[i]);
        }
    }
    assert_int_equal(pool.touched, COUNT / 2);
    for (int i = 0; i < COUNT; i++) {
        assert_non_null(pool_take(&pool));
    }
    assert_null(pool_take(&pool));
    pool_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds),
        cmocka_unit_test(items_are_apart_and_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
