/* Slow paths: what takes long is not lost as long as it goes on.
 *
 * What the client posts completes here as it would on a path that carries RATE bytes a second: its
 * completions are held back for as long. What the server posts and what arrives is not. */
#include "weir/channel/timer.h"
#include "weir/channel/world_test.h"

#include <dlfcn.h>
#include <string.h>

#include "weir/channel/connection.h"

#define SILENCE_MS 400
#define RATE       (UINT64_C(640) << 10)
#define LENGTH     ((size_t)1 << 20)
#define HELD_MAX   4096

/* A request that was posted, and its completion once the device has it. */
struct held {
    uint32_t pair;
    uint64_t due_ns;
    bool is_complete;
    struct ibv_cq *queue;
    struct ibv_wc completion;
};

static struct held held[HELD_MAX]; /* in the order of posting */
static unsigned held_count;
static uint64_t path_free_ns;
static const struct ibv_qp *slow[LANES_MAX + 1];
static struct ibv_context_ops device;

static bool is_slow(const struct ibv_qp *pair)
{
    for (unsigned i = 0; i <= LANES_MAX; i++) {
        if (slow[i] == pair) {
            return true;
        }
    }
    return false;
}

static int slow_post_send(struct ibv_qp *pair, struct ibv_send_wr *request,
                          struct ibv_send_wr **bad)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t bytes = request->num_sge > 0 ? request->sg_list[0].length : 0;
    assert_null(request->next);
    if (!is_slow(pair)) {
        return device.post_send(pair, request, bad);
    }
    path_free_ns = (path_free_ns > now_ns ? path_free_ns : now_ns) + bytes * 1000000000 / RATE;
    if ((request->send_flags & IBV_SEND_SIGNALED) != 0) {
        assert_true(held_count < HELD_MAX);
        held[held_count++] = (struct held){
            .pair = pair->qp_num, .due_ns = path_free_ns, .completion.wr_id = request->wr_id};
    }
    return device.post_send(pair, request, bad);
}

static struct held *find(const struct ibv_wc *completion)
{
    for (unsigned i = 0; i < held_count; i++) {
        if (!held[i].is_complete && held[i].pair == completion->qp_num &&
            held[i].completion.wr_id == completion->wr_id) {
            return &held[i];
        }
    }
    return NULL;
}

/* Receives at once, and what is due. */
static int slow_poll(struct ibv_cq *queue, int room, struct ibv_wc *ret_completions)
{
    struct ibv_wc real;
    int count = 0;
    while (count < room && device.poll_cq(queue, 1, &real) == 1) {
        struct held *own = find(&real);
        if (own == NULL) {
            ret_completions[count++] = real;
            continue;
        }
        own->is_complete = true;
        own->queue = queue;
        own->completion = real;
    }
    uint64_t now_ns = clock_now_ns();
    for (unsigned i = 0; i < held_count && count < room && held[i].due_ns <= now_ns;) {
        if (!held[i].is_complete || held[i].queue != queue) {
            i++;
            continue;
        }
        ret_completions[count++] = held[i].completion;
        memmove(&held[i], &held[i + 1], (--held_count - i) * sizeof(held[0]));
    }
    return count;
}

static int slow_begin(void **state)
{
    struct ibv_context_ops *ops = &world_fabric()->context->ops;
    device = *ops;
    held_count = 0;
    path_free_ns = 0;
    ops->post_send = slow_post_send;
    ops->poll_cq = slow_poll;
    return 0;
}

static int slow_end(void **state)
{
    world_fabric()->context->ops = device;
    return 0;
}

struct pair {
    struct world world;
    struct end client;
    struct weir_memory *here, *there;
};

