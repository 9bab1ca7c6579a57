/* What strangers, forgers and full tables may not do. The rules of friendly connections are in
 * cm_test.c, what may be asked for at all in cm_room_test.c. */
#include "rnic/cm/cm_private.h"
#include "rnic/cm/cm_world_test.h"

static uint32_t seen_id[2]; /* of A and B, from their REQ and REP */

static void spy(struct world *world)
{
    for (int i = 0; i < world->flight_count; i++) {
        struct cm_message message;
        assert_int_equal(cm_message_parse(world->flights[i].mad, MAD_LENGTH, &message), STATUS_OK);
        seen_id[1 - world->flights[i].to] = message.local_id;
    }
}

static struct world *connected(struct cm_connection **ret_a, struct cm_connection **ret_b)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    *ret_a = world_connect(world, 100);
    spy(world);
    for (uint64_t ms = 1001; ms < 1005; ms++) {
        world_run(world, ms);
        spy(world);
    }
    *ret_b = world->hosts[1].connection;
    forget_trace(world);
    return world;
}

static void only_the_peer_is_believed(void **state)
{
    struct cm_connection *a, *b;
    struct world *world = connected(&a, &b);
    struct device *device = &world->hosts[1].device;
    struct cm_message message = {
        .kind = CM_MESSAGE_DREQ,
        .local_id = seen_id[0],
        .remote_id = seen_id[1],
        .local_qpn = {200},
    };
    inject(world, 2, &message); /* all right but the address */
    assert_int_equal(device->refused, 1);
    message.local_qpn.value = 201; /* not our queue pair */
    inject(world, 0, &message);
    assert_int_equal(device->refused, 2);

    const enum cm_message_kind kinds[] = {CM_MESSAGE_REJ, CM_MESSAGE_DREP, CM_MESSAGE_MRA,
                                          CM_MESSAGE_RTU};
    message.local_id ^= 1; /* not the peer's id */
    for (unsigned i = 0; i < 4; i++) {
        message.kind = kinds[i];
        inject(world, 0, &message);
        assert_int_equal(device->refused, 3 + i);
    }
    message.local_id ^= 1;
    message.kind = CM_MESSAGE_REP; /* to the passive side */
    inject(world, 0, &message);
    assert_int_equal(device->refused, 7);
    expect_trace(world, "");

    message.kind = CM_MESSAGE_DREQ;
    message.local_qpn.value = 200;
    inject(world, 0, &message); /* and this one is */
    expect_trace(world, "1004ms B>A DREP\n"
                        "1004ms B event disconnected\n");
    world_end(world, a, b);
}

static void what_is_no_message(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    struct device *device = &world->hosts[1].device;
    struct management_handler *handler = device->handler;
    struct arrival arrival = {.path = {.local = world_gid(1), .remote = world_gid(0)}};
    uint8_t mad[MAD_LENGTH + 1] = {0};
    handler->receive(handler, world_now(world), &arrival, QPN_MANAGEMENT, mad, MAD_LENGTH);
    handler->receive(handler, world_now(world), &arrival, QPN_MANAGEMENT, mad, 0);
    struct cm_message request = {.kind = CM_MESSAGE_REQ,
                                 .local_id = 77,
                                 .service_id = SERVICE,
                                 .local_qpn = {100},
                                 .path_mtu = 3,
                                 .path = {.local = world_gid(0), .remote = world_gid(1)}};
    cm_message_build(&request, mad);
    handler->receive(handler, world_now(world), &arrival, QPN_MANAGEMENT, mad, MAD_LENGTH + 1);
    handler->receive(handler, world_now(world), &arrival, (struct qpn){2}, mad, MAD_LENGTH);
    request.path.local = world_gid(2); /* it says that it comes from elsewhere */
    inject(world, 0, &request);
    request.path.local = world_gid(0);
    request.local_id = 0;
    inject(world, 0, &request);
    assert_int_equal(device->refused, 6);
    expect_trace(world, "");

    request.local_id = 77;
    request.path_mtu = 6;
    inject(world, 0, &request);
    request.path_mtu = 3;
    request.transport_service = 2;
    inject(world, 0, &request);
    expect_trace(world, "1000ms B>A REJ reason=26 about=0\n"
                        "1000ms B>A REJ reason=9 about=0\n");
    world_end(world, NULL, NULL);
}

