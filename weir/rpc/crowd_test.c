/* Thousands of calls of several clients at once, with bulk and without, refused, canceled and timed
 * out among them; the server in a thread of its own. What was answered is right, byte for byte. */
#include "weir/rpc/rpc_world_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS    4
#define CALLS      1000u /* of each */
#define AT_ONCE    48u
#define LENGTH_MAX 20000u

/* --- the server: gives bulk 0 back in bulk 1, each byte one more --- */

struct job {
    struct weir_memory *memory;
    struct job *next;
};

struct server {
    struct weir_poller *poller;
    struct weir_rpc *rpc;
    struct job *spare;
    atomic_bool is_over;
};

static struct server server;

static void finish(struct job *job)
{
    job->next = server.spare;
    server.spare = job;
}

static void fail_job(struct weir_request *request, struct job *job)
{
    weir_request_refuse(request, 1, "its caller went");
    finish(job);
}

static void pushed(struct weir_request *request, enum weir_status status, void *argument)
{
    struct weir_piece piece = {"more", 4};
    if (status == WEIR_OK) {
        weir_request_reply(request, &piece, 1);
        finish(argument);
    } else {
        fail_job(request, argument);
    }
}

static void pulled(struct weir_request *request, enum weir_status status, void *argument)
{
    struct job *job = argument;
    struct weir_bulk_part part = {.index = 1, .memory = job->memory};
    weir_request_bulk(request, 1, &part.length, NULL);
    uint8_t *bytes = weir_memory_bytes(job->memory);
    for (size_t i = 0; i < part.length; i++) {
        bytes[i]++;
    }
    if (status != WEIR_OK || weir_request_push(request, &part, pushed, job) != WEIR_OK) {
        fail_job(request, job);
    }
}

static struct job *take_job(void)
{
    struct job *job = server.spare;
    if (job != NULL) {
        server.spare = job->next;
        return job;
    }
    struct weir_error error;
    job = calloc(1, sizeof(*job));
    assert_int_equal(
        weir_memory_allocate(world_fabric(), LENGTH_MAX, WEIR_LOCAL, &job->memory, &error),
        WEIR_OK);
    return job;
}

static void handle_more(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    struct job *job = take_job();
    struct weir_bulk_part part = {.memory = job->memory};
    weir_request_bulk(request, 0, &part.length, NULL);
    if (weir_request_pull(request, &part, pulled, job) != WEIR_OK) {
        fail_job(request, job);
    }
}

static void handle_refuse(struct weir_request *request, const void *bytes, size_t length,
                          void *user)
{
    weir_request_refuse(request, *(const uint8_t *)bytes, "as asked");
}

static void *serve(void *argument)
{
    while (!atomic_load(&server.is_over)) {
        weir_poll(server.poller, -1);
    }
    return NULL;
}

static void server_open(void)
{
    struct weir_rpc_options options = {.requests_max = 60}; /* less than all want */
    struct weir_error error;
    char address[96];
    snprintf(address, sizeof(address), "%s:0", world_host());
    assert_int_equal(weir_poller_create(world_fabric(), &server.poller, &error), WEIR_OK);
    assert_int_equal(weir_rpc_create(server.poller, &options, &server.rpc, &error), WEIR_OK);
    assert_int_equal(weir_rpc_listen(server.rpc, address, &error), WEIR_OK);
    rpc_register(server.rpc, "more", handle_more, NULL);
    rpc_register(server.rpc, "refuse", handle_refuse, NULL);
    rpc_register(server.rpc, "echo", handle_echo, NULL);
}

static void server_close(void)
{
    weir_rpc_destroy(server.rpc);
    weir_poller_destroy(server.poller);
    while (server.spare != NULL) {
        struct job *job = server.spare;
        server.spare = job->next;
        weir_memory_deregister(job->memory);
        free(job);
    }
}

/* --- the clients --- */

struct client;

struct one {
    struct client *client;
    struct weir_call *call;
    unsigned kind; /* what is tried */
    unsigned length;
    uint8_t seed;
    uint8_t from[LENGTH_MAX], to[LENGTH_MAX];
};

struct client {
    struct weir_rpc *rpc;
    struct weir_target *target;
    struct weir_procedure *more, *refuse, *echo;
    uint32_t random;
    unsigned made, told, ok, ended_early;
    struct one *ones;
};

static unsigned choose(struct client *client, unsigned bound)
{
    client->random = client->random * 1664525u + 1013904223u;
    return (client->random >> 8) % bound;
}

static void check_bulk(const struct one *one, bool is_done)
{
    for (unsigned i = 0; i < one->length; i++) {
        uint8_t was = (uint8_t)(one->seed + i * 3);
        if (one->from[i] != was || (is_done && one->to[i] != (uint8_t)(was + 1))) {
            fail_msg("byte %u of %u", i, one->length);
        }
    }
}

static void make_call(struct one *one);