static void pair_open(struct pair *pair, const struct weir_channel_options *base)
{
    struct weir_channel_options options = *base;
    struct weir_error error;
    options.silence_timeout_ms = SILENCE_MS;
    memset(pair, 0, sizeof(*pair));
    world_open_pair(&pair->world, &options, &pair->client, false);
    for (unsigned i = 0; i <= pair->client.connection->lane_count; i++) {
        slow[i] = pair->client.connection->lanes[i].pair;
    }
    assert_int_equal(
        weir_memory_allocate(pair->world.fabric, LENGTH, WEIR_LOCAL, &pair->here, &error), WEIR_OK);
    assert_int_equal(weir_memory_allocate_for(pair->world.servers[0].connection, LENGTH,
                                              WEIR_REMOTE_READ | WEIR_REMOTE_WRITE, &pair->there,
                                              &error),
                     WEIR_OK);
}

static void pair_close(struct pair *pair)
{
    memset(slow, 0, sizeof(slow));
    world_close_pair(&pair->world, &pair->client);
    weir_memory_deregister(pair->here);
    weir_memory_deregister(pair->there);
}

static void expect_slow_but_whole(struct pair *pair, uint64_t started_ns)
{
    world_run_until_done(&pair->world, &pair->client.done, 1);
    assert_int_equal(pair->client.last_status, WEIR_OK);
    assert_false(pair->client.is_closed);
    assert_true(clock_now_ns() - started_ns > (uint64_t)SILENCE_MS * 2 * 1000000);
}

static void test_put_with_notice(void **state)
{
    struct pair pair;
    pair_open(&pair, *state);
    struct weir_transfer transfer = {.memory = pair.here,
                                     .length = LENGTH,
                                     .remote = weir_memory_remote(pair.there),
                                     .has_notice = true,
                                     .notice = 77};
    memset(weir_memory_bytes(pair.here), 0xa5, LENGTH);
    uint64_t started_ns = clock_now_ns();
    assert_int_equal(weir_put(pair.client.connection, &transfer, end_done, &pair.client), WEIR_OK);
    expect_slow_but_whole(&pair, started_ns);
    world_run_until_count(&pair.world, &pair.world.servers[0].noticed, 1);
    assert_int_equal(pair.world.servers[0].last_notice, 77);
    assert_memory_equal(weir_memory_bytes(pair.there), weir_memory_bytes(pair.here), LENGTH);
    pair_close(&pair);
}

static void test_put_and_get(void **state)
{
    struct pair pair;
    pair_open(&pair, *state);
    struct weir_transfer transfer = {
        .memory = pair.here, .length = LENGTH, .remote = weir_memory_remote(pair.there)};
    uint64_t started_ns = clock_now_ns();
    assert_int_equal(weir_put(pair.client.connection, &transfer, end_done, &pair.client), WEIR_OK);
    expect_slow_but_whole(&pair, started_ns);
    pair.client.done = 0;
    started_ns = clock_now_ns();
    assert_int_equal(weir_get(pair.client.connection, &transfer, end_done, &pair.client), WEIR_OK);
    /* The device posts a READ's request, not its bytes: they are counted all the same. */
    expect_slow_but_whole(&pair, started_ns);
    pair_close(&pair);
}

#define STREAM_LENGTH ((size_t)32 << 10)

/* There is always one more on its way. */
static void send_next(struct weir_connection *connection, enum weir_status status, void *argument)
{
    if (status == WEIR_OK) { /* STATE: it has ended */
        weir_send(connection, argument, STREAM_LENGTH, send_next, argument);
    }
}

/* Who closes does not wait for the end of what the peer goes on to send. */
static void test_close_under_a_stream(void **state)
{
    static uint8_t bytes[STREAM_LENGTH];
    struct pair pair;
    pair_open(&pair, *state);
    struct weir_connection *server = pair.world.servers[0].connection;
    for (unsigned i = 0; i < 2 * CREDIT_PULLS_MAX; i++) {
        assert_int_equal(weir_send(server, bytes, STREAM_LENGTH, send_next, bytes), WEIR_OK);
    }
    world_run_until_count(&pair.world, &pair.client.received, 3);
    weir_close(pair.client.connection);
    world_run_until(&pair.world, &pair.client.is_closed);
    world_run_until(&pair.world, &pair.world.servers[0].is_closed);
    memset(slow, 0, sizeof(slow));
    assert_int_equal(pair.client.reason.status, WEIR_OK);
    assert_int_equal(pair.world.servers[0].reason.status, WEIR_DISCONNECTED);
    world_close(&pair.world);
    weir_memory_deregister(pair.here);
    weir_memory_deregister(pair.there);
}

