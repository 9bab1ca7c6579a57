/* One test per rule of connection management, its expected trace as text. The clock begins at
 * 1000 ms; a message takes 1 ms; a try of a REQ or a REP is 2147 ms. */
#include "rnic/cm/cm_private.h"
#include "rnic/cm/cm_world_test.h"

static struct world *connected(struct cm_connection **ret_a, struct cm_connection **ret_b)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    *ret_a = world_connect(world, 100);
    world_run(world, 1100);
    *ret_b = world->hosts[1].connection;
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "1001ms B>A REP\n"
                        "1002ms A event reply\n"
                        "1002ms A>B RTU\n"
                        "1003ms B event established\n");
    return world;
}

static void connect_and_disconnect(void **state)
{
    struct cm_connection *a, *b;
    struct world *world = connected(&a, &b);
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK);
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_STATE);
    world_run(world, FOREVER);
    expect_trace(world, "1100ms A>B DREQ\n"
                        "1101ms B>A DREP\n"
                        "1101ms B event disconnected\n"
                        "1102ms A event disconnected\n"
                        "1235ms B event time wait over\n"
                        "1236ms A event time wait over\n");
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_STATE);
    assert_int_equal(cm_connection_count(world->hosts[0].cm), 1);
    world_end(world, a, b);
}

static void keep_event(struct world *world, struct host *host)
{
    struct cm_event *kept = world->context;
    if (kept->kind == host->event.kind) {
        *kept = host->event;
    }
    world_answer(world, host);
}

static void parameters_arrive(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_event request = {.kind = CM_EVENT_REQUEST};
    int mark;
    struct cm_listener *listener;
    assert_int_equal(cm_listen(world->hosts[1].cm, SERVICE, NULL, 0, &mark, &listener), STATUS_OK);
    world->on_event = keep_event;
    world->context = &request;
    struct cm_connect_request sent = world_request(0x123456);
    sent.path.traffic_class = 8;
    sent.parameters.responder_resources = 3;
    sent.parameters.initiator_depth = 4;
    sent.parameters.retry_count = 5;
    sent.parameters.rnr_retry_count = 6;
    sent.parameters.private_length = CM_REQ_PRIVATE_MAX;
    memset(sent.parameters.private_data, 'p', CM_REQ_PRIVATE_MAX);
    struct cm_connection *a;
    assert_int_equal(cm_connect(world->hosts[0].cm, world_now(world), &sent, &a), STATUS_OK);
    world_run(world, 1100);

    assert_ptr_equal(request.context, &mark);
    assert_int_equal(request.service_id, SERVICE);
    struct gid a_gid = world_gid(0);
    struct gid b_gid = world_gid(1);
    assert_true(gid_equal(&request.path.remote, &a_gid));
    assert_true(gid_equal(&request.path.local, &b_gid));
    assert_int_equal(request.path.traffic_class, 8);
    const struct cm_parameters *got = &request.parameters;
    assert_int_equal(got->qpn.value, 0x123456);
    assert_int_equal(got->starting_psn.value, 10);
    assert_int_equal(got->responder_resources, 3);
    assert_int_equal(got->initiator_depth, 4);
    assert_int_equal(got->retry_count, 5);
    assert_int_equal(got->rnr_retry_count, 6);
    assert_int_equal(got->ack_timeout, 14);
    assert_int_equal(got->path_mtu, 3);
    assert_int_equal(got->private_length, CM_REQ_PRIVATE_MAX);
    assert_memory_equal(got->private_data, sent.parameters.private_data, CM_REQ_PRIVATE_MAX);
    assert_true(world->hosts[1].wakes > 0);
    world_end(world, a, request.connection);
}

/* The target's number arrives, and nothing else that the REP holds in its place. */
static void an_initiator_learns_its_target(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_event reply = {.kind = CM_EVENT_REPLY};
    world_listen(world, 0);
    world->on_event = keep_event;
    world->context = &reply;
    struct cm_connect_request sent = world_request(100);
    sent.parameters.transport_service = CM_TRANSPORT_EXTENDED;
    struct cm_connection *a;
    assert_int_equal(cm_connect(world->hosts[0].cm, world_now(world), &sent, &a), STATUS_OK);
    world_run(world, 1100);
    struct cm_connection *b = world->hosts[1].connection;
    assert_int_equal(reply.parameters.qpn.value, b->local_qpn.value);
    assert_int_equal(a->remote_qpn.value, b->local_qpn.value);
    assert_true(b->is_xrc);
    world_end(world, a, b);
}