static void told(const struct weir_reply *reply, void *argument)
{
    struct one *one = argument;
    struct client *client = one->client;
    client->told++;
    if (one->kind >= 8) { /* canceled, or with little time */
        assert_true(reply->status == WEIR_OK || reply->status == WEIR_CANCELED ||
                    reply->status == WEIR_TIMED_OUT);
        client->ended_early += reply->status != WEIR_OK;
    } else if (one->kind == 7) {
        assert_int_equal(reply->status, WEIR_REFUSED);
        assert_int_equal(reply->code, one->seed);
    } else {
        assert_int_equal(reply->status, WEIR_OK);
    }
    if (one->kind < 4 || one->kind == 8) {
        check_bulk(one, reply->status == WEIR_OK);
        memset(one->to, 0x77, one->length); /* it is ours again */
    } else if (reply->status == WEIR_OK && reply->length > 0) {
        assert_int_equal(reply->length, one->length);
        assert_memory_equal(reply->bytes, one->from, one->length);
    }
    one->call = NULL;
    if (client->made < CALLS) {
        make_call(one);
    }
}

/* Kinds 0 to 3 and 8 have bulk, 4 to 6 and 9 are echoed, 7 is refused. */
static void make_call(struct one *one)
{
    struct client *client = one->client;
    one->kind = choose(client, 10);
    one->length = 1 + choose(client, LENGTH_MAX);
    one->seed = (uint8_t)choose(client, 256);
    for (unsigned i = 0; i < one->length; i++) {
        one->from[i] = (uint8_t)(one->seed + i * 3);
    }
    bool has_bulk = one->kind < 4 || one->kind == 8;
    struct weir_bulk bulk[] = {{one->from, one->length, WEIR_REMOTE_READ},
                               {one->to, one->length, WEIR_REMOTE_WRITE}};
    struct weir_call_options options = {
        .timeout_ms = one->kind == 9 ? 1 : PATIENCE_MS,
        .bulk = has_bulk ? bulk : NULL,
        .bulk_count = has_bulk ? 2 : 0,
    };
    struct weir_piece piece = {one->from, has_bulk ? 0 : one->length};
    client->made++;
    assert_int_equal(weir_rpc_call(client->target,
                                   has_bulk         ? client->more
                                   : one->kind == 7 ? client->refuse
                                                    : client->echo,
                                   &piece, 1, &options, told, one, &one->call),
                     WEIR_OK);
    if (one->kind == 8 && choose(client, 2) == 0) {
        weir_call_cancel(one->call);
    }
}

static void client_open(struct client *client, struct weir_poller *poller, uint32_t seed)
{
    struct weir_error error;
    *client = (struct client){.random = seed};
    assert_int_equal(weir_rpc_create(poller, NULL, &client->rpc, &error), WEIR_OK);
    assert_int_equal(
        weir_target_create(client->rpc, weir_rpc_address(server.rpc), &client->target, &error),
        WEIR_OK);
    client->more = rpc_register(client->rpc, "more", NULL, NULL);
    client->refuse = rpc_register(client->rpc, "refuse", NULL, NULL);
    client->echo = rpc_register(client->rpc, "echo", NULL, NULL);
    client->ones = calloc(AT_ONCE, sizeof(*client->ones));
    for (unsigned i = 0; i < AT_ONCE; i++) {
        client->ones[i].client = client;
        make_call(&client->ones[i]);
    }
}

/* Cancels some of what is under way, in whatever state it is. */
static void disturb(struct client *client)
{
    struct one *one = &client->ones[choose(client, AT_ONCE)];
    if (one->call != NULL && one->kind == 8) {
        weir_call_cancel(one->call);
    }
}

static void test_a_crowd(void **state)
{
    static struct client clients[CLIENTS];
    struct weir_poller *poller;
    struct weir_error error;
    pthread_t thread;
    server_open();
    assert_int_equal(weir_poller_create(world_fabric(), &poller, &error), WEIR_OK);
    for (unsigned i = 0; i < CLIENTS; i++) {
        client_open(&clients[i], poller, 17 + i);
    }
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        while (clients[i].told < CALLS) {
            assert_true(weir_poll(poller, 1000) >= 0);
            disturb(&clients[i]);
        }
    }
    atomic_store(&server.is_over, true);
    weir_wake(server.poller);
    pthread_join(thread, NULL);
    unsigned ended_early = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct weir_target_statistics statistics;
        weir_target_statistics(clients[i].target, &statistics);
        assert_int_equal(clients[i].told, CALLS);
        assert_int_equal(statistics.calls.calls, CALLS);
        assert_int_equal(statistics.calls.replies + statistics.calls.refused +
                             statistics.calls.timeouts + statistics.calls.canceled,
                         CALLS);
        assert_int_equal(statistics.connections, 1);
        ended_early += clients[i].ended_early;
        weir_rpc_destroy(clients[i].rpc);
        free(clients[i].ones);
    }
    assert_true(ended_early > 0);
    weir_poller_destroy(poller);
    server_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_crowd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
