/* What a small message asks of the device: one request that brings its bytes along, receives by the
 * list, and nobody to be woken who polls. What the program does with the poller's descriptor. */
#include "weir/channel/timer.h"
#include "weir/channel/world_test.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>

#include "weir/channel/connection.h"

#define ROUNDS    800
#define LOOKED_NS 1000000 /* by then the sockets have been looked at */

static struct ibv_context_ops device;
static struct verbs verbs;
static unsigned sends, sends_inline, receives, receive_calls, arms;

static int count_sends(struct ibv_qp *pair, struct ibv_send_wr *request, struct ibv_send_wr **bad)
{
    for (const struct ibv_send_wr *at = request; at != NULL; at = at->next) {
        sends++;
        sends_inline += (at->send_flags & IBV_SEND_INLINE) != 0;
    }
    return device.post_send(pair, request, bad);
}

static int count_receives(struct ibv_qp *pair, struct ibv_recv_wr *request,
                          struct ibv_recv_wr **bad)
{
    receive_calls++;
    for (const struct ibv_recv_wr *at = request; at != NULL; at = at->next) {
        receives++;
    }
    return device.post_recv(pair, request, bad);
}

static int count_arms(struct ibv_cq *queue, int solicited_only)
{
    arms++;
    return device.req_notify_cq(queue, solicited_only);
}

static int begin(void **state)
{
    struct ibv_context_ops *ops = &world_fabric()->context->ops;
    device = *ops;
    verbs = world_fabric()->library.verbs;
    ops->post_send = count_sends;
    ops->post_recv = count_receives;
    ops->req_notify_cq = count_arms;
    return 0;
}

static int end(void **state)
{
    world_fabric()->context->ops = device;
    world_fabric()->library.verbs = verbs;
    return 0;
}

static void send_back(struct end *end, const uint8_t *bytes, size_t length)
{
    assert_int_equal(weir_send(end->connection, bytes, length, NULL, NULL), WEIR_OK);
}

static void check_eight(struct end *end, const uint8_t *bytes, size_t length)
{
    uint64_t value;
    assert_int_equal(length, sizeof(value));
    memcpy(&value, bytes, sizeof(value));
    assert_int_equal(value, end->received);
}

static void open_echo(struct world *world, const struct weir_channel_options *options,
                      struct end *client)
{
    struct weir_channel_options quiet = *options;
    quiet.silence_timeout_ms = PATIENCE_MS; /* nobody is asked whether he is there */
    memset(client, 0, sizeof(*client));
    world_open_pair(world, &quiet, client, true);
    client->on_message = check_eight;
    world->servers[0].on_message = send_back;
    sends = sends_inline = receives = receive_calls = arms = 0;
}

/* Requests and replies of 8 B, by two that poll and never sleep. */
static void ping_pong(struct world *world, struct end *client)
{
    for (uint64_t value = 1; value <= ROUNDS; value++) {
        assert_int_equal(weir_send(client->connection, &value, sizeof(value), NULL, NULL), WEIR_OK);
        while (client->received < value) {
            assert_true(weir_poll(world->server_poller, 0) >= 0);
            assert_true(weir_poll(world->client_poller, 0) >= 0);
            assert_false(client->is_closed);
        }
        assert_int_equal(weir_poll(world->server_poller, 0), 0); /* and one that finds nothing */
        assert_int_equal(weir_poll(world->client_poller, 0), 0);
    }
}

static void test_of_a_small_message(void **state)
{
    struct world world;
    struct end client;
    open_echo(&world, *state, &client);
    ping_pong(&world, &client);
    assert_int_equal(sends, 2 * ROUNDS);
    assert_int_equal(sends_inline, sends);
    assert_int_equal(arms, 0);
    assert_in_range(receives, 2 * ROUNDS - 2 * LANE_RECEIVES_MAX, 2 * ROUNDS);
    assert_int_equal(receive_calls, receives / LANE_RECEIVES_MAX);
    world_close_pair(&world, &client);
}

