#include "rnic/io/system/slab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define RUN_BYTES ((size_t)2 << 20)

static bool is_zero(const uint8_t *bytes, size_t length)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

static void blocks_are_apart_zeroed_and_used_again(void **state)
{
    enum {
        COUNT = 5000
    };
    static const size_t sizes[] = {1, 64, 65, 880, 896, SLAB_MAX};
    static uint8_t *blocks[COUNT];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            size_t size = sizes[i % 6];
            blocks[i] = slab_take(size);
            assert_non_null(blocks[i]);
            assert_int_equal((uintptr_t)blocks[i] % SLAB_LINE, 0);
            assert_true(size == 1 ? blocks[i][0] == 0 : is_zero(blocks[i], size));
            memset(blocks[i], (int)(i % 251), size);
        }
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(blocks[i][0], i % 251);
            assert_int_equal(blocks[i][sizes[i % 6] - 1], i % 251);
            slab_give(blocks[i]);
        }
    }
    slab_give(NULL);
}

static uint64_t huge_kib(const void *address)
{
    char line[256];
    bool here = false;
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        uintptr_t from, to;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
            here = (uintptr_t)address >= from && (uintptr_t)address < to;
        } else if (here && sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1) {
            break;
        }
    }
    fclose(file);
    return kib;
}

static bool kernel_joins_pages(void)
{
    uint8_t *memory =
        mmap(NULL, 2 * RUN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    uint8_t *run = memory + (-(uintptr_t)memory & (RUN_BYTES - 1));
    memset(run, 1, RUN_BYTES);
    bool does = madvise(run, RUN_BYTES, 25) == 0 && huge_kib(run) > 0;
    munmap(memory, 2 * RUN_BYTES);
    return does;
}

/* And keeps what was in it. */
static void a_full_run_becomes_one_page(void **state)
{
    enum {
        SIZE = 3 * SLAB_LINE, /* of no other test */
        COUNT = (RUN_BYTES - SLAB_LINE) / SIZE
    };
    if (SLAB_IS_WATCHED || !kernel_joins_pages()) {
        skip(); /* where a sanitizer watches, blocks are malloc's */
    }
    uint8_t **blocks = calloc(COUNT, sizeof *blocks);
    assert_non_null(blocks);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = slab_take(SIZE);
        assert_non_null(blocks[i]);
        memset(blocks[i], (int)(i % 251), SIZE);
        if (i + 2 == COUNT) {
            assert_int_equal(huge_kib(blocks[0]), 0);
        }
    }
    assert_true(huge_kib(blocks[0]) >= RUN_BYTES / 1024);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(blocks[i][SIZE - 1], i % 251);
        slab_give(blocks[i]);
    }
    free(blocks);
}

static void a_child_has_its_own(void **state)
{
    uint8_t *block = slab_take(100);
    *block = 1;
    pid_t child = fork();
    if (child == 0) {
        uint8_t *other = slab_take(100);
        *block = 2;
        _exit(other == NULL || other == block || *other != 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(*block, 1);
    slab_give(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_apart_zeroed_and_used_again),
        cmocka_unit_test(a_full_run_becomes_one_page),
        cmocka_unit_test(a_child_has_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