static void strangers_are_answered_without_state(void **state)
{
    struct world *world = world_create(1, 8);
    uint32_t ours = 5u << 20 | 1234;
    struct cm_message message = {.kind = CM_MESSAGE_DREQ, .local_id = 77, .remote_id = ours};
    inject(world, 0, &message);
    message.kind = CM_MESSAGE_REP;
    inject(world, 0, &message);
    expect_trace(world, "1000ms B>A DREP\n"
                        "1000ms B>A REJ reason=6 about=1\n");
    /* An id of another process of this host: that one will answer. */
    message.remote_id = 6u << 20 | 1234;
    inject(world, 0, &message);
    message.kind = CM_MESSAGE_DREQ;
    inject(world, 0, &message);
    expect_trace(world, "");
    assert_int_equal(world->hosts[1].device.refused, 2);
    world_end(world, NULL, NULL);
}

static void the_dead_are_answered_for(void **state)
{
    struct world *world = world_create(1, 8);
    world->dead_prefix = 6;
    struct cm_message message = {
        .kind = CM_MESSAGE_DREQ, .local_id = 77, .remote_id = 6u << 20 | 1234};
    inject(world, 0, &message);
    message.kind = CM_MESSAGE_REP;
    inject(world, 0, &message);
    expect_trace(world, "1000ms B>A DREP\n"
                        "1000ms B>A REJ reason=6 about=1\n");
    message.remote_id = 7u << 20 | 1234; /* somebody who lives */
    inject(world, 0, &message);
    expect_trace(world, "");
    assert_int_equal(world->hosts[1].device.refused, 1);
    world_end(world, NULL, NULL);
}

/* A's process dies, with what it knew, and comes back. */
static void begin_anew(struct world *world)
{
    cm_destroy(world->hosts[0].cm);
    free(world->hosts[0].wills);
    world_create_cm(world, 0, 5, 99);
}

static void a_peer_that_began_anew(void **state)
{
    struct cm_connection *a, *b;
    struct world *world = connected(&a, &b);
    begin_anew(world);
    /* The same queue pair number: B asks A whether it knows the old connection. It does not. */
    struct cm_message request = request_of(99, 100);
    inject(world, 0, &request);
    expect_trace(world, "1004ms B>A REJ reason=10 about=0\n"
                        "1004ms B>A DREQ\n");
    world_run(world, 1100);
    expect_trace(world, "1005ms A>B DREP\n"
                        "1006ms B event disconnected\n");
    inject(world, 0, &request); /* in time-wait it is in nobody's way any more */
    expect_trace(world, "1100ms B event request\n"
                        "1100ms B>A REP\n");
    cm_release(world->hosts[1].connection, world_now(world));
    world_end(world, NULL, b);

    /* The same id with another queue pair is no repetition either. */
    world = connected(&a, &b);
    begin_anew(world);
    request = request_of(seen_id[0], 555);
    inject(world, 0, &request);
    expect_trace(world, "1004ms B>A REJ reason=10 about=0\n"
                        "1004ms B>A DREQ\n");
    world_end(world, NULL, b);

    /* Before the RTU, which will not come. */
    world = world_create(1, 8);
    world_listen(world, 0);
    world->rules[0] = (struct rule){"A>B RTU", .lose = 99};
    world_connect(world, 100);
    world_run(world, 1004);
    begin_anew(world);
    request = request_of(99, 100);
    inject(world, 0, &request);
    forget_trace(world);
    world_run(world, 1007);
    expect_trace(world, "1005ms A>B DREP\n"
                        "1006ms B event rejected reason=10\n");
    world_end(world, NULL, world->hosts[1].connection);
}

/* Ids are drawn at random: one may come again while B remembers a connection that had it. */
static void the_id_of_an_ended_connection_is_free_again(void **state)
{
    struct cm_connection *a, *b;
    struct world *world = connected(&a, &b);
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK);
    world_run(world, 1008);
    assert_int_equal(b->state, CM_TIME_WAIT);
    forget_trace(world);
    struct cm_message request = request_of(seen_id[0], 555);
    inject(world, 0, &request);
    inject(world, 0, &request);
    expect_trace(world, "1008ms B event request\n"
                        "1008ms B>A REP\n"
                        "1008ms B>A REP\n");
    cm_release(a, world_now(world));
    world_end(world, world->hosts[1].connection, b);
}

/* B asked that time, and took back the connection that A had agreed to. */
static void the_id_of_a_rejected_reply_is_free_again(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener;
    assert_int_equal(cm_listen(world->hosts[0].cm, SERVICE, NULL, 0, NULL, &listener), STATUS_OK);
    world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    struct cm_connect_request asked = world_request(100);
    asked.path = (struct path){.local = world_gid(1), .remote = world_gid(0)};
    struct cm_connection *b;
    assert_int_equal(cm_connect(world->hosts[1].cm, world_now(world), &asked, &b), STATUS_OK);
    world_run(world, 1003);
    struct cm_message request = request_of(world->hosts[0].connection->local_id, 555);
    cm_release(b, world_now(world));
    assert_int_equal(b->state, CM_REJ_SENT);
    forget_trace(world);
    inject(world, 0, &request);
    expect_trace(world, "1003ms B event request\n");
    world_end(world, world->hosts[0].connection, world->hosts[1].connection);
}

