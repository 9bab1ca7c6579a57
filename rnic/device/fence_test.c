/* Who orders what is posted with a failure: each who posts, or the failure for all of them. */
#include "rnic/device/pair_test.h"
#include "rnic/transport/qp_private.h"

static uint32_t fences;
static bool fences_are_refused;

static bool fence(void)
{
    fences++;
    return !fences_are_refused;
}

/* Who posts receives has none of its own as long as an error has one for all. */
static void an_error_has_a_fence_for_those_who_post(void **state)
{
    struct pair *pair = pair_create(&pair_defaults);
    for (int i = 0; i < 2; i++) {
        struct environment *environment = pair->sides[i].qp->environment;
        assert_true(atomic_load(&environment->posters_fence));
        environment->heavy_fence = fence;
        atomic_store(&environment->posters_fence, false);
        fences = 0;
        fences_are_refused = i == 1;
        pair_post_receive(&pair->sides[i], 1, 0, 100);
        assert_false(qp_wants_flush(pair->sides[i].qp));
        pair_modify(&pair->sides[i], QP_ERROR);
        assert_int_equal(fences, i == 0 ? 1 : 2);
        assert_int_equal(atomic_load(&environment->posters_fence), i == 1);
        assert_true(qp_wants_flush(pair->sides[i].qp));
        (void)pair_expect(pair->sides[i].receives, 1, COMPLETION_FLUSHED);
    }
    pair_destroy(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_has_a_fence_for_those_who_post),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