/* A message that is longer than what a request brings along, and the bound itself. */
static void test_of_a_longer_message(void **state)
{
    struct world world;
    struct end client;
    uint8_t bytes[4096] = {1};
    open_echo(&world, *state, &client);
    client.on_message = NULL;
    uint32_t most = client.connection->lanes[0].inline_max;
    assert_in_range(most, MESSAGE_HEADER_LENGTH + 8, sizeof(bytes));
    size_t lengths[] = {0, most - MESSAGE_HEADER_LENGTH, most - MESSAGE_HEADER_LENGTH + 1, 4096};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(weir_send(client.connection, bytes, lengths[i], NULL, NULL), WEIR_OK);
        world_run_until_count(&world, &client.received, i + 1);
        assert_int_equal(client.last_length, lengths[i]);
    }
    assert_int_equal(sends, 8);
    assert_int_equal(sends_inline, 4);
    world_close_pair(&world, &client);
}

/* A window so small that each receive counts: nobody stands still for want of credit. */
static void test_of_small_windows(void **state)
{
    for (unsigned window = 1; window <= 20; window++) {
        struct weir_channel_options options = *(struct weir_channel_options *)*state;
        struct world world;
        struct end client;
        options.eager_buffers = window;
        open_echo(&world, &options, &client);
        client.on_message = NULL;
        world.servers[0].on_message = NULL;
        for (uint64_t i = 0; i < 100; i++) {
            assert_int_equal(weir_send(client.connection, &i, sizeof(i), NULL, NULL), WEIR_OK);
        }
        world_run_until_count(&world, &world.servers[0].received, 100);
        world_close_pair(&world, &client);
    }
}

#define LONG 9000 /* read by the receiver, in its own time */

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What each of so many messages costs its receiver, that wait behind one that is being read. */
static double cost_behind_a_long_one(const struct weir_channel_options *kind, unsigned count)
{
    struct weir_channel_options options = *kind;
    struct world world;
    struct end client = {0};
    static uint8_t bytes[LONG]; /* of all: who sends keeps them until they have left */
    options.eager_buffers = count + 1;
    options.silence_timeout_ms = PATIENCE_MS;
    world_open_pair(&world, &options, &client, true);
    assert_int_equal(weir_send(client.connection, bytes, LONG, end_done, &client), WEIR_OK);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(weir_send(client.connection, bytes, 4, end_done, &client), WEIR_OK);
    }
    /* All have arrived before the server sees the first, but the long one's answer comes then. */
    while (client.connection->sender.waiting != NULL ||
           client.connection->statistics.messages_sent < count + 1) {
        assert_true(weir_poll(world.client_poller, 1) >= 0);
    }
    uint64_t until_ns = clock_now_ns() + 20000000;
    while (clock_now_ns() < until_ns) {
        assert_true(weir_poll(world.client_poller, 1) >= 0);
    }
    uint64_t began_ns = cpu_ns();
    while (world.servers[0].received < count + 1) {
        assert_true(weir_poll(world.server_poller, 0) >= 0);
    }
    double cost_ns = (double)(cpu_ns() - began_ns) / count;
    world_run_until_done(&world, &client.done, count + 1);
    world_close_pair(&world, &client);
    return cost_ns;
}

static void test_of_a_line_behind_a_long_message(void **state)
{
    double few_ns = cost_behind_a_long_one(*state, 500);
    double many_ns = cost_behind_a_long_one(*state, 16000);
    print_message("%.0f ns behind one of 500, %.0f of 16000\n", few_ns, many_ns);
    assert_true(many_ns < 8 * few_ns);
}

/* Not every device has room for data in its requests, or says how much it took. */
static bool is_asked_for_inline(struct ibv_qp_init_attr *attributes)
{
    bool is_asked = attributes->cap.max_inline_data > 0;
    errno = is_asked ? EINVAL : errno;
    return is_asked;
}

static struct ibv_qp *make_without_inline(struct ibv_pd *domain,
                                          struct ibv_qp_init_attr *attributes)
{
    return is_asked_for_inline(attributes) ? NULL : verbs.create_qp(domain, attributes);
}

static int make_without_inline_by_cm(struct rdma_cm_id *id, struct ibv_pd *domain,
                                     struct ibv_qp_init_attr *attributes)
{
    return is_asked_for_inline(attributes) ? -1 : verbs.cm_create_qp(id, domain, attributes);
}

