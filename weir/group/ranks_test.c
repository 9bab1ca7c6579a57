/* Sets of ranks, and failures of them: made, taken apart, packed, and each way in which what a peer
 * sent is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "weir/bytes.h"
#include "weir/group/failures.h"
#include "weir/group/ranks.h"

static struct ranks make(const uint32_t (*ranges)[2], unsigned count)
{
    struct ranks ranks = {0};
    for (unsigned i = 0; i < count; i++) {
        assert_true(ranks_add(&ranks, ranges[i][0], ranges[i][1]));
    }
    return ranks;
}

static void test_made_and_taken_apart(void **state)
{
    static const uint32_t some[][2] = {{1, 2}, {3, 1}, {7, 0}, {10, 5}, {20, 1}};
    struct ranks ranks = make(some, 5), part = {0};
    assert_int_equal(ranks.total, 9);
    assert_int_equal(ranks.end, 3); /* neighbors are one */
    for (uint32_t rank = 0; rank < 25; rank++) {
        assert_int_equal(ranks_has(&ranks, rank),
                         (rank >= 1 && rank <= 3) || (rank >= 10 && rank <= 14) || rank == 20);
    }
    assert_int_equal(ranks_take_first(&ranks), 1);
    assert_true(ranks_move(&ranks, 4, &part));
    assert_int_equal(part.total, 4);
    assert_true(ranks_has(&part, 3) && ranks_has(&part, 11) && !ranks_has(&part, 12));
    assert_true(ranks_has(&ranks, 12) && !ranks_has(&ranks, 11));
    assert_true(ranks_move(&ranks, 4, &part));
    assert_int_equal(ranks.total, 0);
    assert_int_equal(part.total, 8);
    ranks_fini(&ranks);
    ranks_fini(&part);
}

static void test_ranks_packed(void **state)
{
    static const uint32_t some[][2] = {{0, 2}, {5, 3}, {99, 1}};
    struct ranks ranks = make(some, 3), parsed;
    uint8_t bytes[64];
    size_t taken, length = ranks_packed_length(&ranks);
    ranks_pack(&ranks, bytes);
    assert_null(ranks_parse(bytes, sizeof(bytes), 100, &parsed, &taken));
    assert_int_equal(taken, length);
    assert_int_equal(parsed.total, 6);
    assert_true(ranks_has(&parsed, 99));
    ranks_fini(&parsed);
    for (size_t i = 0; i < length; i++) {
        assert_non_null(ranks_parse(bytes, i, 100, &parsed, &taken));
    }
    assert_non_null(ranks_parse(bytes, length, 99, &parsed, &taken)); /* beyond the bound */
    ranks_fini(&ranks);
}

static void test_wrong_ranks(void **state)
{
    static const uint32_t wrong[][4] = {
        {1, 0, 5, 1},          {5, 1, 1, 1},          {1, 2, 3, 1},   {1, 2, 2, 1},
        {1, UINT32_MAX, 2, 1}, {UINT32_MAX, 2, 2, 1}, {1, 1, 100, 1}, {1, 1, 99, 2},
    };
    uint8_t bytes[20];
    struct ranks parsed;
    size_t taken;
    put_u32(bytes, 2);
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        for (unsigned k = 0; k < 4; k++) {
            put_u32(bytes + 4 + 4 * k, wrong[i][k]);
        }
        assert_non_null(ranks_parse(bytes, sizeof(bytes), 100, &parsed, &taken));
    }
    put_u32(bytes, UINT32_MAX);
    assert_non_null(ranks_parse(bytes, sizeof(bytes), 100, &parsed, &taken));
}

static void add(struct failures *failures, uint32_t first, uint32_t count, enum weir_status status,
                uint32_t code)
{
    assert_true(failures_add(failures, (struct weir_group_failure){first, count, status, code}));
}

static void test_failures_settled_and_packed(void **state)
{
    static const uint32_t all[][2] = {{0, 10}, {12, 4}};
    struct ranks asked = make(all, 2);
    struct failures failures = {0}, parsed;
    uint8_t bytes[256];
    size_t taken;
    add(&failures, 4, 1, WEIR_TIMED_OUT, 0);
    add(&failures, 1, 2, WEIR_REFUSED, 7);
    add(&failures, 3, 1, WEIR_REFUSED, 7);
    add(&failures, 5, 1, WEIR_TIMED_OUT, 0);
    add(&failures, 12, 1, WEIR_REFUSED, 8);
    failures_settle(&failures);
    assert_int_equal(failures.count, 3);
    assert_int_equal(failures.total, 6);
    assert_int_equal(failures.entries[0].first, 1);
    assert_int_equal(failures.entries[0].count, 3);
    assert_int_equal(failures.entries[1].count, 2);
    size_t length = failures_packed_length(&failures);
    failures_pack(&failures, bytes);
    assert_null(failures_parse(bytes, length, &asked, &parsed, &taken));
    assert_int_equal(taken, length);
    assert_int_equal(parsed.total, 6);
    assert_memory_equal(parsed.entries, failures.entries, 3 * sizeof(*parsed.entries));
    failures_fini(&parsed);
    for (size_t i = 0; i < length; i++) {
        assert_non_null(failures_parse(bytes, i, &asked, &parsed, &taken));
    }
    failures_fini(&failures);
    ranks_fini(&asked);
}

static void test_wrong_failures(void **state)
{
    static const uint32_t all[][2] = {{0, 10}, {12, 4}};
    static const uint32_t wrong[][3] = {
        {10, 1, WEIR_REFUSED},         {9, 2, WEIR_REFUSED},
        {9, 4, WEIR_REFUSED},          {16, 1, WEIR_REFUSED},
        {3, 0, WEIR_REFUSED},          {3, 1, WEIR_OK},
        {3, 1, WEIR_STATUS_COUNT},     {3, 1, UINT32_MAX},
        {0, 1, WEIR_REFUSED},          {1, 1, WEIR_REFUSED},
        {5, UINT32_MAX, WEIR_REFUSED},
    };
    struct ranks asked = make(all, 2);
    struct failures parsed;
    uint8_t bytes[36] = {0};
    size_t taken;
    put_u32(bytes, 2);
    put_u32(bytes + 4, 0); /* the first is right */
    put_u32(bytes + 8, 2);
    put_u32(bytes + 12, WEIR_TIMED_OUT);
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        for (unsigned k = 0; k < 3; k++) {
            put_u32(bytes + 20 + 4 * k, wrong[i][k]);
        }
        assert_non_null(failures_parse(bytes, sizeof(bytes), &asked, &parsed, &taken));
    }
    ranks_fini(&asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_and_taken_apart),
        cmocka_unit_test(test_ranks_packed),
        cmocka_unit_test(test_wrong_ranks),
        cmocka_unit_test(test_failures_settled_and_packed),
        cmocka_unit_test(test_wrong_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