static void nobody_listens(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, FOREVER);
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B>A REJ reason=8 about=0\n"
                        "1002ms A event rejected reason=8\n");
    world_end(world, a, NULL);
}

static void nobody_answers(void **state)
{
    struct world *world = world_create(1, 8);
    world->rules[0] = (struct rule){"A>B REQ", .lose = 99};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, FOREVER);
    expect_trace(world, "1000ms A>B REQ lost\n"
                        "3147ms A>B REQ lost\n"
                        "5294ms A>B REQ lost\n"
                        "7442ms A>B REQ lost\n"
                        "9589ms A>B REJ reason=4 about=0\n"
                        "9589ms A event unreachable\n");
    world_end(world, a, NULL);
}

static void lost_messages_are_repeated(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->rules[0] = (struct rule){"A>B REQ", .lose = 1};
    world->rules[1] = (struct rule){"B>A REP", .lose = 1};
    world->rules[2] = (struct rule){"A>B RTU", .lose = 1};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 9000);
    struct cm_connection *b = world->hosts[1].connection;
    expect_trace(world, "1000ms A>B REQ lost\n"
                        "3147ms A>B REQ\n"
                        "3148ms B event request\n"
                        "3148ms B>A REP lost\n"
                        "5294ms A>B REQ\n" /* a repeated REQ gets the REP again */
                        "5295ms B>A REP\n"
                        "5295ms B>A REP\n" /* whose own time was up as well */
                        "5296ms A event reply\n"
                        "5296ms A>B RTU lost\n"
                        "5296ms A>B RTU\n" /* a repeated REP gets the RTU again */
                        "5297ms B event established\n");
    world->rules[3] = (struct rule){"B>A DREQ", .lose = 1};
    world->rules[4] = (struct rule){"A>B DREP", .lose = 1};
    assert_int_equal(cm_disconnect(b, world_now(world)), STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "9000ms B>A DREQ lost\n"
                        "10000ms B>A DREQ\n"
                        "10001ms A>B DREP lost\n"
                        "10001ms A event disconnected\n"
                        "10135ms A event time wait over\n"
                        "11000ms B>A DREQ\n" /* a repeated DREQ gets the DREP again */
                        "11001ms A>B DREP\n"
                        "11002ms B event disconnected\n"
                        "11136ms B event time wait over\n");
    world_end(world, a, b);
}

static void repeated_messages_change_nothing(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->rules[0] = (struct rule){"A>B REQ", .repeat = 9};
    world->rules[1] = (struct rule){"B>A REP", .repeat = 9};
    world->rules[2] = (struct rule){"A>B RTU", .repeat = 9};
    world->rules[3] = (struct rule){"A>B DREQ", .repeat = 9};
    world->rules[4] = (struct rule){"B>A DREP", .repeat = 9};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1100);
    struct cm_connection *b = world->hosts[1].connection;
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "1000ms A>B REQ twice\n"
                        "1001ms B event request\n"
                        "1001ms B>A REP twice\n"
                        "1001ms B>A REP twice\n"
                        "1002ms A event reply\n"
                        "1002ms A>B RTU twice\n"
                        "1002ms A>B RTU twice\n"
                        "1002ms A>B RTU twice\n"
                        "1002ms A>B RTU twice\n"
                        "1003ms B event established\n"
                        "1100ms A>B DREQ twice\n"
                        "1101ms B>A DREP twice\n"
                        "1101ms B event disconnected\n"
                        "1101ms B>A DREP twice\n"
                        "1102ms A event disconnected\n"
                        "1235ms B event time wait over\n"
                        "1236ms A event time wait over\n");
    world_end(world, a, b);
}

