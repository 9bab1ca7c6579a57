/* A process dies and another one of its host executes its wills: here A's communication manager is
 * replaced, in whatever state it is, by one with other ids, at the same address. And what a process
 * does that leaves nobody behind. */
#include "rnic/cm/cm_private.h"
#include "rnic/cm/cm_world_test.h"

#define LIVING 6u /* the survivor's prefix; 5 is the dead one's */

/* Returns how many wills there were. */
static uint32_t replace_dead(struct world *world)
{
    struct host *a = &world->hosts[0];
    struct cm_will *wills = a->wills;
    uint32_t count = 0;
    cm_destroy(a->cm);
    world->dead_prefix = 5u;
    world_create_cm(world, 0, LIVING, 77);
    for (uint32_t i = 0; i < world->max_connections; i++) {
        if (wills[i].debt != CM_DEBT_NONE) {
            assert_int_equal(cm_execute_will(a->cm, world_now(world), &wills[i]), STATUS_OK);
            count++;
        }
    }
    free(wills);
    return count;
}

/* B is told at once, whatever is lost; nothing is left after that. */
static void connected_peer_is_disconnected(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    world_connect(world, 100);
    world_run(world, 1100);
    forget_trace(world);
    world->rules[0] = (struct rule){"A>B DREQ", 1, 0};
    assert_int_equal(replace_dead(world), 1);
    world_run(world, 2200);
    expect_trace(world, "1100ms A>B DREQ lost\n"
                        "2100ms A>B DREQ\n"
                        "2101ms B>A DREP\n"
                        "2101ms B event disconnected\n");
    cm_unlisten(listener);
    world_end(world, NULL, world->hosts[1].connection);
}

/* What fails with the goodbye does not overtake the event. */
static void goodbye_is_said_behind_the_event(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    struct host *b = &world->hosts[1];
    world_connect(world, 100);
    world_run(world, 1100);
    cm_await_goodbyes(b->cm);
    assert_int_equal(b->device.awaited, 1);
    assert_int_equal(b->device.awaited_of.value, b->connection->local_qpn.value);
    assert_int_equal(b->device.goodbyes, 0);
    unsigned wakes = b->wakes;
    assert_int_equal(replace_dead(world), 1);
    world_run(world, 2200);
    assert_int_equal(b->device.goodbyes, 1);
    assert_int_equal(b->device.wakes_at_goodbye, wakes + 1);
    b->device.awaited = 0;
    cm_await_goodbyes(b->cm);
    assert_int_equal(b->device.awaited, 0);
    cm_unlisten(listener);
    world_end(world, NULL, b->connection);
}

static void request_under_way_is_taken_back(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    world_connect(world, 100);
    world_run(world, 1100);
    struct cm_connection *b = world->hosts[1].connection;
    forget_trace(world);
    assert_int_equal(replace_dead(world), 1);
    world_run(world, 1200);
    expect_trace(world, "1100ms A>B REJ reason=4 about=0\n"
                        "1101ms B event rejected reason=4\n");
    cm_unlisten(listener);
    world_end(world, NULL, b);
}

static void reply_under_way_is_rejected(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    world->hosts[0].keep_quiet = true;
    world_connect(world, 100);
    world_run(world, 1100);
    forget_trace(world);
    assert_int_equal(replace_dead(world), 1);
    world_run(world, 1200);
    expect_trace(world, "1100ms A>B REJ reason=28 about=1\n"
                        "1101ms B event rejected reason=28\n");
    cm_unlisten(listener);
    world_end(world, NULL, world->hosts[1].connection);
}

/* The dead one had been asked and had not answered. */
static void request_to_the_dead_is_rejected(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener;
    struct host *a = &world->hosts[0], *b = &world->hosts[1];
    struct cm_connect_request request = world_request(200);
    request.path = (struct path){.local = world_gid(1), .remote = world_gid(0)};
    assert_int_equal(cm_listen(a->cm, SERVICE, NULL, 0, NULL, &listener), STATUS_OK);
    a->keep_quiet = true;
    assert_int_equal(cm_connect(b->cm, world_now(world), &request, &b->connection), STATUS_OK);
    world_run(world, 1100);
    forget_trace(world);
    assert_int_equal(replace_dead(world), 1);
    world_run(world, 1200);
    expect_trace(world, "1100ms A>B REJ reason=28 about=0\n"
                        "1101ms B event rejected reason=28\n");
    world_end(world, NULL, b->connection);
}

/* A second heir does it again, and no harm is done: who had the connection has ended it. */
static void wills_may_be_executed_twice(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    world_connect(world, 100);
    world_run(world, 1100);
    struct host *a = &world->hosts[0];
    struct cm_will will = a->wills[0];
    assert_int_equal(replace_dead(world), 1);
    assert_int_equal(cm_execute_will(a->cm, world_now(world), &will), STATUS_IN_USE);
    world_run(world, 1200);
    forget_trace(world);
    world_run(world, 8000); /* A's time-wait is over: it knows nothing of it any more */
    assert_int_equal(cm_execute_will(a->cm, world_now(world), &will), STATUS_OK);
    world_run(world, 8100);
    assert_non_null(strstr(world->trace, "A>B DREQ"));
    assert_non_null(strstr(world->trace, "B>A DREP"));
    assert_null(strstr(world->trace, "B event disconnected"));
    cm_unlisten(listener);
    world_end(world, NULL, world->hosts[1].connection);
}

