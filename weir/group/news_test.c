/* What is told when, how often; and the order in which all are probed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "weir/group/news.h"
#include "weir/group/shuffle.h"

static void test_least_told_first(void **state)
{
    struct news news;
    uint32_t ranks[4];
    news_init(&news, 3);
    assert_int_equal(news_tell(&news, ranks, 4), 0);
    for (uint32_t rank = 0; rank < 6; rank++) {
        news_add(&news, rank);
    }
    unsigned told[6] = {0}, total = 0, count;
    while ((count = news_tell(&news, ranks, 4)) > 0) {
        for (unsigned i = 0; i < count; i++) {
            told[ranks[i]]++;
        }
        total += count;
        for (unsigned rank = 0; rank < 6; rank++) { /* none far ahead of another */
            assert_true(told[rank] * 6 + 12 >= total);
        }
    }
    for (unsigned rank = 0; rank < 6; rank++) {
        assert_int_equal(told[rank], 3);
    }
    assert_int_equal(news.count, 0);
    news_fini(&news);
}

static void test_bounded(void **state)
{
    struct news news;
    uint32_t ranks[64];
    news_init(&news, 2);
    for (uint32_t rank = 0; rank < 10 * NEWS_MOST; rank++) {
        news_add(&news, rank);
        assert_true(news.count <= NEWS_MOST);
    }
    unsigned total = 0, count;
    while ((count = news_tell(&news, ranks, 64)) > 0) {
        total += count;
    }
    assert_int_equal(total, 2 * NEWS_MOST);
    news_fini(&news);
}

static void test_each_round_has_all(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 17, 255, 256, 257, 10000, 65536};
    uint8_t *seen = malloc(65536);
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct shuffle shuffle;
        uint32_t same = 0, first[8] = {0};
        shuffle_init(&shuffle, sizes[i], 7);
        for (unsigned round = 0; round < 3; round++) {
            memset(seen, 0, sizes[i]);
            for (uint32_t k = 0; k < sizes[i]; k++) {
                uint32_t rank = shuffle_next(&shuffle);
                assert_true(rank < sizes[i]);
                assert_int_equal(seen[rank], 0);
                seen[rank] = 1;
                same += k < 8 && round > 0 && first[k] == rank;
                first[k % 8] = k < 8 ? rank : first[k % 8];
            }
        }
        assert_true(sizes[i] < 255 || same < 4); /* the orders differ */
    }
    free(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least_told_first),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_each_round_has_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