static void data_stands_for_a_lost_ready(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->rules[0] = (struct rule){"A>B RTU", .lose = 99};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1100);
    struct cm_connection *b = world->hosts[1].connection;
    cm_data_arrived(b, world_now(world));
    cm_data_arrived(b, world_now(world));
    world_run(world, 9000);
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "1001ms B>A REP\n"
                        "1002ms A event reply\n"
                        "1002ms A>B RTU lost\n"
                        "1100ms B event established\n");
    world_end(world, a, b);
}

static void ready_never_arrives(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->rules[0] = (struct rule){"A>B RTU", .lose = 99};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, FOREVER);
    struct cm_connection *b = world->hosts[1].connection;
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "1001ms B>A REP\n"
                        "1002ms A event reply\n"
                        "1002ms A>B RTU lost\n"
                        "3148ms B>A REP\n"
                        "3149ms A>B RTU lost\n"
                        "5295ms B>A REP\n"
                        "5296ms A>B RTU lost\n"
                        "7443ms B>A REP\n"
                        "7444ms A>B RTU lost\n"
                        "9590ms B>A REJ reason=4 about=1\n"
                        "9590ms B event unreachable\n"
                        "9591ms A event disconnected\n"
                        "9725ms B event time wait over\n"
                        "9726ms A event time wait over\n");
    world_end(world, a, b);
}

static void reject_request(struct world *world, struct host *host)
{
    if (host->event.kind == CM_EVENT_REQUEST) {
        assert_int_equal(cm_reject(host->connection, world_now(world), CM_REJECT_CONSUMER, "no", 2),
                         STATUS_OK);
    } else {
        assert_memory_equal(host->event.parameters.private_data, "no", 3);
    }
}

static void the_caller_rejects(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->on_event = reject_request;
    world->rules[0] = (struct rule){"B>A REJ", .lose = 1};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, FOREVER);
    struct cm_connection *b = world->hosts[1].connection;
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "1001ms B>A REJ reason=28 about=0 lost\n"
                        "3147ms A>B REQ\n" /* a repeated REQ gets the REJ again */
                        "3148ms B>A REJ reason=28 about=0\n"
                        "3149ms A event rejected reason=28\n");
    struct cm_parameters parameters = {.qpn = {200}};
    assert_int_equal(cm_accept(b, world_now(world), &parameters), STATUS_STATE);
    world_end(world, a, b);
}

static void reject_reply(struct world *world, struct host *host)
{
    if (host->event.kind == CM_EVENT_REPLY) {
        assert_int_equal(cm_reject(host->connection, world_now(world), 1234, NULL, 0), STATUS_OK);
    } else {
        world_answer(world, host);
    }
}

static void the_reply_is_rejected(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->on_event = reject_reply;
    world->rules[0] = (struct rule){"A>B REJ", .lose = 1};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, FOREVER);
    struct cm_connection *b = world->hosts[1].connection;
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "1001ms B>A REP\n"
                        "1002ms A event reply\n"
                        "1002ms A>B REJ reason=1234 about=1 lost\n"
                        "3148ms B>A REP\n"
                        "3149ms A>B REJ reason=1234 about=1\n"
                        "3150ms B event rejected reason=1234\n");
    world_end(world, a, b);
}

static void a_reply_comes_too_late(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    world->rules[0] = (struct rule){"A>B REJ", .lose = 1};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 10000);
    world->trace_length = 0;
    world->trace[0] = '\0';
    struct cm_connection *b = world->hosts[1].connection;
    struct cm_parameters parameters = {.qpn = {200}};
    assert_int_equal(cm_accept(b, world_now(world), &parameters), STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "10000ms B>A REP\n"
                        "10001ms A>B REJ reason=4 about=1\n"
                        "10002ms B event rejected reason=4\n");
    world_end(world, a, b);

    /* The same when A does not even remember. */
    world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    world->rules[0] = (struct rule){"A>B REJ", .lose = 1};
    a = world_connect(world, 100);
    world_run(world, 10000);
    cm_release(a, world_now(world));
    world->trace_length = 0;
    world->trace[0] = '\0';
    b = world->hosts[1].connection;
    assert_int_equal(cm_accept(b, world_now(world), &parameters), STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "10000ms B>A REP\n"
                        "10001ms A>B REJ reason=6 about=1\n"
                        "10002ms B event rejected reason=6\n");
    world_end(world, NULL, b);
}

