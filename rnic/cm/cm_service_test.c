/* Service id resolution: what strangers may and may not do, and its bounds. How it goes between
 * friends is in sim/scenarios/service_test.c. */
#include "rnic/cm/cm_world_test.h"

static void deliver(struct world *world, int to, int from, const struct cm_message *message)
{
    uint8_t mad[MAD_LENGTH];
    cm_message_build(message, mad);
    struct arrival arrival = {.path = {.local = world_gid(to), .remote = world_gid(from)}};
    struct management_handler *handler = world->hosts[to].device.handler;
    handler->receive(handler, world_now(world), &arrival, QPN_MANAGEMENT, mad, MAD_LENGTH);
    world_take_events(world);
}

static struct cm_connection *ask(struct world *world)
{
    struct cm_connect_request request = world_request(0);
    struct host *a = &world->hosts[0];
    assert_int_equal(cm_resolve(a->cm, world_now(world), &request, &a->connection), STATUS_OK);
    return a->connection;
}

static struct cm_message question(uint32_t id)
{
    return (struct cm_message){
        .kind = CM_MESSAGE_SIDR_REQ, .transaction = 77 + id, .local_id = id, .service_id = SERVICE};
}

/* Only the peer's GID, the request's id and its transaction together make an answer. */
static void forged_answers(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_connection *a = ask(world);
    struct cm_message request;
    assert_int_equal(cm_message_parse(world->flights[0].mad, MAD_LENGTH, &request), STATUS_OK);
    world->flight_count = 0; /* B never hears of it */
    struct cm_message reply = {.kind = CM_MESSAGE_SIDR_REP,
                               .transaction = request.transaction,
                               .remote_id = request.local_id};
    deliver(world, 0, 2, &reply);
    reply.transaction++;
    deliver(world, 0, 1, &reply);
    reply.transaction--;
    reply.remote_id++;
    deliver(world, 0, 1, &reply);
    struct cm_message other = {
        .kind = CM_MESSAGE_REP, .local_id = 9, .remote_id = request.local_id};
    deliver(world, 0, 1, &other);
    assert_int_equal(world->hosts[0].device.refused, 4);
    assert_null(strstr(world->trace, "event"));
    reply.remote_id--;
    deliver(world, 0, 1, &reply);
    assert_non_null(strstr(world->trace, "A event service reply status=0"));
    deliver(world, 0, 1, &reply);
    assert_int_equal(world->hosts[0].device.refused, 4); /* it came twice, that is all */
    world_end(world, a, NULL);
}

/* Strangers fill the backlog and not more; who was answered makes room. */
static void backlog_is_a_bound(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 2);
    world->hosts[1].keep_quiet = true;
    struct cm_connection *held[3];
    for (uint32_t i = 0; i < 3; i++) {
        struct cm_message message = question(i + 1);
        deliver(world, 1, 0, &message);
        held[i] = world->hosts[1].connection;
    }
    assert_ptr_equal(held[1], held[2]);
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 2);
    assert_int_equal(cm_service_reject(held[0], world_now(world), CM_SIDR_REJECTED, NULL, 0),
                     STATUS_OK);
    struct cm_message message = question(3);
    deliver(world, 1, 0, &message);
    held[2] = world->hosts[1].connection;
    assert_ptr_not_equal(held[1], held[2]);
    for (uint32_t i = 0; i < 3; i++) {
        cm_release(held[i], world_now(world));
    }
    cm_unlisten(listener);
    world->flight_count = 0;
    world_end(world, NULL, NULL);
}

/* What was answered is remembered only as long as nobody needs its room. */
static void answered_ones_give_room(void **state)
{
    struct world *world = world_create(1, 4);
    struct cm_listener *listener = world_listen(world, 0);
    for (uint32_t i = 0; i < 20; i++) {
        struct cm_message message = question(i + 1);
        deliver(world, 1, 0, &message);
        cm_release(world->hosts[1].connection, world_now(world));
        world->flight_count = 0;
    }
    assert_null(strstr(world->trace, "status=2"));
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 4);
    cm_unlisten(listener);
    world_end(world, NULL, NULL);
}

