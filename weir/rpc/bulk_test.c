/* Memory of the caller's: pulled from, pushed into, and taken back, however the call ends. */
#include "weir/rpc/rpc_world_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH      ((size_t)3 << 20)
#define NEVER_MS    600000
#define BOTH_RIGHTS (WEIR_REMOTE_READ | WEIR_REMOTE_WRITE)

/* A service with memory of its own. What a request of "keep" is for the test does with it. */
struct service {
    struct weir_memory *memory;
    unsigned wanted;              /* the attempt whose request is kept */
    struct weir_request *request; /* kept */
    bool has_request;
    bool has_moved;
    enum weir_status moved_status;
    bool is_gone;
    enum weir_status gone_why;
};

static void service_open(struct service *service, size_t length)
{
    struct weir_error error;
    *service = (struct service){0};
    assert_int_equal(
        weir_memory_allocate(world_fabric(), length, WEIR_LOCAL, &service->memory, &error),
        WEIR_OK);
}

static void fill(uint8_t *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(i * 13 + (i >> 9) + seed);
    }
}

static void check_filled(const uint8_t *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != (uint8_t)(i * 13 + (i >> 9) + seed)) {
            fail_msg("byte %zu of %zu is 0x%02x", i, length, bytes[i]);
        }
    }
}

/* --- as it should be --- */

static void pushed(struct weir_request *request, enum weir_status status, void *argument)
{
    assert_int_equal(status, WEIR_OK);
    rpc_reply(request, "done", 4);
}

static void pulled(struct weir_request *request, enum weir_status status, void *argument)
{
    struct service *service = argument;
    struct weir_bulk_part part = {.index = 1, .memory = service->memory};
    assert_int_equal(status, WEIR_OK);
    assert_true(weir_request_bulk(request, 1, &part.length, NULL));
    uint8_t *bytes = weir_memory_bytes(service->memory);
    for (size_t i = 0; i < part.length; i++) {
        bytes[i] ^= 0xff;
    }
    assert_int_equal(weir_request_push(request, &part, pushed, service), WEIR_OK);
}

static void handle_invert(struct weir_request *request, const void *bytes, size_t length,
                          void *user)
{
    struct service *service = user;
    struct weir_bulk_part part = {.index = 0, .memory = service->memory};
    unsigned rights;
    assert_true(weir_request_bulk(request, 0, &part.length, &rights));
    assert_int_equal(rights, WEIR_REMOTE_READ);
    assert_false(weir_request_bulk(request, 2, NULL, NULL));
    assert_int_equal(weir_request_pull(request, &part, pulled, service), WEIR_OK);
}

static void test_pull_and_push(void **state)
{
    static const size_t lengths[] = {1, 4096, 100001, LENGTH};
    struct rpc_world world;
    struct service service;
    struct outcome outcome;
    uint8_t *from = malloc(LENGTH), *to = malloc(LENGTH + 1);
    service_open(&service, LENGTH);
    rpc_world_open(&world, NULL, NULL);
    struct weir_procedure *procedure = rpc_register(world.client, "invert", NULL, NULL);
    rpc_register(world.server, "invert", handle_invert, &service);
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        fill(from, lengths[i], i);
        memset(to, 0xee, LENGTH + 1);
        struct weir_bulk bulk[] = {{from, lengths[i], WEIR_REMOTE_READ},
                                   {to, lengths[i], WEIR_REMOTE_WRITE}};
        struct weir_call_options options = {.bulk = bulk, .bulk_count = 2};
        rpc_call(world.target, procedure, NULL, 0, &options, &outcome);
        rpc_world_run_until(&world, &outcome.is_told);
        rpc_expect(&outcome, WEIR_OK, "");
        check_filled(from, lengths[i], i);
        for (size_t at = 0; at < lengths[i]; at++) {
            to[at] ^= 0xff;
        }
        check_filled(to, lengths[i], i);
        assert_int_equal(to[lengths[i]], 0xee);
    }
    struct weir_procedure_statistics statistics;
    weir_procedure_statistics(rpc_register(world.server, "invert", NULL, NULL), &statistics);
    assert_int_equal(statistics.bytes_pulled, 1 + 4096 + 100001 + LENGTH);
    assert_int_equal(statistics.bytes_pushed, 1 + 4096 + 100001 + LENGTH);
    rpc_world_close(&world);
    weir_memory_deregister(service.memory);
    free(from);
    free(to);
}

