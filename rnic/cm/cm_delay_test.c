/* MRA: who needs time for an answer says so when asked again. The clock begins at 1000 ms; a
 * message takes 1 ms; a try of a REQ or a REP is 2147 ms where nothing else is said. */
#include "rnic/cm/cm_private.h"
#include "rnic/cm/cm_world_test.h"

/* A peer that heeds an MRA waits for long: one that came unasked would hide a lost RTU from it. */
static void who_asked_for_time_and_needed_none_is_asked_again_soon(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[0].keep_quiet = true;
    world->rules[0] = (struct rule){"A>B RTU", .lose = 1};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1500);
    assert_int_equal(cm_delay(a, world_now(world), 21), STATUS_OK);
    assert_int_equal(cm_confirm(a, world_now(world)), STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "1001ms B>A REP\n"
                        "1002ms A event reply\n"
                        "1500ms A>B RTU lost\n"
                        "3148ms B>A REP\n"
                        "3149ms A>B RTU\n"
                        "3150ms B event established\n");
    world_end(world, a, world->hosts[1].connection);
}

static void more_time_is_asked_for(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    world->rules[0] = (struct rule){"B>A MRA", .lose = 1};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1500);
    struct cm_connection *b = world->hosts[1].connection;
    assert_int_equal(cm_delay(b, world_now(world), 21), STATUS_OK); /* 8590 ms */
    world_run(world, 12000);
    struct cm_parameters parameters = {.qpn = {200}};
    assert_int_equal(cm_accept(b, world_now(world), &parameters), STATUS_OK);
    assert_int_equal(cm_delay(b, world_now(world), 21), STATUS_STATE);
    world_run(world, 12100);
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "3147ms A>B REQ\n"
                        "3148ms B>A MRA lost\n"
                        "5294ms A>B REQ\n"
                        "5295ms B>A MRA\n"  /* each repeated REQ gets it */
                        "12000ms B>A REP\n" /* 5296 + 8590 + 2147 ms are not over */
                        "12001ms A event reply\n"
                        "12001ms A>B RTU\n"
                        "12002ms B event established\n");
    world_end(world, a, b);
}

/* The peer repeats its REQ when the wait is over that it was asked for; the REJ is still known. */
static void a_reject_is_remembered_for_as_long_as_we_asked(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    world->rules[0] = (struct rule){"B>A REJ", .lose = 2};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1500);
    struct cm_connection *b = world->hosts[1].connection;
    assert_int_equal(cm_delay(b, world_now(world), 22), STATUS_OK); /* 17180 ms */
    world_run(world, 3500);
    assert_int_equal(cm_reject(b, world_now(world), CM_REJECT_CONSUMER, NULL, 0), STATUS_OK);
    cm_release(b, world_now(world));
    world_run(world, FOREVER);
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "3147ms A>B REQ\n"
                        "3148ms B>A MRA\n"
                        "3500ms B>A REJ reason=28 about=0 lost\n"
                        "22476ms A>B REQ\n" /* 3149 + 17180 + 2147 ms */
                        "22477ms B>A REJ reason=28 about=0 lost\n"
                        "24624ms A>B REQ\n"
                        "24625ms B>A REJ reason=28 about=0\n"
                        "24626ms A event rejected reason=28\n");
    world_end(world, a, NULL);
}

/* As rdma_cm asks: a try of 537 ms, 15 more of them. */
static struct world *delayed(uint8_t service_timeout, struct cm_connection **ret_a)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    struct cm_connect_request request = world_request(100);
    request.response_timeout = 17;
    request.max_retries = 15;
    assert_int_equal(cm_connect(world->hosts[0].cm, world_now(world), &request, ret_a), STATUS_OK);
    world_run(world, 1001);
    assert_int_equal(cm_delay(world->hosts[1].connection, world_now(world), service_timeout),
                     STATUS_OK);
    world_run(world, 1540);
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "1536ms A>B REQ\n"
                        "1537ms B>A MRA\n");
    return world;
}

static void who_dies_after_asking_for_time_is_left_after_ten_seconds(void **state)
{
    struct cm_connection *a;
    struct world *world = delayed(20, &a);
    world->rules[0] = (struct rule){"A>B REQ", .lose = 99};
    world_run(world, FOREVER);
    expect_trace(world, "6370ms A>B REQ lost\n" /* 1538 + 4295 + 537 ms */
                        "6907ms A>B REQ lost\n"
                        "7444ms A>B REQ lost\n"
                        "7981ms A>B REQ lost\n"
                        "8518ms A>B REQ lost\n"
                        "9055ms A>B REQ lost\n"
                        "9591ms A>B REQ lost\n"
                        "10128ms A>B REJ reason=4 about=0\n"
                        "10128ms A event unreachable\n"
                        "10129ms B event rejected reason=4\n");
    world_end(world, a, world->hosts[1].connection);
}

static void an_answer_may_take_a_minute(void **state)
{
    struct cm_connection *a;
    struct world *world = delayed(20, &a);
    world_run(world, 68000);
    struct cm_parameters parameters = {.qpn = {200}};
    world->trace_length = 0;
    assert_int_equal(cm_accept(world->hosts[1].connection, world_now(world), &parameters),
                     STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "68000ms B>A REP\n"
                        "68001ms A event reply\n"
                        "68001ms A>B RTU\n"
                        "68002ms B event established\n");
    world_end(world, a, world->hosts[1].connection);
}