/* A path that stops is another matter. */
static void test_nothing_more(void **state)
{
    struct pair pair;
    pair_open(&pair, *state);
    struct weir_transfer transfer = {
        .memory = pair.here, .length = LENGTH, .remote = weir_memory_remote(pair.there)};
    path_free_ns = clock_now_ns() + 3600 * UINT64_C(1000000000);
    assert_int_equal(weir_put(pair.client.connection, &transfer, end_done, &pair.client), WEIR_OK);
    world_run_until(&pair.world, &pair.client.is_closed);
    memset(slow, 0, sizeof(slow));
    assert_int_equal(pair.client.reason.status, WEIR_PEER_LOST);
    assert_non_null(strstr(pair.client.reason.message, "no sign of the peer"));
    world_close(&pair.world);
    weir_memory_deregister(pair.here);
    weir_memory_deregister(pair.there);
}

/* --- a program that is slow --- */

#define BACKLOG_LENGTH 1200

/* What a program does with each message, that it falls behind: more than a silence timeout. */
static void take_time(struct end *end, const uint8_t *bytes, size_t length)
{
    uint64_t started_ns = clock_now_ns();
    while (clock_now_ns() - started_ns < 2 * SILENCE_MS * UINT64_C(1000000) / BACKLOG_LENGTH) {
    }
}

/* Two clients of a server, the second polled by itself. */
static void open_two(struct world *world, struct end clients[2],
                     const struct weir_channel_options *wanted, struct weir_poller **ret_second)
{
    struct weir_channel_options options = *wanted;
    struct weir_error error;
    options.silence_timeout_ms = SILENCE_MS;
    options.eager_buffers = BACKLOG_LENGTH;
    world_open(world, &options, 2, true);
    struct weir_poller *first = world->client_poller;
    assert_int_equal(weir_poller_create(world->fabric, ret_second, &error), WEIR_OK);
    for (unsigned i = 0; i < 2; i++) {
        world->client_poller = i == 0 ? first : *ret_second;
        world_connect(world, &clients[i]);
        world_run_until_open(world, &clients[i]);
        world_run_until_open(world, &world->servers[i]);
    }
    world->client_poller = first;
}

/* The first client sends more than the server can read in time. */
static void fall_behind(struct world *world, struct end *client)
{
    world->servers[0].on_message = take_time;
    for (unsigned i = 0; i < BACKLOG_LENGTH; i++) {
        assert_int_equal(weir_send(client->connection, "x", 1, end_done, client), WEIR_OK);
    }
    while (client->done < BACKLOG_LENGTH) {
        assert_true(weir_poll(world->client_poller, 1) >= 0);
    }
}

static void poll_all(struct world *world, struct weir_poller *second)
{
    world_poll(world);
    assert_true(weir_poll(second, 1) >= 0);
}

/* Who has not come to a peer's answer yet may not call it silent. */
static void test_backlog_is_no_silence(void **state)
{
    struct world world;
    struct weir_poller *second;
    struct end clients[2] = {0};
    open_two(&world, clients, *state, &second);
    fall_behind(&world, &clients[0]);
    while (world.servers[0].received < BACKLOG_LENGTH) {
        poll_all(&world, second);
    }
    if (world.servers[1].is_closed) {
        fail_msg("%s", world.servers[1].reason.message);
    }
    assert_int_equal(weir_send(clients[1].connection, "x", 1, NULL, NULL), WEIR_OK);
    world_run_until_count(&world, &world.servers[1].received, 1);
    weir_poller_destroy(second);
    world_close(&world);
}