/* Parts: each eighth goes where another was. */
static void handle_parts(struct weir_request *request, const void *bytes, size_t length,
                         void *user);

struct parts {
    struct service service;
    unsigned moved;
};

static void part_moved(struct weir_request *request, enum weir_status status, void *argument)
{
    struct parts *parts = argument;
    assert_int_equal(status, WEIR_OK);
    parts->moved++;
    if (parts->moved % 8 != 0) {
        struct weir_piece none = {NULL, 0};
        assert_int_equal(weir_request_reply(request, &none, 1), WEIR_STATE);
    } else if (parts->moved == 8) {
        for (size_t i = 0; i < 8; i++) {
            struct weir_bulk_part part = {0, (7 - i) * 1000, parts->service.memory, i * 1000, 1000};
            assert_int_equal(weir_request_push(request, &part, part_moved, parts), WEIR_OK);
        }
    } else {
        rpc_reply(request, NULL, 0);
    }
}

static void handle_parts(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct parts *parts = user;
    for (size_t i = 0; i < 8; i++) {
        struct weir_bulk_part part = {0, i * 1000, parts->service.memory, i * 1000, 1000};
        assert_int_equal(weir_request_pull(request, &part, part_moved, parts), WEIR_OK);
    }
}

static void test_parts(void **state)
{
    struct rpc_world world;
    struct parts parts = {0};
    struct outcome outcome;
    uint8_t bytes[8000], before[8000];
    service_open(&parts.service, sizeof(bytes));
    rpc_world_open(&world, NULL, NULL);
    struct weir_procedure *procedure = rpc_register(world.client, "parts", NULL, NULL);
    rpc_register(world.server, "parts", handle_parts, &parts);
    fill(bytes, sizeof(bytes), 5);
    memcpy(before, bytes, sizeof(bytes));
    struct weir_bulk bulk = {bytes, sizeof(bytes), BOTH_RIGHTS};
    struct weir_call_options options = {.bulk = &bulk, .bulk_count = 1};
    rpc_call(world.target, procedure, NULL, 0, &options, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    for (size_t i = 0; i < 8; i++) {
        assert_memory_equal(bytes + (7 - i) * 1000, before + i * 1000, 1000);
    }
    rpc_world_close(&world);
    weir_memory_deregister(parts.service.memory);
}

/* --- what is not shown --- */

static void handle_beyond(struct weir_request *request, const void *bytes, size_t length,
                          void *user)
{
    struct weir_memory *memory = ((struct service *)user)->memory;
    const struct weir_bulk_part beyond[] = {
        {0, 0, memory, 0, 101}, {0, 101, memory, 0, 0},          {0, 100, memory, 0, 1},
        {2, 0, memory, 0, 1},   {0, SIZE_MAX, memory, 0, 2},     {0, 1, memory, 0, SIZE_MAX},
        {1, 0, memory, 0, 1},   {WEIR_BULK_MAX, 0, memory, 0, 1}};
    for (unsigned i = 0; i < sizeof(beyond) / sizeof(*beyond); i++) {
        assert_int_equal(weir_request_pull(request, &beyond[i], pushed, NULL), WEIR_ACCESS);
    }
    struct weir_bulk_part read_only = {0, 0, memory, 0, 1};
    assert_int_equal(weir_request_push(request, &read_only, pushed, NULL), WEIR_ACCESS);
    assert_int_equal(weir_request_pull(request, &read_only, NULL, NULL), WEIR_INVALID);
    rpc_reply(request, NULL, 0);
}

static void test_bounds(void **state)
{
    struct rpc_world world;
    struct service service;
    struct outcome outcome;
    uint8_t bytes[100] = {0};
    service_open(&service, 4096);
    rpc_world_open(&world, NULL, NULL);
    struct weir_procedure *procedure = rpc_register(world.client, "beyond", NULL, NULL);
    rpc_register(world.server, "beyond", handle_beyond, &service);
    struct weir_bulk bulk[] = {{bytes, 100, WEIR_REMOTE_READ}, {bytes, 100, WEIR_REMOTE_WRITE}};
    struct weir_call_options options = {.bulk = bulk, .bulk_count = 2};
    rpc_call(world.target, procedure, NULL, 0, &options, &outcome);
    rpc_world_run_until(&world, &outcome.is_told);
    rpc_expect(&outcome, WEIR_OK, "");
    rpc_world_close(&world);
    weir_memory_deregister(service.memory);
}

static void test_what_cannot_be_shown(void **state)
{
    struct rpc_world world;
    uint8_t bytes[8];
    const struct weir_bulk wrong[] = {{bytes, 8, 0}, {bytes, 8, 4}, {bytes, 0, 1}, {NULL, 8, 1}};
    rpc_world_open(&world, NULL, NULL);
    struct weir_procedure *procedure = rpc_register(world.client, "any", NULL, NULL);
    for (unsigned i = 0; i < 5; i++) {
        struct weir_call_options options = {.bulk = &wrong[i % 4],
                                            .bulk_count = i < 4 ? 1 : WEIR_BULK_MAX + 1};
        assert_int_equal(
            weir_rpc_call(world.target, procedure, NULL, 0, &options, outcome_replied, NULL, NULL),
            WEIR_INVALID);
    }
    rpc_world_close(&world);
}

/* --- ends before the answer --- */

static void gone(struct weir_request *request, enum weir_status why, void *argument)
{
    struct service *service = argument;
    assert_false(service->is_gone);
    service->is_gone = true;
    service->gone_why = why;
}

static void handle_keep(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct service *service = user;
    if (memcmp(bytes, &service->wanted, length) != 0) {
        weir_request_refuse(request, 0, "of an earlier attempt");
        return;
    }
    service->request = request;
    service->has_request = true;
    weir_request_on_gone(request, gone, service);
}

static void moved(struct weir_request *request, enum weir_status status, void *argument)
{
    struct service *service = argument;
    service->has_moved = true;
    service->moved_status = status;
}

/* The world of a call with bulk that ends early. */
struct early {
    struct rpc_world world;
    struct service service;
    struct outcome outcome;
    uint8_t *bytes; /* LENGTH of them, filled with seed 9 */
};

/* Until the server has the request, and the caller is not told yet: over a bad wire one may come
 * after the other. */
static void early_call(struct early *early, struct weir_procedure *keep, unsigned timeout_ms)
{
    struct weir_bulk bulk = {early->bytes, LENGTH, BOTH_RIGHTS};
    struct weir_call_options options = {.timeout_ms = timeout_ms, .bulk = &bulk, .bulk_count = 1};
    struct service *service = &early->service;
    service->wanted++;
    rpc_call(early->world.target, keep, &service->wanted, sizeof(service->wanted), &options,
             &early->outcome);
    while (!service->has_request && !early->outcome.is_told) {
        rpc_world_poll(&early->world);
    }
    if (early->outcome.is_told) {
        if (service->has_request) {
            weir_request_refuse(service->request, 0, NULL);
        }
        service->has_request = service->is_gone = false;
        early_call(early, keep, 2 * timeout_ms);
    }
}

static void early_open(struct early *early, unsigned timeout_ms, unsigned release_ms)
{
    struct weir_rpc_options client = {.release_ms = release_ms};
    memset(early, 0, sizeof(*early));
    early->bytes = malloc(LENGTH);
    fill(early->bytes, LENGTH, 9);
    service_open(&early->service, LENGTH);
    memset(weir_memory_bytes(early->service.memory), 0xaa, LENGTH);
    rpc_world_open(&early->world, NULL, &client);
    rpc_register(early->world.server, "keep", handle_keep, &early->service);
    early_call(early, rpc_register(early->world.client, "keep", NULL, NULL), timeout_ms);
}

static void early_close(struct early *early)
{
    rpc_world_close(&early->world);
    weir_memory_deregister(early->service.memory);
    free(early->bytes);
}

static enum weir_status push_all(struct early *early)
{
    struct weir_bulk_part part = {.memory = early->service.memory, .length = LENGTH};
    return weir_request_push(early->service.request, &part, moved, &early->service);
}

static unsigned connections(const struct early *early)
{
    struct weir_target_statistics statistics;
    weir_target_statistics(early->world.target, &statistics);
    return (unsigned)statistics.connections;
}

/* A server that is there says at once that it touches no more, and the connection lives on. */
static void test_timeout_of_a_live_server(void **state)
{
    struct early early;
    struct outcome again;
    early_open(&early, 50, NEVER_MS);
    rpc_world_run_until(&early.world, &early.outcome.is_told);
    rpc_expect(&early.outcome, WEIR_TIMED_OUT, ": keep: no answer for 0.");
    assert_true(early.service.is_gone);
    assert_int_equal(early.service.gone_why, WEIR_CANCELED);
    assert_int_equal(weir_request_state(early.service.request), WEIR_CANCELED);
    assert_int_equal(push_all(&early), WEIR_CANCELED);
    struct weir_piece none = {NULL, 0};
    assert_int_equal(weir_request_reply(early.service.request, &none, 1), WEIR_CANCELED);
    check_filled(early.bytes, LENGTH, 9);
    rpc_register(early.world.server, "echo", handle_echo, NULL);
    rpc_call(early.world.target, rpc_register(early.world.client, "echo", NULL, NULL), "1", 1, NULL,
             &again);
    rpc_world_run_until(&early.world, &again.is_told);
    rpc_expect(&again, WEIR_OK, "");
    assert_int_equal(connections(&early), 1);
    early_close(&early);
}

/* What it has begun it ends first, and the caller hears when it has. */
static void test_cancel_waits_for_a_push(void **state)
{
    struct early early;
    early_open(&early, 0, NEVER_MS);
    assert_int_equal(push_all(&early), WEIR_OK);
    weir_call_cancel(early.outcome.call);
    weir_call_cancel(early.outcome.call);
    rpc_world_run_until(&early.world, &early.outcome.is_told);
    rpc_expect(&early.outcome, WEIR_CANCELED, ": keep: canceled");
    assert_true(early.service.has_moved);
    assert_int_equal(early.service.moved_status, WEIR_OK);
    assert_true(early.service.is_gone);
    weir_request_refuse(early.service.request, 1, "too late");
    assert_int_equal(connections(&early), 1);
    early_close(&early);
}

/* A server that does not listen loses access all the same; what it tries then ends the connection,
 * and no byte is changed. */
static void test_late_push_touches_nothing(void **state)
{
    struct early early;
    struct outcome again;
    early_open(&early, 50, 50);
    uint64_t patience = 0;
    while (!early.outcome.is_told && patience++ < 10000) {
        assert_true(weir_poll(early.world.client_poller, 10) >= 0);
    }
    rpc_expect(&early.outcome, WEIR_TIMED_OUT, "no answer");
    assert_int_equal(weir_request_state(early.service.request), WEIR_OK); /* so it believes */
    assert_int_equal(push_all(&early), WEIR_OK);
    rpc_world_run_until(&early.world, &early.service.has_moved);
    assert_int_not_equal(early.service.moved_status, WEIR_OK);
    check_filled(early.bytes, LENGTH, 9);
    weir_request_refuse(early.service.request, 0, NULL);
    rpc_register(early.world.server, "echo", handle_echo, NULL);
    struct weir_call_options options = {.is_idempotent = true};
    rpc_call(early.world.target, rpc_register(early.world.client, "echo", NULL, NULL), "1", 1,
             &options, &again);
    rpc_world_run_until(&early.world, &again.is_told);
    rpc_expect(&again, WEIR_OK, "");
    assert_int_equal(connections(&early), 2);
    check_filled(early.bytes, LENGTH, 9);
    early_close(&early);
}

/* Destroying takes it back before it returns. */
static void test_destroy_takes_back(void **state)
{
    struct early early;
    early_open(&early, 0, NEVER_MS);
    assert_int_equal(push_all(&early), WEIR_OK);
    weir_target_destroy(early.world.target);
    rpc_expect(&early.outcome, WEIR_CANCELED, "destroyed");
    fill(early.bytes, LENGTH, 11);
    rpc_world_run_until(&early.world, &early.service.has_moved);
    rpc_world_run_until(&early.world, &early.service.is_gone);
    check_filled(early.bytes, LENGTH, 11);
    weir_request_refuse(early.service.request, 0, NULL);
    early_close(&early);
}

/* The server's end while it pushes: the handler has its memory back when that returns. */
static void test_server_destroyed_while_it_pushes(void **state)
{
    struct early early;
    early_open(&early, 0, NEVER_MS);
    assert_int_equal(push_all(&early), WEIR_OK);
    weir_rpc_destroy(early.world.server);
    early.world.server = NULL;
    assert_true(early.service.has_moved);
    assert_true(early.service.is_gone);
    assert_int_equal(early.service.gone_why, WEIR_CANCELED);
    rpc_world_run_until(&early.world, &early.outcome.is_told);
    rpc_expect(&early.outcome, WEIR_PEER_LOST, "lost after it was sent");
    early_close(&early);
}

/* A refusal while something is under way is told when that is done. */
static void test_refusal_waits_for_a_push(void **state)
{
    struct early early;
    early_open(&early, 0, NEVER_MS);
    assert_int_equal(push_all(&early), WEIR_OK);
    weir_request_refuse(early.service.request, 7, "half of it is wrong");
    rpc_world_run_until(&early.world, &early.outcome.is_told);
    rpc_expect(&early.outcome, WEIR_REFUSED, "half of it is wrong");
    assert_true(early.service.has_moved);
    assert_int_equal(early.service.moved_status, WEIR_OK);
    early_close(&early);
}

/* --- a server in another process --- */

#define FLOOD        48
#define FLOOD_LENGTH ((size_t)1 << 20)
#define ROUNDS       20

static unsigned flooding;

static void flood_moved(struct weir_request *request, enum weir_status status, void *argument)
{
    flooding--;
    if (flooding == 0) {
        weir_request_refuse(request, 0, NULL);
    }
}

/* All at once, and only then looks at what the caller says. */
static void handle_flood(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct weir_bulk_part part = {.memory = user, .length = FLOOD_LENGTH};
    for (unsigned i = 0; i < FLOOD; i++) {
        flooding += weir_request_push(request, &part, flood_moved, NULL) == WEIR_OK;
    }
}

static int serve(const char *address)
{
    struct weir_poller *poller;
    struct weir_rpc *rpc;
    struct weir_memory *memory;
    struct weir_error error;
    if (weir_poller_create(world_fabric(), &poller, &error) != WEIR_OK ||
        weir_rpc_create(poller, NULL, &rpc, &error) != WEIR_OK ||
        weir_memory_allocate(world_fabric(), FLOOD_LENGTH, WEIR_LOCAL, &memory, &error) !=
            WEIR_OK ||
        weir_rpc_listen(rpc, address, &error) != WEIR_OK) {
        return 1;
    }
    rpc_register(rpc, "flood", handle_flood, memory);
    printf("%s\n", weir_rpc_address(rpc));
    fflush(stdout);
    while (weir_poll(poller, -1) >= 0) {
    }
    return 1;
}

/* Cancels in the middle of the flood, and lets the server have no time. */
static void drown_once(struct rpc_world *world, struct weir_procedure *flood, uint8_t *bytes,
                       unsigned polls)
{
    struct outcome outcome;
    struct weir_bulk bulk = {bytes, FLOOD_LENGTH, WEIR_REMOTE_WRITE};
    struct weir_call_options options = {.timeout_ms = PATIENCE_MS, .bulk = &bulk, .bulk_count = 1};
    struct weir_target_statistics statistics;
    memset(bytes, 0xff, FLOOD_LENGTH);
    rpc_call(world->target, flood, NULL, 0, &options, &outcome);
    do {
        assert_true(weir_poll(world->client_poller, 0) >= 0);
        weir_target_statistics(world->target, &statistics);
        polls -= statistics.calls.in_flight > 0;
    } while (polls > 0 && !outcome.is_told);
    if (outcome.call != NULL) {
        weir_call_cancel(outcome.call);
    }
    rpc_world_run_client_until(world, &outcome.is_told);
    fill(bytes, FLOOD_LENGTH, 3); /* it is ours again */
    do {
        assert_true(weir_poll(world->client_poller, 1) >= 0);
        weir_target_statistics(world->target, &statistics);
    } while (statistics.calls.in_flight > 0);
    check_filled(bytes, FLOOD_LENGTH, 3);
}

static void test_flood_of_another_process(void **state)
{
    struct rpc_world world;
    struct killable server;
    struct weir_rpc_options options = {.release_ms = 1};
    uint8_t *bytes = malloc(FLOOD_LENGTH);
    char address[96];
    snprintf(address, sizeof(address), "%s:0", world_host());
    killable_start(&server, address, "flooding");
    rpc_world_open_client(&world, &options, server.address);
    struct weir_procedure *flood = rpc_register(world.client, "flood", NULL, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        drown_once(&world, flood, bytes, 1 + round * 100);
    }
    rpc_world_close(&world);
    killable_stop(&server);
    free(bytes);
}

#define OVER(options)                                                                              \
    {"pull and push (" #options ")", test_pull_and_push, rpc_world_over, NULL, &(options)},        \
        {"parts (" #options ")", test_parts, rpc_world_over, NULL, &(options)},                    \
        {"bounds (" #options ")", test_bounds, rpc_world_over, NULL, &(options)},                  \
        {"what cannot be shown (" #options ")", test_what_cannot_be_shown, rpc_world_over, NULL,   \
         &(options)},                                                                              \
        {"timeout of a live server (" #options ")", test_timeout_of_a_live_server, rpc_world_over, \
         NULL, &(options)},                                                                        \
        {"cancel waits for a push (" #options ")", test_cancel_waits_for_a_push, rpc_world_over,   \
         NULL, &(options)},                                                                        \
        {"late push touches nothing (" #options ")", test_late_push_touches_nothing,               \
         rpc_world_over, NULL, &(options)},                                                        \
        {"destroy takes back (" #options ")", test_destroy_takes_back, rpc_world_over, NULL,       \
         &(options)},                                                                              \
        {"server destroyed while it pushes (" #options ")", test_server_destroyed_while_it_pushes, \
         rpc_world_over, NULL, &(options)},                                                        \
    {                                                                                              \
        "refusal waits for a push (" #options ")", test_refusal_waits_for_a_push, rpc_world_over,  \
            NULL, &(options)                                                                       \
    }

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "server") == 0) {
        return serve(argv[2]);
    }
    const struct CMUnitTest tests[] = {OVER(world_cm), OVER(world_cm_lanes), OVER(world_tcp),
                                       OVER(world_tcp_lanes),
                                       cmocka_unit_test(test_flood_of_another_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