/* Requests from the peer's address that name its queue pair, and are not the peer's. */
static void a_forged_request_ends_nothing(void **state)
{
    struct cm_connection *a, *b;
    struct world *world = connected(&a, &b);
    for (uint32_t i = 0; i < 20; i++) {
        struct cm_message request = request_of(1000 + i, 100);
        inject(world, 0, &request);
    }
    /* A REJ goes to whoever asked, and one question to the peer, which ignores it. */
    unsigned rejects = 0, questions = 0;
    for (const char *at = world->trace; (at = strstr(at, "B>A ")) != NULL; at++) {
        rejects += strncmp(at, "B>A REJ reason=10", 17) == 0;
        questions += strncmp(at, "B>A DREQ", 8) == 0;
    }
    assert_int_equal(rejects, 20);
    assert_int_equal(questions, 1);
    forget_trace(world);
    unsigned refused = world->hosts[0].device.refused;
    world_run(world, 3000);
    expect_trace(world, "");
    assert_true(world->hosts[0].device.refused > refused);
    struct cm_message request = request_of(2000, 100); /* a second later, another */
    inject(world, 0, &request);
    expect_trace(world, "3000ms B>A REJ reason=10 about=0\n"
                        "3000ms B>A DREQ\n");
    world_run(world, 4000);
    expect_trace(world, "");
    /* An answer that belongs to no question. */
    struct cm_message reply = {
        .kind = CM_MESSAGE_DREP, .transaction = 1, .local_id = seen_id[0], .remote_id = seen_id[1]};
    inject(world, 0, &reply);
    expect_trace(world, "");
    assert_int_equal(cm_disconnect(a, world_now(world)), STATUS_OK); /* it lives */
    world_run(world, 4100);
    expect_trace(world, "4000ms A>B DREQ\n"
                        "4001ms B>A DREP\n"
                        "4001ms B event disconnected\n"
                        "4002ms A event disconnected\n");
    world_end(world, a, b);
}

/* Until the REP, one id is all that a message must name; so it must know the transaction too. */
static void a_guessed_id_ends_no_attempt(void **state)
{
    struct world *world = world_create(1, 8);
    world->rules[0] = (struct rule){"A>B REQ", .lose = 1};
    world_listen(world, 0);
    struct cm_connection *a = world_connect(world, 100);
    struct management_handler *handler = world->hosts[0].device.handler;
    struct arrival arrival = {.path = {.local = world_gid(0), .remote = world_gid(1)}};
    const enum cm_message_kind kinds[] = {CM_MESSAGE_REJ, CM_MESSAGE_REP, CM_MESSAGE_MRA};
    for (unsigned i = 0; i < 3; i++) {
        uint8_t mad[MAD_LENGTH];
        struct cm_message message = {.kind = kinds[i],
                                     .transaction = 12345,
                                     .local_id = 7,
                                     .remote_id = a->local_id,
                                     .local_qpn = {66},
                                     .service_timeout = 31};
        cm_message_build(&message, mad);
        handler->receive(handler, world_now(world), &arrival, QPN_MANAGEMENT, mad, MAD_LENGTH);
        assert_int_equal(world->hosts[0].device.refused, i + 1);
    }
    forget_trace(world);
    world_run(world, 4000);
    expect_trace(world, "3147ms A>B REQ\n"
                        "3148ms B event request\n"
                        "3148ms B>A REP\n"
                        "3149ms A event reply\n"
                        "3149ms A>B RTU\n"
                        "3150ms B event established\n");
    world_end(world, a, world->hosts[1].connection);
}

static void a_late_ready_learns_of_the_end(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->rules[0] = (struct rule){"A>B RTU", .lose = 99};
    world->rules[1] = (struct rule){"B>A REJ", .lose = 1};
    struct cm_connection *a = world_connect(world, 100);
    spy(world);
    world_run(world, 1001);
    spy(world);
    world_run(world, 9600); /* B has given up, A does not know */
    forget_trace(world);
    struct cm_message ready = {
        .kind = CM_MESSAGE_RTU, .local_id = seen_id[0], .remote_id = seen_id[1]};
    inject(world, 0, &ready);
    world_run(world, 9700);
    expect_trace(world, "9600ms B>A REJ reason=4 about=1\n"
                        "9601ms A event disconnected\n");
    world_end(world, a, world->hosts[1].connection);
}

