/* What strangers' requests may hold and cost: the backlog, the half-open connections, the table. */
#include "rnic/cm/cm_private.h"
#include "rnic/cm/cm_world_test.h"

static void the_backlog_bounds_half_open_requests(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 2);
    world->hosts[1].keep_quiet = true;
    for (uint32_t i = 1; i <= 4; i++) {
        struct cm_message request = request_of(i, 100 + i);
        inject(world, 0, &request);
    }
    expect_trace(world, "1000ms B event request\n"
                        "1000ms B event request\n");
    /* One that is answered makes room. */
    struct cm_connection *second = world->hosts[1].connection;
    assert_int_equal(cm_reject(second, world_now(world), 28, NULL, 0), STATUS_OK);
    struct cm_message request = request_of(5, 105);
    inject(world, 0, &request);
    expect_trace(world, "1000ms B>A REJ reason=28 about=0\n"
                        "1000ms B event request\n");
    struct cm_connection *third = world->hosts[1].connection;
    /* So does a longer one. */
    cm_set_backlog(listener, 3);
    for (uint32_t i = 6; i <= 7; i++) {
        request = request_of(i, 100 + i);
        inject(world, 0, &request);
    }
    expect_trace(world, "1000ms B event request\n");
    struct cm_connection *fourth = world->hosts[1].connection;
    cm_unlisten(listener); /* the three that wait are rejected */
    expect_trace(world, "1000ms B>A REJ reason=8 about=0\n"
                        "1000ms B>A REJ reason=8 about=0\n"
                        "1000ms B>A REJ reason=8 about=0\n");
    assert_int_equal(cm_listener_count(world->hosts[1].cm), 0);
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 4);
    cm_release(second, world_now(world));
    cm_release(third, world_now(world));
    cm_release(fourth, world_now(world));
    world_run(world, FOREVER);
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 1); /* the first is still held */
    world_destroy(world);
}

/* Who is told nothing asks again, and comes in once a request has been taken, answered or not. */
static void who_finds_no_room_comes_again(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 1);
    world->hosts[1].keep_quiet = true;
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1010);
    struct cm_connection *first = world->hosts[1].connection;
    struct cm_connection *late = world_connect(world, 101);
    world_run(world, 1020);
    cm_taken(first);
    forget_trace(world);
    world_run(world, 3200); /* a try is 2147 ms; the first is asked for again, too */
    assert_non_null(strstr(world->trace, "B event request"));
    assert_null(strstr(world->trace, "REJ"));
    struct cm_connection *second = world->hosts[1].connection;
    assert_ptr_not_equal(first, second);
    cm_unlisten(listener); /* what was taken is left alone */
    assert_non_null(strstr(world->trace, "REJ reason=8"));
    cm_release(first, world_now(world));
    cm_release(second, world_now(world));
    cm_release(late, world_now(world));
    world_end(world, a, NULL);
}

/* REQ and REJ in turn: what the caller holds, whatever the peer says, is in the backlog. */
static void requests_taken_back_stay_in_the_backlog(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 2);
    world->hosts[1].keep_quiet = true;
    struct cm_connection *held[2];
    for (uint32_t i = 1; i <= 3; i++) {
        struct cm_message request = request_of(i, 100 + i);
        inject(world, 0, &request);
        struct cm_message reject = {
            .kind = CM_MESSAGE_REJ, .transaction = i, .local_id = i, .reject_reason = 4};
        inject(world, 0, &reject);
        if (i <= 2) {
            held[i - 1] = world->hosts[1].connection;
        }
    }
    expect_trace(world, "1000ms B event request\n"
                        "1000ms B event rejected reason=4\n"
                        "1000ms B event request\n"
                        "1000ms B event rejected reason=4\n");
    /* An answer makes room, though it is too late; so does a release. */
    struct cm_parameters parameters = {.qpn = {200}};
    assert_int_equal(cm_accept(held[0], world_now(world), &parameters), STATUS_STATE);
    cm_release(held[1], world_now(world));
    for (uint32_t i = 4; i <= 6; i++) {
        struct cm_message request = request_of(i, 100 + i);
        inject(world, 0, &request);
        held[1] = i == 4 ? world->hosts[1].connection : held[1];
    }
    expect_trace(world, "1000ms B event request\n"
                        "1000ms B event request\n");
    struct cm_message reject = {
        .kind = CM_MESSAGE_REJ, .transaction = 5, .local_id = 5, .reject_reason = 4};
    inject(world, 0, &reject);
    cm_unlisten(listener); /* rejects the one that still waits, and leaves the other alone */
    expect_trace(world, "1000ms B event rejected reason=4\n"
                        "1000ms B>A REJ reason=8 about=0\n");
    cm_release(world->hosts[1].connection, world_now(world));
    world_end(world, held[0], held[1]);
}

