/* A member of the group 239.9.8.7 until its input ends, for multicast_interfaces_test.sh. */
#include <stdio.h>

#include "rnic/verbs/world_test.h"

static void stays_a_member(void **state)
{
    const union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, 239, 9, 8, 7}};
    struct world *w = *state;
    struct ibv_qp_init_attr init = small(w->cq);
    init.qp_type = IBV_QPT_UD;
    struct ibv_qp *qp = ibv_create_qp(w->pd, &init);
    assert_non_null(qp);
    assert_int_equal(ibv_attach_mcast(qp, &group, 0), 0);
    puts("joined");
    fflush(stdout);
    while (getchar() != EOF) {
    }
    assert_int_equal(ibv_detach_mcast(qp, &group, 0), 0);
    assert_int_equal(ibv_destroy_qp(qp), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(stays_a_member, open_world, close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
