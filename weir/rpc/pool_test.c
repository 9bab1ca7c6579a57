/* What is given back is taken again, and what lies idle is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <string.h>

#include "weir/rpc/pool.h"

static void test_objects(void **state)
{
    struct pool pool = {.size = 64, .cleared = 32};
    uint8_t *first = pool_take(&pool), *second = pool_take(&pool);
    memset(first, 1, 64);
    pool_give(&pool, first);
    pool_give(&pool, second);
    assert_ptr_equal(pool_take(&pool), second);
    assert_ptr_equal(pool_take(&pool), first);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(first[i], i < 32 ? 0 : 1);
    }
    pool_give(&pool, first);
    pool_give(&pool, second);
    pool_fini(&pool);
}

static void test_chunks(void **state)
{
    static const size_t lengths[] = {0, 1, 64, 65, 128, 4097, 1 << 20};
    struct chunks chunks = {0};
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        struct chunk *chunk = chunk_take(&chunks, lengths[i]);
        memset(chunk->bytes, 0xff, lengths[i]);
        chunk_give(&chunks, chunk);
        assert_ptr_equal(chunk_take(&chunks, lengths[i]), chunk);
        chunk_give(&chunks, chunk);
    }
    chunk_give(&chunks, NULL);
    chunks_fini(&chunks);
}

static void test_idle_chunks_are_bounded(void **state)
{
    struct chunks chunks = {0};
    struct chunk *taken[40];
    for (unsigned i = 0; i < 40; i++) {
        taken[i] = chunk_take(&chunks, 1 << 20);
    }
    for (unsigned i = 0; i < 40; i++) {
        chunk_give(&chunks, taken[i]);
        assert_in_range(chunks.spare_length, 1 << 20, 8 << 20);
    }
    chunks_fini(&chunks);
    assert_int_equal(chunks.spare_length, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_idle_chunks_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