static void requests_that_nobody_took_vanish(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    struct cm *cm = world->hosts[1].cm;
    struct management_handler *handler = world->hosts[1].device.handler;
    struct arrival arrival = {.path = {.local = world_gid(1), .remote = world_gid(0)}};
    uint8_t mad[MAD_LENGTH];
    for (uint32_t i = 1; i <= 2; i++) {
        struct cm_message request = request_of(i, 100 + i);
        cm_message_build(&request, mad);
        handler->receive(handler, world_now(world), &arrival, QPN_MANAGEMENT, mad, MAD_LENGTH);
    }
    struct cm_message reject = {
        .kind = CM_MESSAGE_REJ, .transaction = 1, .local_id = 1, .reject_reason = 4};
    inject(world, 0, &reject); /* the first peer changes its mind, then events are looked at */
    expect_trace(world, "1000ms B event request\n"
                        "1000ms B>A REP\n");
    assert_int_equal(cm_connection_count(cm), 1);
    struct cm_message request = request_of(3, 103);
    cm_message_build(&request, mad);
    handler->receive(handler, world_now(world), &arrival, QPN_MANAGEMENT, mad, MAD_LENGTH);
    cm_unlisten(listener);
    world_take_events(world);
    expect_trace(world, "1000ms B>A REJ reason=8 about=0\n");
    world_end(world, NULL, world->hosts[1].connection);
}

static void accept_and_let_go(struct world *world, struct host *host)
{
    world_answer(world, host);
    if (host->event.kind == CM_EVENT_UNREACHABLE) {
        cm_release(host->connection, world_now(world));
    }
}

/* Requests from an address where nobody answers, each of which asks for as much patience as it may;
 * all are accepted. Without a bound they would stand for 4.6 minutes. */
static void a_flood_of_half_open_connections_passes(void **state)
{
    struct world *world = world_create(1, 512);
    world_listen(world, 0);
    world->on_event = accept_and_let_go;
    for (uint32_t i = 1; i <= 400; i++) {
        struct cm_message request = request_of(i, 1000 + i);
        request.path.local = world_gid(2);
        request.local_response_timeout = 22;
        request.max_cm_retries = 15;
        inject(world, 2, &request);
    }
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 400);
    struct cm_connection *a = world_connect(world, 100); /* an honest one, meanwhile */
    world_run(world, 1100);
    const struct gid peer = world_gid(0);
    struct cm_connection *b = cm_table_find_by_remote_id(world->hosts[1].cm, &peer, a->local_id);
    assert_non_null(b);
    assert_int_equal(b->state, CM_ESTABLISHED);
    forget_trace(world);
    world_run(world, 15000);
    assert_in_range(cm_connection_count(world->hosts[1].cm), 1, 65 + 1);
    world->trace_length = 0;
    world_end(world, a, b);
}

/* The same that want to be asked often: who is named as their sender gets little more than one
 * packet for each. */
static void a_flood_is_not_made_larger(void **state)
{
    struct world *world = world_create(1, 512);
    world_listen(world, 0);
    world->on_event = accept_and_let_go;
    for (uint32_t i = 1; i <= 400; i++) {
        struct cm_message request = request_of(i, 1000 + i);
        request.path.local = world_gid(2);
        request.local_response_timeout = 14; /* 67 ms */
        request.max_cm_retries = 15;
        inject(world, 2, &request);
    }
    uint32_t sent = world->hosts[1].device.sent;
    assert_int_equal(sent, 400);
    world_run(world, 1990);
    sent = world->hosts[1].device.sent - sent;
    assert_in_range(sent, 256, 256 + 400); /* repeated; and a REJ to each that has had its tries */
    world->trace_length = 0;
    world_run(world, 15000);
    world->trace_length = 0;
    world_end(world, NULL, NULL);
}

/* Who accepts and lets go of them to bound them, as rsockets do: no DREQ, which would be repeated.
 */
static void who_gives_way_in_a_flood_is_told_once(void **state)
{
    struct world *world = world_create(1, 512);
    struct cm_connection *oldest[100];
    world_listen(world, 0);
    world->on_event = accept_and_let_go;
    for (uint32_t i = 0; i < 164; i++) {
        struct cm_message request = request_of(1 + i, 1000 + i);
        request.path.local = world_gid(2);
        request.local_response_timeout = 14;
        request.max_cm_retries = 1;
        inject(world, 2, &request);
        if (i < 100) {
            oldest[i] = world->hosts[1].connection;
        }
    }
    const uint32_t sent = world->hosts[1].device.sent;
    for (uint32_t i = 0; i < 100; i++) {
        cm_release(oldest[i], world_now(world));
        assert_int_equal(oldest[i]->state, CM_TIME_WAIT);
    }
    assert_int_equal(world->hosts[1].device.sent, sent + 100);
    world_run(world, 15000);
    world->trace_length = 0;
    world_end(world, NULL, NULL);
}