/* A request id means nothing among communication ids, and the reverse. */
static void ids_of_two_worlds(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    struct cm_message message = question(5);
    deliver(world, 1, 0, &message);
    struct cm_connection *resolution = world->hosts[1].connection;
    assert_false(cm_knows_peer(world->hosts[1].cm, &message.path.local, 5));
    struct cm_message reject = {.kind = CM_MESSAGE_REJ, .local_id = 5};
    deliver(world, 1, 0, &reject);
    struct gid a = world_gid(0);
    struct cm_message connect = {.kind = CM_MESSAGE_REQ,
                                 .local_id = 5,
                                 .service_id = SERVICE,
                                 .local_qpn = {44},
                                 .path_mtu = PATH_MTU_1024,
                                 .path = {.local = a, .remote = world_gid(1)}};
    deliver(world, 1, 0, &connect);
    struct cm_connection *connection = world->hosts[1].connection;
    assert_ptr_not_equal(connection, resolution);
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 2);
    struct cm_parameters parameters = {.qpn = {1}};
    assert_int_equal(cm_service_accept(connection, world_now(world), &parameters), STATUS_STATE);
    assert_int_equal(cm_accept(resolution, world_now(world), &parameters), STATUS_STATE);
    cm_release(resolution, world_now(world));
    cm_release(connection, world_now(world));
    cm_unlisten(listener);
    world->flight_count = 0;
    world_end(world, NULL, NULL);
}

/* A peer uses a request id again while its first question is still in somebody's hands: what it
 * then repeats is the second, however many come in between. */
static void an_id_asks_again(void **state)
{
    struct world *world = world_create(1, 64);
    struct cm_listener *listener = world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    struct cm_connection *held[64];
    uint32_t count = 0;
    struct cm_message again = question(1);
    deliver(world, 1, 0, &again);
    held[count++] = world->hosts[1].connection;
    again.transaction++;
    deliver(world, 1, 0, &again);
    held[count++] = world->hosts[1].connection;
    for (uint32_t id = 2; id < 40; id++) {
        struct cm_message message = question(id);
        deliver(world, 1, 0, &message);
        held[count++] = world->hosts[1].connection;
        deliver(world, 1, 0, &again);
        assert_int_equal(cm_connection_count(world->hosts[1].cm), count);
    }
    while (count > 0) {
        cm_release(held[--count], world_now(world));
    }
    cm_unlisten(listener);
    world->flight_count = 0;
    world_end(world, NULL, NULL);
}

static void listener_goes(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm_listener *listener = world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    struct cm_connection *a = ask(world);
    world_run(world, 1002);
    cm_unlisten(listener);
    world_run(world, 1010);
    assert_non_null(strstr(world->trace, "A event service reply status=1"));
    world_end(world, a, world->hosts[1].connection);
}

static void arguments_are_checked(void **state)
{
    struct world *world = world_create(1, 8);
    struct cm *cm = world->hosts[0].cm;
    struct cm_connection *connection;
    struct cm_connect_request request = world_request(0);
    request.parameters.private_length = CM_SIDR_REQ_PRIVATE_MAX + 1;
    assert_int_equal(cm_resolve(cm, world_now(world), &request, &connection), STATUS_INVALID);
    request.parameters.private_length = 0;
    request.response_timeout = 32;
    assert_int_equal(cm_resolve(cm, world_now(world), &request, &connection), STATUS_INVALID);
    request.response_timeout = 0;
    request.max_retries = 16;
    assert_int_equal(cm_resolve(cm, world_now(world), &request, &connection), STATUS_INVALID);

    struct cm_listener *listener = world_listen(world, 0);
    world->hosts[1].keep_quiet = true;
    struct cm_message message = question(1);
    deliver(world, 1, 0, &message);
    struct cm_connection *asked = world->hosts[1].connection;
    struct cm_parameters parameters = {.private_length = CM_SIDR_REP_PRIVATE_MAX + 1};
    assert_int_equal(cm_service_accept(asked, world_now(world), &parameters), STATUS_INVALID);
    parameters.private_length = CM_SIDR_REP_PRIVATE_MAX;
    assert_int_equal(cm_service_accept(asked, world_now(world), &parameters), STATUS_OK);
    assert_int_equal(cm_disconnect(asked, world_now(world)), STATUS_STATE);
    assert_int_equal(cm_confirm(asked, world_now(world)), STATUS_STATE);
    world->flight_count = 0;
    cm_release(asked, world_now(world));
    cm_unlisten(listener);
    world_end(world, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forged_answers),          cmocka_unit_test(backlog_is_a_bound),
        cmocka_unit_test(answered_ones_give_room), cmocka_unit_test(ids_of_two_worlds),
        cmocka_unit_test(an_id_asks_again),        cmocka_unit_test(listener_goes),
        cmocka_unit_test(arguments_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