/* A wait that is longer than all tries together leaves some of them, in case one is lost. */
static void after_a_long_wait_three_tries_are_left(void **state)
{
    struct cm_connection *a;
    struct world *world = delayed(24, &a);
    world->rules[0] = (struct rule){"A>B REQ", .lose = 99};
    world_run(world, FOREVER);
    expect_trace(world, "70795ms A>B REQ lost\n" /* 1538 + 68719 + 537 ms */
                        "71332ms A>B REQ lost\n"
                        "71868ms A>B REQ lost\n"
                        "72405ms A>B REJ reason=4 about=0\n"
                        "72405ms A event unreachable\n"
                        "72406ms B event rejected reason=4\n");
    world_end(world, a, world->hosts[1].connection);
}

/* It could not be told later: it will not ask again. */
static void who_asks_but_once_is_told_at_once(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    struct cm_message request = request_of(1, 100);
    request.max_cm_retries = 0;
    inject(world, 0, &request);
    forget_trace(world);
    struct cm_connection *b = world->hosts[1].connection;
    assert_int_equal(cm_delay(b, world_now(world), 20), STATUS_OK);
    expect_trace(world, "1000ms B>A MRA\n");
    world_run(world, 1100);
    world_end(world, NULL, b);
}

/* A repetition waits for room in the device when the answer comes, and an MRA takes its place. */
static void what_takes_a_waiting_message_s_place_does_not_leave_for_it(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[0].keep_quiet = true;
    world->rules[0] = (struct rule){"B>A REP", .lose = 1};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 3146);
    forget_trace(world);
    world->hosts[0].device.full = true;
    world_run(world, 3150); /* A would have repeated its REQ, B has repeated its REP */
    assert_int_equal(a->state, CM_REP_RECEIVED);
    assert_int_equal(cm_delay(a, world_now(world), 21), STATUS_OK);
    world->hosts[0].device.full = false;
    world_run(world, 3200);
    assert_null(strstr(world->trace, "MRA"));
    assert_int_equal(cm_confirm(a, world_now(world)), STATUS_OK);
    world_run(world, 3300);
    world->trace_length = 0;
    world_end(world, a, world->hosts[1].connection);
}

#define MANY 600u

static void take_time(struct world *world, struct host *host)
{
    uint32_t *accepted = world->context;
    if (host->event.kind == CM_EVENT_REQUEST) {
        struct cm_parameters parameters = {.qpn = {1000 + ++*accepted}};
        assert_int_equal(cm_accept(host->connection, world_now(world), &parameters), STATUS_OK);
    } else if (host->event.kind == CM_EVENT_REPLY) {
        assert_int_equal(cm_delay(host->connection, world_now(world), 20), STATUS_OK);
    }
}

static uint32_t count_in(const struct host *host, enum cm_state state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < host->cm->connections_touched; i++) {
        count += host->cm->connections[i].state == state;
    }
    return count;
}

/* B does not repeat all that it would: so it need not ask for an answer that takes time. */
static void many_who_are_slow_to_confirm_are_waited_for(void **state)
{
    struct world *world = world_create(1, 1024);
    uint32_t accepted = 0;
    struct cm_connection *a[MANY];
    world_listen(world, 0);
    world->on_event = take_time;
    world->context = &accepted;
    for (uint32_t i = 0; i < MANY; i++) {
        struct cm_connect_request request = world_request(10000 + i);
        request.response_timeout = 17; /* as rdma_cm asks */
        request.max_retries = 15;
        assert_int_equal(cm_connect(world->hosts[0].cm, world_now(world), &request, &a[i]),
                         STATUS_OK);
    }
    world_run(world, 5000);
    assert_int_equal(count_in(&world->hosts[0], CM_REP_RECEIVED), MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(cm_confirm(a[i], world_now(world)), STATUS_OK);
    }
    world_run(world, 5100);
    assert_int_equal(count_in(&world->hosts[1], CM_ESTABLISHED), MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        cm_release(a[i], world_now(world));
    }
    world_run(world, FOREVER);
    for (uint32_t i = 0; i < world->hosts[1].cm->connections_touched; i++) {
        cm_release(&world->hosts[1].cm->connections[i], world_now(world));
    }
    world->trace_length = 0;
    world_end(world, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_asked_for_time_and_needed_none_is_asked_again_soon),
        cmocka_unit_test(more_time_is_asked_for),
        cmocka_unit_test(a_reject_is_remembered_for_as_long_as_we_asked),
        cmocka_unit_test(who_dies_after_asking_for_time_is_left_after_ten_seconds),
        cmocka_unit_test(an_answer_may_take_a_minute),
        cmocka_unit_test(after_a_long_wait_three_tries_are_left),
        cmocka_unit_test(who_asks_but_once_is_told_at_once),
        cmocka_unit_test(what_takes_a_waiting_message_s_place_does_not_leave_for_it),
        cmocka_unit_test(many_who_are_slow_to_confirm_are_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