static void test_without_inline(void **state)
{
    struct world world;
    struct end client;
    world_fabric()->library.verbs.create_qp = make_without_inline;
    world_fabric()->library.verbs.cm_create_qp = make_without_inline_by_cm;
    open_echo(&world, *state, &client);
    ping_pong(&world, &client);
    assert_int_equal(sends_inline, 0);
    world_close_pair(&world, &client);
}

/* Who has its own event loop asks for the descriptor when it is about to sleep for the first time:
 * what came before that, to nobody who is woken, is not slept on. */
/* Many regions that one connection uses; and one region that many use. */
static void test_of_the_region_among_many(void **state)
{
    static struct weir_memory *memory[40000];
    static char bytes[40000];
    struct world world;
    struct end client = {0};
    struct timespec begun, ended;
    struct domain *other;
    uint32_t key, first;
    world_open_pair(&world, *state, &client, false);
    struct domain *domain = client.connection->domain;
    for (unsigned i = 0; i < 40000; i++) {
        assert_int_equal(
            weir_memory_register(world.fabric, &bytes[i], 1, WEIR_LOCAL, &memory[i], NULL),
            WEIR_OK);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    for (unsigned i = 0; i < 40000; i++) {
        assert_int_equal(memory_key_in(memory[i], domain, &first), WEIR_OK);
        assert_int_equal(memory_key_in(memory[i], domain, &key), WEIR_OK);
        assert_int_equal(key, first);
        assert_int_equal(memory_key_in(memory[i / 2], domain, &key), WEIR_OK);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    assert_true(ended.tv_sec - begun.tv_sec < 3); /* a second at most, whatever it runs under */
    assert_int_equal(domain_create(world.fabric, &other, NULL), WEIR_OK);
    assert_int_equal(memory_key_in(memory[7], other, &key), WEIR_OK);
    assert_int_equal(memory_key_in(memory[7], domain, &first), WEIR_OK);
    assert_int_not_equal(key, first);
    domain_forget_shares(other);
    domain_release(other);
    for (unsigned i = 0; i < 40000; i++) {
        weir_memory_deregister(memory[i]);
    }
    world_close_pair(&world, &client);
}

static void test_descriptor_is_asked_for_late(void **state)
{
    struct world world;
    struct end client;
    open_echo(&world, *state, &client);
    uint64_t began_ns = clock_now_ns(), value = ROUNDS + 1;
    ping_pong(&world, &client);
    while (clock_now_ns() - began_ns < LOOKED_NS) { /* what was armed while opening is over */
        assert_int_equal(weir_poll(world.client_poller, 0), 0);
    }
    assert_int_equal(weir_send(client.connection, &value, sizeof(value), NULL, NULL), WEIR_OK);
    while (world.servers[0].received < value) {
        assert_true(weir_poll(world.server_poller, 0) >= 0);
    }
    assert_int_equal(arms, 0);
    struct pollfd wait = {.events = POLLIN};
    while (client.received < value) {
        wait.fd = weir_poller_fd(world.client_poller);
        assert_int_equal(poll(&wait, 1, PATIENCE_MS), 1);
        while (weir_poll(world.client_poller, 0) > 0) {
        }
    }
    assert_true(arms > 0);
    world_close_pair(&world, &client);
}

#define EACH(options)                                                                              \
    {"of a small message (" #options ")", test_of_a_small_message, begin, end, &world_##options},  \
        {"of a longer message (" #options ")", test_of_a_longer_message, begin, end,               \
         &world_##options},                                                                        \
        {"of small windows (" #options ")", test_of_small_windows, begin, end, &world_##options},  \
        {"of a line behind a long message (" #options ")", test_of_a_line_behind_a_long_message,   \
         begin, end, &world_##options},                                                            \
        {"without inline (" #options ")", test_without_inline, begin, end, &world_##options},      \
    {                                                                                              \
        "descriptor asked for late (" #options ")", test_descriptor_is_asked_for_late, begin, end, \
            &world_##options                                                                       \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        EACH(cm),
        EACH(tcp),
        {"of the region among many", test_of_the_region_among_many, NULL, NULL, &world_tcp},
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
