/* One test per rule of connection management, its expected trace as text. The clock begins at
 * 1000 ms; a message takes 1 ms; a try of a REQ or a REP is 2147 ms. */
#include "rnic/cm/cm_test_world.h"

static void connect_and_disconnect(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1100);
    struct cm_connection *b = world->hosts[1].connection;
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "");
    world_end(world, a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connect_and_disconnect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