/* A request in the name of a peer whose own one waits for the application. */
static void a_forged_request_takes_none_back(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    struct cm_message request = request_of(1, 100);
    inject(world, 0, &request);
    struct cm_message forged = request_of(2, 100);
    inject(world, 0, &forged);
    expect_trace(world, "1000ms B event request\n"
                        "1000ms B>A REJ reason=10 about=0\n");
    struct cm_parameters parameters = {.qpn = {200}};
    struct cm_connection *connection = world->hosts[1].connection;
    assert_int_equal(cm_accept(connection, world_now(world), &parameters), STATUS_OK);
    expect_trace(world, "1000ms B>A REP\n");
    cm_unlisten(listener);
    world_end(world, NULL, connection);
}

static void room_for_connections_is_bounded(void **state)
{
    struct world *world = world_create(1, 2);
    world_listen(world, 0);
    for (uint32_t i = 1; i <= 3; i++) {
        struct cm_message request = request_of(i, 100 + i);
        inject(world, 0, &request);
    }
    expect_trace(world, "1000ms B event request\n"
                        "1000ms B>A REP\n"
                        "1000ms B event request\n"
                        "1000ms B>A REP\n"
                        "1000ms B>A REJ reason=3 about=0\n");
    struct cm_connect_request request = world_request(7);
    struct cm_connection *connection;
    assert_int_equal(cm_connect(world->hosts[1].cm, world_now(world), &request, &connection),
                     STATUS_FULL);
    world_run(world, FOREVER);
    world_destroy(world);

    /* What only remembers its REJ gives way. */
    world = world_create(1, 2);
    world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    for (uint32_t i = 1; i <= 5; i++) {
        struct cm_message message = request_of(i, 100 + i);
        inject(world, 0, &message);
        world->hosts[1].device.full = i % 2 == 0; /* its REJ may be still to be sent */
        cm_release(world->hosts[1].connection, world_now(world));
        world->hosts[1].device.full = false;
        assert_true(cm_connection_count(world->hosts[1].cm) <= 2);
    }
    world_end(world, NULL, NULL);
}

/* Connections that their peers have not heard the end of do not keep others out, once nobody here
 * waits for them. */
static void what_nobody_hears_gives_way(void **state)
{
    struct cm_connection *a, *b, *next[8];
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    a = world_connect(world, 100);
    world_run(world, 1100);
    b = world->hosts[1].connection;
    struct cm *cm = world->hosts[0].cm;
    world->rules[0] = (struct rule){"A>B DREQ", .lose = 99};
    world->rules[1] = (struct rule){"A>B REQ", .lose = 99};
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK);
    world_run(world, world->now_ns / MILLISECOND + 6000);
    for (uint32_t i = 0; i < world->max_connections - 1; i++) {
        struct cm_connect_request request = world_request(200 + i);
        assert_int_equal(cm_connect(cm, world_now(world), &request, &next[i]), STATUS_OK);
    }
    struct cm_connect_request request = world_request(300);
    struct cm_connection *last;
    assert_int_equal(cm_connect(cm, world_now(world), &request, &last), STATUS_FULL);
    cm_release(a, world_now(world));
    assert_int_equal(cm_connect(cm, world_now(world), &request, &last), STATUS_OK);
    for (uint32_t i = 0; i < world->max_connections - 1; i++) {
        cm_release(next[i], world_now(world));
    }
    world_end(world, last, b);
}

/* The device had no room for a REJ for as long as it is remembered; then the peer asks again. */
static void what_is_sent_late_leaves_nothing(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    const struct cm_message request = request_of(1, 21);
    world->hosts[1].keep_quiet = true;
    inject(world, 0, &request);
    world->hosts[1].device.full = true;
    cm_release(world->hosts[1].connection, world_now(world));
    world_run(world, 30000);
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 1);
    world->hosts[1].device.full = false;
    inject(world, 0, &request);
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 0);
    cm_unlisten(listener);
    world_end(world, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_backlog_bounds_half_open_requests),
        cmocka_unit_test(who_finds_no_room_comes_again),
        cmocka_unit_test(requests_taken_back_stay_in_the_backlog),
        cmocka_unit_test(requests_that_nobody_took_vanish),
        cmocka_unit_test(a_flood_of_half_open_connections_passes),
        cmocka_unit_test(a_flood_is_not_made_larger),
        cmocka_unit_test(who_gives_way_in_a_flood_is_told_once),
        cmocka_unit_test(a_forged_request_takes_none_back),
        cmocka_unit_test(room_for_connections_is_bounded),
        cmocka_unit_test(what_nobody_hears_gives_way),
        cmocka_unit_test(what_is_sent_late_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