static void nonsense_is_refused(void **state)
{
    struct world *world = world_create(1, 2);
    struct cm *cm = world->hosts[0].cm;
    const struct cm_will good = {.debt = CM_DEBT_DISCONNECT,
                                 .local_id = 5u << 20 | 1,
                                 .remote_id = 9,
                                 .path = {.local = world_gid(0), .remote = world_gid(1)}};
    struct cm_will will = good;
    will.debt = CM_DEBT_NONE;
    assert_int_equal(cm_execute_will(cm, world_now(world), &will), STATUS_INVALID);
    will.debt = CM_DEBT_COUNT;
    assert_int_equal(cm_execute_will(cm, world_now(world), &will), STATUS_INVALID);
    will = good;
    will.local_id = 0;
    assert_int_equal(cm_execute_will(cm, world_now(world), &will), STATUS_INVALID);
    will = good;
    will.remote_id = 0;
    assert_int_equal(cm_execute_will(cm, world_now(world), &will), STATUS_INVALID);
    for (uint32_t i = 0; i < 2; i++) {
        will = good;
        will.local_id += i;
        assert_int_equal(cm_execute_will(cm, world_now(world), &will), STATUS_OK);
    }
    will.local_id++;
    assert_int_equal(cm_execute_will(cm, world_now(world), &will), STATUS_FULL);
    world_end(world, NULL, NULL);
}

/* B's side of the swarm: everything accepted, and let go when it ends. */
static void let_go(struct world *world, struct host *host)
{
    switch (host->event.kind) {
    case CM_EVENT_REQUEST:
    case CM_EVENT_REPLY:
        world_answer(world, host);
        break;
    case CM_EVENT_REJECTED:
    case CM_EVENT_UNREACHABLE:
    case CM_EVENT_DISCONNECTED:
        cm_release(host->connection, world_now(world));
        break;
    default:
        break;
    }
}

/* Death at any instant, in a network that loses and repeats: no side believes in a dead one. */
static void death_at_any_instant(void **state)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct world *world = world_create(seed, 64);
        struct cm_listener *listener = world_listen(world, 0);
        world->on_event = let_go;
        world->lose_percent = seed % 4 * 5;
        world->repeat_percent = seed % 3 * 10;
        world->jitter_ns = 5 * MILLISECOND;
        for (uint32_t i = 0; i < 20; i++) {
            struct cm_connect_request request = world_request(100 + i);
            struct cm_connection *connection;
            assert_int_equal(
                cm_connect(world->hosts[0].cm, world_now(world), &request, &connection), STATUS_OK);
            world_run(world, world->now_ns / MILLISECOND + seed % 3);
        }
        world_run(world, world->now_ns / MILLISECOND + seed % 12);
        replace_dead(world);
        world_run(world, world->now_ns / MILLISECOND + 120000);
        /* Four DREQs may be lost: then B's own keep it. Without loss there is no excuse. */
        if (world->lose_percent == 0) {
            assert_int_equal(cm_connection_count(world->hosts[1].cm), 0);
        }
        assert_int_equal(cm_connection_count(world->hosts[0].cm), 0);
        cm_unlisten(listener);
        world_destroy(world);
    }
}

/* --- nobody lives who would execute them --- */

static struct world *connected(struct cm_connection **ret_a, struct cm_connection **ret_b)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    *ret_a = world_connect(world, 100);
    world_run(world, 1100);
    *ret_b = world->hosts[1].connection;
    forget_trace(world);
    return world;
}

static void goodbyes_are_hurried(void **state)
{
    struct cm_connection *a, *b;
    struct world *world = connected(&a, &b);
    struct cm *cm = world->hosts[0].cm;
    world->rules[0] = (struct rule){"A>B DREQ", .lose = 2};
    cm_say_goodbyes(cm, world_now(world));
    assert_int_equal(cm_goodbyes_unanswered(cm), 1);
    world_run(world, FOREVER);
    expect_trace(world, "1100ms A>B DREQ lost\n"
                        "1200ms A>B DREQ lost\n"
                        "1300ms A>B DREQ\n"
                        "1301ms B>A DREP\n"
                        "1301ms B event disconnected\n"
                        "1302ms A event disconnected\n"
                        "1435ms B event time wait over\n"
                        "1436ms A event time wait over\n");
    assert_int_equal(cm_goodbyes_unanswered(cm), 0);
    world_end(world, a, b);
}

/* The one that was said just before, too; and it is not said in vain for longer than a second. */
static void goodbyes_end_within_a_second(void **state)
{
    struct cm_connection *a, *b;
    struct world *world = connected(&a, &b);
    struct cm *cm = world->hosts[0].cm;
    world->rules[0] = (struct rule){"A>B DREQ", .lose = 99};
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK);
    cm_release(a, world_now(world));
    cm_say_goodbyes(cm, world_now(world));
    assert_int_equal(cm_goodbyes_unanswered(cm), 1);
    world_run(world, 1950);
    assert_int_equal(cm_goodbyes_unanswered(cm), 1);
    world_run(world, 2050);
    assert_int_equal(cm_goodbyes_unanswered(cm), 0);
    world_run(world, FOREVER);
    world_end(world, NULL, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connected_peer_is_disconnected),
        cmocka_unit_test(goodbye_is_said_behind_the_event),
        cmocka_unit_test(request_under_way_is_taken_back),
        cmocka_unit_test(reply_under_way_is_rejected),
        cmocka_unit_test(request_to_the_dead_is_rejected),
        cmocka_unit_test(wills_may_be_executed_twice),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(death_at_any_instant),
        cmocka_unit_test(goodbyes_are_hurried),
        cmocka_unit_test(goodbyes_end_within_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