/* Nor may who closes call it one that takes nothing. */
static void test_backlog_is_no_refusal(void **state)
{
    struct world world;
    struct weir_poller *second;
    struct end clients[2] = {0};
    open_two(&world, clients, *state, &second);
    fall_behind(&world, &clients[0]);
    struct end *server = &world.servers[1];
    for (unsigned i = 0; i < 2 * SENDER_BUFFERS; i++) {
        assert_int_equal(weir_send(server->connection, "x", 1, end_done, server), WEIR_OK);
    }
    weir_close(server->connection);
    while (!server->is_closed) {
        poll_all(&world, second);
    }
    if (server->reason.status != WEIR_OK) {
        fail_msg("%s", server->reason.message);
    }
    assert_int_equal(clients[1].received, 2 * SENDER_BUFFERS);
    weir_poller_destroy(second);
    world_close(&world);
}

/* Nor leave before it has read what came in time. */
static void test_backlog_is_no_end(void **state)
{
    struct world world;
    struct weir_poller *second;
    struct end clients[2] = {0};
    open_two(&world, clients, *state, &second);
    struct end *server = &world.servers[1];
    weir_close(server->connection);
    while (!server->connection->waits_for_farewell) {
        assert_true(weir_poll(world.server_poller, 1) >= 0);
    }
    fall_behind(&world, &clients[0]);
    for (unsigned i = 0; i < SENDER_BUFFERS / 2; i++) {
        assert_int_equal(weir_send(clients[1].connection, "x", 1, NULL, NULL), WEIR_OK);
    }
    weir_close(clients[1].connection);
    world_run_until(&world, &server->is_closed);
    while (!clients[1].is_closed) {
        assert_true(weir_poll(second, 1) >= 0);
    }
    assert_int_equal(server->reason.status, WEIR_OK);
    assert_int_equal(clients[1].reason.status, WEIR_OK);
    assert_int_equal(server->received, SENDER_BUFFERS / 2);
    weir_poller_destroy(second);
    world_close(&world);
}

/* Who closes does not wait for ever for what the other still sends, which closes, too; the other is
 * told. */
static void test_closes_before_it_has_all(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    struct world world;
    struct end client = {0};
    options.silence_timeout_ms = SILENCE_MS;
    world_open_pair(&world, &options, &client, true);
    struct end *server = &world.servers[0];
    client.on_message = take_time;
    for (unsigned i = 0; i < 2 * BACKLOG_LENGTH; i++) {
        assert_int_equal(weir_send(server->connection, "x", 1, end_done, server), WEIR_OK);
    }
    weir_close(client.connection);
    weir_close(server->connection);
    world_run_until(&world, &client.is_closed);
    world_run_until(&world, &server->is_closed);
    assert_int_equal(client.reason.status, WEIR_OK);
    assert_int_equal(server->reason.status, WEIR_DISCONNECTED);
    assert_non_null(strstr(server->reason.message, "before it had taken everything"));
    assert_int_equal(server->last_status, WEIR_DISCONNECTED);
    world_close(&world);
}

/* The first of two addresses answers within its share of the time, and then takes longer. */
static void test_answer_is_worth_all_the_time(void **state)
{
    struct world world;
    struct end client = {0};
    struct sockaddr_storage targets[ADDRESSES_MAX];
    struct weir_channel_options options;
    struct weir_error error;
    unsigned count;
    world_open(&world, *state, 2, true);
    assert_int_equal(
        address_resolve(weir_listener_address(world.listener), false, targets, &count, &error),
        WEIR_OK);
    targets[1] = targets[0];
    assert_int_equal(connection_resolve_options(world.fabric, *state, &options, &error), WEIR_OK);
    options.connect_timeout_ms = 4000;
    assert_int_equal(
        connection_begin(world.client_poller, targets, 2, &options, &client.connection, &error),
        WEIR_OK);
    client.connection->handler = end_handler;
    client.connection->user = &client;
    while (client.connection->peer.purpose != HELLO_ACCEPT) {
        world_poll(&world);
    }
    while (connection_age(client.connection) < 2.1) {
        assert_true(weir_poll(world.client_poller, 1) >= 0);
        assert_false(client.is_closed);
    }
    world_run_until_open(&world, &client);
    weir_close(client.connection);
    world_run_until(&world, &client.is_closed);
    world_close(&world);
}