static void giving_up_tells_the_passive_side(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1100);
    cm_release(a, world_now(world)); /* the caller has changed its mind */
    world_run(world, FOREVER);
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "1100ms A>B REJ reason=4 about=0\n"
                        "1101ms B event rejected reason=4\n");
    world_end(world, NULL, world->hosts[1].connection);
}

static void disconnects_cross(void **state)
{
    struct cm_connection *a, *b;
    struct world *world = connected(&a, &b);
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK);
    assert_int_equal(cm_disconnect(b, world_now(world)), STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "1100ms A>B DREQ\n"
                        "1100ms B>A DREQ\n"
                        "1101ms B>A DREP\n"
                        "1101ms B event disconnected\n"
                        "1101ms A>B DREP\n"
                        "1101ms A event disconnected\n"
                        "1235ms A event time wait over\n"
                        "1235ms B event time wait over\n");
    world_end(world, a, b);
}

static void a_dead_peer_is_left_after_four_seconds(void **state)
{
    struct cm_connection *a, *b;
    struct world *world = connected(&a, &b);
    world->rules[0] = (struct rule){"A>B DREQ", .lose = 99};
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "1100ms A>B DREQ lost\n"
                        "2100ms A>B DREQ lost\n"
                        "3100ms A>B DREQ lost\n"
                        "4100ms A>B DREQ lost\n"
                        "5100ms A event disconnected\n"
                        "5234ms A>B DREQ lost\n"
                        "5234ms A event time wait over\n"
                        "9234ms A>B DREQ lost\n"
                        "13234ms A>B DREQ lost\n"
                        "17234ms A>B DREQ lost\n"
                        "21234ms A>B DREQ lost\n"
                        "25234ms A>B DREQ lost\n"
                        "29234ms A>B DREQ lost\n"
                        "33234ms A>B DREQ lost\n"
                        "37234ms A>B DREQ lost\n"
                        "41234ms A>B DREQ lost\n"
                        "45234ms A>B DREQ lost\n"
                        "49234ms A>B DREQ lost\n"
                        "53234ms A>B DREQ lost\n"
                        "57234ms A>B DREQ lost\n");
    world->rules[0].lose = 0;
    world_end(world, a, b);
}

static void disconnect_before_the_ready(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->rules[0] = (struct rule){"B>A REP", .lose = 99};
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1100);
    struct cm_connection *b = world->hosts[1].connection;
    assert_int_equal(cm_disconnect(b, world_now(world)), STATUS_OK);
    world_run(world, FOREVER);
    expect_trace(world, "1000ms A>B REQ\n"
                        "1001ms B event request\n"
                        "1001ms B>A REP lost\n"
                        "1100ms B>A DREQ\n" /* A does not know who that is */
                        "2100ms B>A DREQ\n"
                        "3100ms B>A DREQ\n"
                        "3147ms A>B REQ\n"
                        "3148ms B>A REJ reason=10 about=0\n"
                        "3149ms A event rejected reason=10\n"
                        "4100ms B>A DREQ\n"
                        "4101ms A>B DREP\n"
                        "4102ms B event disconnected\n"
                        "4236ms B event time wait over\n");
    world_end(world, a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connect_and_disconnect),
        cmocka_unit_test(parameters_arrive),
        cmocka_unit_test(an_initiator_learns_its_target),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(nobody_answers),
        cmocka_unit_test(lost_messages_are_repeated),
        cmocka_unit_test(repeated_messages_change_nothing),
        cmocka_unit_test(data_stands_for_a_lost_ready),
        cmocka_unit_test(ready_never_arrives),
        cmocka_unit_test(the_caller_rejects),
        cmocka_unit_test(the_reply_is_rejected),
        cmocka_unit_test(a_reply_comes_too_late),
        cmocka_unit_test(giving_up_tells_the_passive_side),
        cmocka_unit_test(disconnects_cross),
        cmocka_unit_test(a_dead_peer_is_left_after_four_seconds),
        cmocka_unit_test(disconnect_before_the_ready),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
