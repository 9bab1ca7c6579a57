#include "rnic/base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool is_zero(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Enough of them that some would begin where only large ones may; and each size is used again when
 * others have written to it. */
static void blocks_of_all_sizes(void **state)
{
    static const size_t sizes[] = {0, 1, 16, 64, 184, 192, 500, 1024, 4032, 16384, 16385, 100000};
    enum {
        KINDS = sizeof sizes / sizeof *sizes,
        ROUNDS = 600
    };
    static uint8_t *blocks[ROUNDS][KINDS];
    struct allocator *heap = heap_allocator();
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < ROUNDS; i++) {
            for (int k = 0; k < (i < 30 ? KINDS : KINDS - 3); k++) {
                uint8_t *block = heap->allocate(heap, sizes[k]);
                assert_non_null(block);
                assert_int_equal((uintptr_t)block % (sizes[k] % 64 == 0 ? 64 : 16), 0);
                assert_true(is_zero(block, sizes[k]));
                memset(block, 0xff, sizes[k]);
                blocks[i][k] = block;
            }
        }
        for (int i = 0; i < ROUNDS; i++) {
            for (int k = 0; k < KINDS; k++) {
                heap->release(heap, blocks[i][k]);
            }
        }
    }
    heap->release(heap, NULL);
    assert_null(heap->allocate(heap, SIZE_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_all_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