/* What a queue pair waits for an acknowledgement follows from the silence timeout, by rdma_cm too,
 * whose own choice may be longer than the silence timeout. */
static void expect_ack_timeout(struct weir_connection *connection)
{
    int (*query)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
    *(void **)&query = dlsym(connection->poller->fabric->library.ibverbs, "ibv_query_qp");
    assert_non_null(query);
    for (unsigned i = 0; i <= connection->lane_count; i++) {
        struct ibv_qp_attr attributes;
        struct ibv_qp_init_attr initial;
        assert_int_equal(query(connection->lanes[i].pair, &attributes, IBV_QP_TIMEOUT, &initial),
                         0);
        assert_int_equal(attributes.timeout, lane_ack_timeout(connection));
    }
}

static void test_ack_timeout(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    struct world world;
    struct end client = {0};
    options.silence_timeout_ms = 2000;
    world_open_pair(&world, &options, &client, false);
    /* 8 times 4.096 us * 2^14 are 0.54 s, and twice that would be more than 1 s. */
    assert_int_equal(lane_ack_timeout(client.connection), 14);
    expect_ack_timeout(client.connection);
    expect_ack_timeout(world.servers[0].connection);
    world_close_pair(&world, &client);
    options.silence_timeout_ms = 0;
    memset(&client, 0, sizeof(client));
    world_open_pair(&world, &options, &client, false);
    assert_int_equal(lane_ack_timeout(client.connection), 16);
    expect_ack_timeout(client.connection);
    expect_ack_timeout(world.servers[0].connection);
    world_close_pair(&world, &client);
}

#define SLOW(test, options)                                                                        \
    {                                                                                              \
#test " (" #options ")", test, slow_begin, slow_end, &world_##options                      \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        SLOW(test_put_with_notice, cm),
        SLOW(test_put_with_notice, cm_lanes),
        SLOW(test_put_and_get, cm),
        SLOW(test_put_and_get, cm_lanes),
        SLOW(test_close_under_a_stream, cm),
        SLOW(test_close_under_a_stream, tcp_lanes),
        SLOW(test_nothing_more, cm),
        {"test_backlog_is_no_silence (cm)", test_backlog_is_no_silence, NULL, NULL, &world_cm},
        {"test_backlog_is_no_silence (tcp)", test_backlog_is_no_silence, NULL, NULL, &world_tcp},
        {"test_backlog_is_no_refusal (cm)", test_backlog_is_no_refusal, NULL, NULL, &world_cm},
        {"test_backlog_is_no_end (cm)", test_backlog_is_no_end, NULL, NULL, &world_cm},
        {"test_backlog_is_no_end (tcp)", test_backlog_is_no_end, NULL, NULL, &world_tcp},
        {"test_closes_before_it_has_all (cm)", test_closes_before_it_has_all, NULL, NULL,
         &world_cm},
        {"test_closes_before_it_has_all (tcp)", test_closes_before_it_has_all, NULL, NULL,
         &world_tcp},
        {"test_answer_is_worth_all_the_time (cm_lanes)", test_answer_is_worth_all_the_time, NULL,
         NULL, &world_cm_lanes},
        {"test_answer_is_worth_all_the_time (tcp)", test_answer_is_worth_all_the_time, NULL, NULL,
         &world_tcp},
        {"test_ack_timeout (cm)", test_ack_timeout, NULL, NULL, &world_cm},
        {"test_ack_timeout (cm_lanes)", test_ack_timeout, NULL, NULL, &world_cm_lanes},
        {"test_ack_timeout (tcp)", test_ack_timeout, NULL, NULL, &world_tcp},
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