static void a_full_device_is_tried_again(void **state)
{
    struct world *world = world_create(1, 8);
    world_listen(world, 0);
    world->hosts[0].device.full = true;
    struct cm_connection *a = world_connect(world, 100);
    world_run(world, 1010);
    expect_trace(world, "");
    world->hosts[0].device.full = false;
    world_run(world, 1100);
    struct cm_connection *b = world->hosts[1].connection;
    expect_trace(world, "1011ms A>B REQ\n"
                        "1012ms B event request\n"
                        "1012ms B>A REP\n"
                        "1013ms A event reply\n"
                        "1013ms A>B RTU\n"
                        "1014ms B event established\n");
    world_end(world, a, b);
    /* A released connection stays until its last message is out. */
    world = world_create(1, 8);
    a = world_connect(world, 100);
    world->hosts[0].device.full = true;
    cm_release(a, world_now(world));
    assert_int_equal(cm_connection_count(world->hosts[0].cm), 1);
    world->hosts[0].device.full = false;
    world_end(world, NULL, NULL);
}

static void listeners_are_found_by_service_and_address(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm *cm = world->hosts[1].cm;
    struct gid one = world_gid(1);
    struct gid two = world_gid(2);
    struct cm_listener *any, *first, *second;
    assert_int_equal(cm_listen(cm, 1, NULL, 0, NULL, &any), STATUS_OK);
    assert_int_equal(cm_listen(cm, 1, NULL, 0, NULL, &second), STATUS_IN_USE);
    assert_int_equal(cm_listen(cm, 1, &one, 0, NULL, &second), STATUS_IN_USE);
    assert_int_equal(cm_listen(cm, 2, &one, 0, NULL, &first), STATUS_OK);
    assert_int_equal(cm_listen(cm, 2, &two, 0, NULL, &second), STATUS_OK);
    assert_non_null(cm_listener_find(cm, 1, &two));
    assert_non_null(cm_listener_find(cm, 2, &two));
    assert_null(cm_listener_find(cm, 3, &two));
    assert_int_equal(cm_listener_count(cm), 3);
    cm_unlisten(second);
    assert_null(cm_listener_find(cm, 2, &two));
    assert_non_null(cm_listener_find(cm, 2, &one));
    cm_unlisten(any);
    cm_unlisten(first);
    world_end(world, NULL, NULL);
}

static void arguments_are_checked(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm *cm = world->hosts[0].cm;
    struct cm_connection *a = NULL;
    struct cm_connect_request request = world_request(1);
    request.parameters.private_length = CM_REQ_PRIVATE_MAX + 1;
    assert_int_equal(cm_connect(cm, world_now(world), &request, &a), STATUS_INVALID);
    request = world_request(1);
    request.response_timeout = 32;
    assert_int_equal(cm_connect(cm, world_now(world), &request, &a), STATUS_INVALID);
    request = world_request(1);
    request.max_retries = 16;
    assert_int_equal(cm_connect(cm, world_now(world), &request, &a), STATUS_INVALID);
    assert_null(a);
    assert_int_equal(cm_connection_count(cm), 0);
    assert_true(instant_is_never(cm_next_deadline(cm)));

    struct cm_config config = {.allocator = &world->allocator,
                               .device = &world->hosts[0].device,
                               .id_prefix = 8,
                               .id_prefix_bits = 3,
                               .max_connections = 4};
    struct cm *other = NULL;
    assert_int_equal(cm_create(&config, &other), STATUS_INVALID);
    config.id_prefix = 7;
    config.max_connections = 0;
    assert_int_equal(cm_create(&config, &other), STATUS_INVALID);
    config.id_prefix_bits = 24;
    config.max_connections = 129; /* half of 256 are 128 */
    assert_int_equal(cm_create(&config, &other), STATUS_INVALID);
    assert_null(other);
    world_end(world, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_peer_is_believed),
        cmocka_unit_test(what_is_no_message),
        cmocka_unit_test(strangers_are_answered_without_state),
        cmocka_unit_test(the_dead_are_answered_for),
        cmocka_unit_test(a_peer_that_began_anew),
        cmocka_unit_test(the_id_of_an_ended_connection_is_free_again),
        cmocka_unit_test(the_id_of_a_rejected_reply_is_free_again),
        cmocka_unit_test(a_forged_request_ends_nothing),
        cmocka_unit_test(a_guessed_id_ends_no_attempt),
        cmocka_unit_test(a_late_ready_learns_of_the_end),
        cmocka_unit_test(a_full_device_is_tried_again),
        cmocka_unit_test(listeners_are_found_by_service_and_address),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
