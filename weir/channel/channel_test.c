/* Channels end to end, in one process, over the fabric at hand and both bootstraps: what messages,
 * puts and gets promise. Not here: how connections begin and end (life_test.c, ending_test.c). */
#include "weir/channel/world_test.h"

#include <stdlib.h>
#include <string.h>

#include "weir/channel/connection.h"

static uint8_t byte_at(size_t position, unsigned seed)
{
    return (uint8_t)(position * 7 + (position >> 8) * 13 + (position >> 16) + seed);
}

static void fill(uint8_t *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = byte_at(i, seed);
    }
}

static bool is_filled(const uint8_t *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != byte_at(i, seed)) {
            return false;
        }
    }
    return true;
}

/* --- messages --- */

#ifdef __SANITIZE_THREAD__
#define LONGEST (6 << 20) /* it looks for races, and looks at each byte */
#else
#define LONGEST (64 << 20)
#endif

static const size_t sizes[] = {0,    1,    63,     4096,          8191,   8192,
                               8193, 9000, 100000, (1 << 20) + 1, LONGEST};
#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))

static void check_size(struct end *end, const uint8_t *bytes, size_t length)
{
    unsigned index = (unsigned)(end->received - 1) % SIZE_COUNT;
    assert_int_equal(length, sizes[index]);
    assert_true(is_filled(bytes, length, index));
}

static void test_messages_of_all_sizes(void **state)
{
    struct world world;
    struct end client = {.on_message = check_size};
    world_open_pair(&world, *state, &client, false);
    struct end *server = &world.servers[0];
    server->on_message = check_size;
    uint8_t *bytes[SIZE_COUNT];
    for (unsigned i = 0; i < SIZE_COUNT; i++) {
        bytes[i] = malloc(sizes[i] + 1);
        fill(bytes[i], sizes[i], i);
        assert_int_equal(weir_send(client.connection, bytes[i], sizes[i], end_done, &client),
                         WEIR_OK);
        assert_int_equal(weir_send(server->connection, bytes[i], sizes[i], end_done, server),
                         WEIR_OK);
    }
    world_run_until_count(&world, &server->received, SIZE_COUNT);
    world_run_until_count(&world, &client.received, SIZE_COUNT);
    world_run_until_done(&world, &client.done, SIZE_COUNT);
    world_run_until_done(&world, &server->done, SIZE_COUNT);
    assert_int_equal(client.done_bad + server->done_bad, 0);
    /* The same once more, with bytes that may go at once. */
    for (unsigned i = 0; i < SIZE_COUNT; i++) {
        assert_int_equal(weir_send(client.connection, bytes[i], sizes[i], NULL, NULL), WEIR_OK);
        memset(bytes[i], 0xee, sizes[i]);
        free(bytes[i]);
    }
    world_run_until_count(&world, &server->received, 2 * SIZE_COUNT);
    struct weir_connection_statistics statistics;
    weir_connection_statistics(client.connection, &statistics);
    assert_int_equal(statistics.messages_sent, 2 * SIZE_COUNT);
    assert_int_equal(statistics.bytes_sent, server->received_bytes);
    uint64_t again;
    bool is_soft = weir_fabric_kind(world.fabric) == WEIR_FABRIC_SOFT;
    bool is_told = weir_fabric_retransmissions(world.fabric, &again);
    assert_true(is_told || !is_soft);
    if (is_soft && getenv("WEIR_FAULT") != NULL) { /* what was lost came again, and was counted */
        assert_true(again > 0);
    }
    world_close_pair(&world, &client);
}

static void test_pieces_are_joined(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, false);
    uint8_t bytes[20000];
    fill(bytes, sizeof(bytes), 0);
    struct weir_piece pieces[7];
    size_t at = 0;
    for (unsigned i = 0; i < 7; i++) {
        size_t length = i == 3 ? 0 : i == 6 ? sizeof(bytes) - at : 1000 * i + 1;
        pieces[i] = (struct weir_piece){bytes + at, length};
        at += length;
    }
    assert_int_equal(weir_send_pieces(client.connection, pieces, 7, end_done, &client), WEIR_OK);
    assert_int_equal(weir_send_pieces(client.connection, pieces, 3, NULL, NULL), WEIR_OK);
    assert_int_equal(weir_send_pieces(client.connection, NULL, 0, NULL, NULL), WEIR_OK);
    assert_int_equal(weir_send(client.connection, NULL, 1, NULL, NULL), WEIR_INVALID);
    memset(pieces, 0, sizeof(pieces));
    world_run_until_count(&world, &world.servers[0].received, 3);
    assert_int_equal(world.servers[0].received_bytes, sizeof(bytes) + 1 + 1001 + 2001);
    world_close_pair(&world, &client);
}

#define FLOOD 10000

static void check_number(struct end *end, const uint8_t *bytes, size_t length)
{
    uint32_t number;
    assert_true(length >= sizeof(number));
    memcpy(&number, bytes, sizeof(number));
    assert_int_equal(number, end->received - 1);
}

/* All are sent before the receiver reads one. */
static void test_flood_keeps_order(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, true);
    struct end *server = &world.servers[0];
    server->on_message = check_number;
    uint8_t bytes[20000] = {0};
    for (uint32_t i = 0; i < FLOOD; i++) {
        memcpy(bytes, &i, sizeof(i));
        size_t length = i % 1000 == 999 ? sizeof(bytes) : 4 + i % 61;
        weir_done_callback *done = i % 7 == 0 ? end_done : NULL;
        static uint8_t kept[FLOOD / 7 + 1][64];
        const uint8_t *from = bytes;
        if (done != NULL && length <= 64) {
            from = memcpy(kept[i / 7], bytes, length);
        } else {
            done = NULL;
        }
        assert_int_equal(weir_send(client.connection, from, length, done, &client), WEIR_OK);
    }
    for (int i = 0; i < 20; i++) {
        assert_true(weir_poll(world.client_poller, 0) >= 0);
    }
    assert_int_equal(server->received, 0);
    world_run_until_count(&world, &server->received, FLOOD);
    struct weir_connection_statistics statistics;
    weir_connection_statistics(client.connection, &statistics);
    assert_true(statistics.waits_for_credit > 0);
    assert_int_equal(client.done_bad, 0);
    assert_in_range(client.connection->sender.spares.count, 1, OUTGOING_SPARES_MAX);
    world_close_pair(&world, &client);
}

static void test_one_buffer_is_enough(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.eager_buffers = 1;
    struct world world;
    struct end client = {0};
    world_open_pair(&world, &options, &client, false);
    struct end *server = &world.servers[0];
    server->on_message = check_number;
    client.on_message = check_number;
    for (uint32_t i = 0; i < 200; i++) {
        uint8_t bytes[9000] = {0};
        memcpy(bytes, &i, sizeof(i));
        size_t length = i % 10 == 3 ? sizeof(bytes) : 5;
        assert_int_equal(weir_send(client.connection, bytes, length, NULL, NULL), WEIR_OK);
        assert_int_equal(weir_send(server->connection, bytes, length, NULL, NULL), WEIR_OK);
    }
    world_run_until_count(&world, &server->received, 200);
    world_run_until_count(&world, &client.received, 200);
    world_close_pair(&world, &client);
}

static void test_too_long_is_refused(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.message_length_max = 100000;
    struct world world;
    struct end client = {0};
    world_open_pair(&world, &options, &client, false);
    static uint8_t bytes[100001];
    assert_int_equal(weir_send(client.connection, bytes, 100001, NULL, NULL), WEIR_TOO_LONG);
    assert_int_equal(weir_send(client.connection, bytes, 100000, NULL, NULL), WEIR_OK);
    world_run_until_count(&world, &world.servers[0].received, 1);
    world_close_pair(&world, &client);
}

/* Short enough to go through a buffer, and sent before it is known what the peer takes. */
static void test_short_and_yet_too_long(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.message_length_max = 1000;
    struct world world;
    struct end client = {0};
    world_open(&world, &options, 1, false);
    world_connect(&world, &client);
    static const uint8_t bytes[1001];
    assert_int_equal(weir_send(client.connection, bytes, 1000, NULL, NULL), WEIR_OK);
    assert_int_equal(weir_send(client.connection, bytes, 1001, end_done, &client), WEIR_OK);
    world_run_until(&world, &client.is_closed);
    assert_int_equal(client.reason.status, WEIR_TOO_LONG);
    assert_int_equal(client.done_bad, 1);
    world_run_until(&world, &world.servers[0].is_closed);
    assert_true(world.servers[0].received_bytes <= 1000); /* the end may come before it is open */
    world_close(&world);
}

/* --- puts and gets --- */

#define AREA ((size_t)5 << 20)

static void test_put_and_get(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, false);
    static const size_t lengths[] = {0, 1, 1000, 300000, AREA - 8};
    /* One for each, for a READ that is repeated may look there once more when it is done. */
    struct weir_memory *here, *theirs[5];
    struct weir_error error;
    assert_int_equal(weir_memory_allocate(world.fabric, AREA, WEIR_LOCAL, &here, &error), WEIR_OK);
    uint8_t *from = weir_memory_bytes(here);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(weir_memory_allocate_for(world.servers[0].connection, AREA,
                                                  WEIR_REMOTE_WRITE | WEIR_REMOTE_READ, &theirs[i],
                                                  &error),
                         WEIR_OK);
        uint8_t *to = weir_memory_bytes(theirs[i]);
        struct weir_transfer transfer = {.memory = here,
                                         .offset = 3,
                                         .length = lengths[i],
                                         .remote = weir_memory_remote(theirs[i]),
                                         .remote_offset = 5};
        memset(to, 0, AREA);
        fill(from, AREA, i);
        client.done = 0;
        assert_int_equal(weir_put(client.connection, &transfer, end_done, &client), WEIR_OK);
        world_run_until_done(&world, &client.done, 1);
        assert_memory_equal(to + 5, from + 3, lengths[i]);
        assert_int_equal(to[4], 0);
        assert_int_equal(to[5 + lengths[i]], 0);
        memset(from, 0, AREA);
        assert_int_equal(weir_get(client.connection, &transfer, end_done, &client), WEIR_OK);
        world_run_until_done(&world, &client.done, 2);
        assert_memory_equal(to + 5, from + 3, lengths[i]);
        assert_int_equal(from[2], 0);
        assert_int_equal(from[3 + lengths[i]], 0);
    }
    assert_int_equal(client.done_bad, 0);
    struct weir_transfer over = {.memory = here, .offset = 1, .length = AREA};
    over.remote = weir_memory_remote(theirs[0]);
    assert_int_equal(weir_put(client.connection, &over, NULL, NULL), WEIR_INVALID);
    world_close_pair(&world, &client);
    weir_memory_deregister(here);
    for (unsigned i = 0; i < 5; i++) {
        weir_memory_deregister(theirs[i]);
    }
}

/* A put's notice that waits for its data waits for no credit. */
static void test_wait_for_data_is_none_for_credit(void **state)
{
    struct world world;
    struct end client = {0};
    struct weir_memory *here, *there;
    struct weir_connection_statistics statistics;
    world_open_pair(&world, *state, &client, true);
    assert_int_equal(weir_memory_allocate(world.fabric, AREA, WEIR_LOCAL, &here, NULL), WEIR_OK);
    assert_int_equal(weir_memory_allocate_for(world.servers[0].connection, AREA, WEIR_REMOTE_WRITE,
                                              &there, NULL),
                     WEIR_OK);
    struct weir_transfer transfer = {
        .memory = here, .length = AREA, .remote = weir_memory_remote(there), .has_notice = true};
    assert_int_equal(weir_put(client.connection, &transfer, NULL, NULL), WEIR_OK);
    world_run_until_count(&world, &world.servers[0].noticed, 1);
    weir_connection_statistics(client.connection, &statistics);
    assert_int_equal(statistics.waits_for_credit, 0);
    world_close_pair(&world, &client);
    weir_memory_deregister(here);
    weir_memory_deregister(there);
}

/* What is no bootstrap and no right is refused, not taken for another. */
static void test_wrong_words(void **state)
{
    struct world world;
    struct end client = {0};
    struct weir_listener *listener;
    struct weir_memory *memory;
    struct weir_error error;
    struct weir_channel_options options = {.bootstrap = (enum weir_bootstrap)2};
    world_open_pair(&world, *state, &client, false);
    assert_int_equal(weir_listen(world.server_poller, "127.0.0.1:0", &options, world_accepted, NULL,
                                 &listener, &error),
                     WEIR_INVALID);
    assert_non_null(strstr(error.message, "bootstrap"));
    options = (struct weir_channel_options){.eager_length = 63};
    assert_int_equal(weir_listen(world.server_poller, "127.0.0.1:0", &options, world_accepted, NULL,
                                 &listener, &error),
                     WEIR_INVALID);
    assert_string_equal(error.message,
                        "the channel option eager_length is 63, and may be 64 to 16777216");
    assert_int_equal(weir_memory_allocate_for(client.connection, AREA, 4, &memory, &error),
                     WEIR_INVALID);
    world_close_pair(&world, &client);
}

/* Event i is a message or a notice; each is checked to come in its place, with its bytes. */
#define EVENTS      300
#define EVENT_BYTES ((size_t)64 << 10)

struct order {
    unsigned next;
    uint8_t *area;
};

static size_t event_length(unsigned i)
{
    return i % 50 == 7 ? EVENT_BYTES * 20 : i % 3 == 1 ? EVENT_BYTES : i;
}

static void message_in_order(struct end *end, const uint8_t *bytes, size_t length)
{
    struct order *order = end->test;
    uint32_t number;
    memcpy(&number, bytes, sizeof(number));
    assert_int_equal(number, order->next);
    order->next++;
}

static void notice_in_order(struct end *end, uint32_t notice, size_t length)
{
    struct order *order = end->test;
    assert_int_equal(notice, order->next);
    assert_int_equal(length, event_length(notice));
    assert_true(is_filled(order->area, length, notice));
    order->next++;
}

static void test_notices_keep_their_place(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, false);
    struct end *server = &world.servers[0];
    struct weir_memory *here, *there;
    struct weir_error error;
    assert_int_equal(
        weir_memory_allocate(world.fabric, EVENT_BYTES * 20, WEIR_LOCAL, &here, &error), WEIR_OK);
    assert_int_equal(weir_memory_allocate_for(world.servers[0].connection, EVENT_BYTES * 20,
                                              WEIR_REMOTE_WRITE, &there, &error),
                     WEIR_OK);
    struct order order = {.area = weir_memory_bytes(there)};
    server->on_message = message_in_order;
    server->on_notice = notice_in_order;
    server->test = &order;
    for (uint32_t i = 0; i < EVENTS; i++) {
        if (i % 2 == 1) {
            size_t length = event_length(i);
            fill(weir_memory_bytes(here), length, i);
            struct weir_transfer transfer = {.memory = here,
                                             .length = length,
                                             .remote = weir_memory_remote(there),
                                             .has_notice = true,
                                             .notice = i};
            client.done = 0;
            assert_int_equal(weir_put(client.connection, &transfer, end_done, &client), WEIR_OK);
            /* Messages overtake nothing, not even while the put is under way. */
            i++;
            uint8_t message[10000] = {0};
            memcpy(message, &i, sizeof(i));
            assert_int_equal(
                weir_send(client.connection, message, i % 4 == 0 ? sizeof(message) : 4, NULL, NULL),
                WEIR_OK);
            world_run_until_done(&world, &client.done, 1);
            uint64_t wanted = i + 1;
            while (order.next < wanted) {
                world_poll(&world);
            }
        } else {
            assert_int_equal(weir_send(client.connection, &i, sizeof(i), NULL, NULL), WEIR_OK);
        }
    }
    assert_int_equal(client.done_bad, 0);
    world_close_pair(&world, &client);
    weir_memory_deregister(here);
    weir_memory_deregister(there);
}

static void test_many_puts_with_notice(void **state)
{
    struct world world;
    struct end client = {0};
    world_open_pair(&world, *state, &client, true);
    struct weir_memory *here, *there;
    struct weir_error error;
    assert_int_equal(weir_memory_allocate(world.fabric, 1 << 20, WEIR_LOCAL, &here, &error),
                     WEIR_OK);
    assert_int_equal(weir_memory_allocate_for(world.servers[0].connection, 1 << 20,
                                              WEIR_REMOTE_WRITE, &there, &error),
                     WEIR_OK);
    fill(weir_memory_bytes(here), 1 << 20, 9);
    for (uint32_t i = 0; i < 1000; i++) {
        struct weir_transfer transfer = {.memory = here,
                                         .offset = i * 1000,
                                         .length = 1000,
                                         .remote = weir_memory_remote(there),
                                         .remote_offset = i * 1000,
                                         .has_notice = true,
                                         .notice = i};
        weir_done_callback *done = i % 2 == 0 ? end_done : NULL;
        assert_int_equal(weir_put(client.connection, &transfer, done, &client), WEIR_OK);
    }
    world_run_until_count(&world, &world.servers[0].noticed, 1000);
    world_run_until_done(&world, &client.done, 500);
    assert_int_equal(world.servers[0].last_notice, 999);
    assert_true(is_filled(weir_memory_bytes(there), 1000000, 9));
    world_close_pair(&world, &client);
    weir_memory_deregister(here);
    weir_memory_deregister(there);
}

/* Puts with notice, other transfers and what is read of long messages share the places of one queue
 * pair: whoever leaves one makes room for all of them. */
static void test_places_are_shared(void **state)
{
    struct weir_channel_options options = *(struct weir_channel_options *)*state;
    options.eager_buffers = 256; /* credit for more than there are places */
    struct world world;
    struct end client = {0}, late = {0};
    world_open_pair(&world, &options, &client, false);
    struct end *server = &world.servers[0];
    struct weir_memory *here, *there;
    struct weir_error error;
    assert_int_equal(weir_memory_allocate(world.fabric, AREA, WEIR_LOCAL, &here, &error), WEIR_OK);
    assert_int_equal(weir_memory_allocate_for(server->connection, AREA,
                                              WEIR_REMOTE_WRITE | WEIR_REMOTE_READ, &there, &error),
                     WEIR_OK);
    struct weir_transfer small = {
        .memory = here, .length = 8, .remote = weir_memory_remote(there), .has_notice = true};
    struct weir_transfer large = {
        .memory = here, .length = AREA, .remote = weir_memory_remote(there)};
    assert_int_equal(weir_put(client.connection, &large, NULL, NULL), WEIR_OK);
    assert_int_equal(weir_put(client.connection, &small, end_done, &client), WEIR_OK);
    world_run_until_done(&world, &client.done, 1);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(weir_put(client.connection, &small, NULL, NULL), WEIR_OK);
    }
    assert_int_equal(weir_get(client.connection, &large, end_done, &late), WEIR_OK);
    world_run_until_done(&world, &late.done, 1);
    world_run_until_count(&world, &server->noticed, 65);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(weir_put(client.connection, &small, NULL, NULL), WEIR_OK);
    }
    assert_int_equal(
        weir_send(server->connection, weir_memory_bytes(there), 100000, end_done, server), WEIR_OK);
    world_run_until_done(&world, &server->done, 1);
    assert_int_equal(client.received, 1);
    assert_int_equal(client.done_bad + late.done_bad + server->done_bad, 0);
    large.length = 8;
    assert_int_equal(weir_get(client.connection, &large, NULL, NULL), WEIR_OK);
    assert_int_equal(weir_get(client.connection, &large, end_done, &late), WEIR_OK);
    world_run_until_done(&world, &late.done, 2);
    struct weir_connection_statistics statistics = {0};
    for (unsigned i = 0; i < 10000 && statistics.bytes_got < AREA + 16; i++) {
        world_poll(&world); /* with lanes, the one that nobody is told of may come last */
        weir_connection_statistics(client.connection, &statistics);
    }
    assert_int_equal(statistics.bytes_got, AREA + 16);
    world_close_pair(&world, &client);
    weir_memory_deregister(here);
    weir_memory_deregister(there);
}

/* Memory of the fabric serves each connection, and may go before or after them; memory of one
 * connection serves no other. */
static void test_memory_of_several(void **state)
{
    struct world world;
    struct end clients[2] = {0};
    world_open(&world, *state, 2, false);
    struct weir_memory *shared, *passing, *there[2];
    struct weir_error error;
    assert_int_equal(weir_memory_allocate(world.fabric, 4096, WEIR_LOCAL, &shared, &error),
                     WEIR_OK);
    assert_int_equal(weir_memory_allocate(world.fabric, 4096, WEIR_LOCAL, &passing, &error),
                     WEIR_OK);
    fill(weir_memory_bytes(shared), 4096, 1);
    fill(weir_memory_bytes(passing), 4096, 2);
    for (unsigned i = 0; i < 2; i++) {
        world_connect(&world, &clients[i]);
        world_run_until(&world, &clients[i].is_open);
        world_run_until(&world, &world.servers[i].is_open);
        assert_int_equal(weir_memory_allocate_for(world.servers[i].connection, 4096,
                                                  WEIR_REMOTE_WRITE, &there[i], &error),
                         WEIR_OK);
    }
    for (unsigned i = 0; i < 4; i++) {
        struct end *client = &clients[i % 2];
        struct weir_transfer transfer = {.memory = i < 2 ? passing : shared,
                                         .length = 4096,
                                         .remote = weir_memory_remote(there[i % 2])};
        assert_int_equal(weir_put(client->connection, &transfer, end_done, client), WEIR_OK);
        world_run_until_done(&world, &client->done, i / 2 + 1);
        assert_true(is_filled(weir_memory_bytes(there[i % 2]), 4096, i < 2 ? 2 : 1));
    }
    weir_memory_deregister(passing);
    struct weir_transfer foreign = {
        .memory = there[0], .length = 8, .remote = weir_memory_remote(there[0])};
    assert_int_equal(weir_put(clients[0].connection, &foreign, NULL, NULL), WEIR_INVALID);
    weir_close(clients[1].connection);
    world_run_until(&world, &clients[1].is_closed);
    assert_int_equal(clients[0].done_bad + clients[1].done_bad, 0);
    world_close(&world);
    weir_memory_deregister(shared);
    weir_memory_deregister(there[0]);
    weir_memory_deregister(there[1]);
}

#define EACH(options)                                                                              \
    {"messages of all sizes (" #options ")", test_messages_of_all_sizes, NULL, NULL,               \
     &world_##options},                                                                            \
        {"pieces are joined (" #options ")", test_pieces_are_joined, NULL, NULL,                   \
         &world_##options},                                                                        \
        {"a flood keeps its order (" #options ")", test_flood_keeps_order, NULL, NULL,             \
         &world_##options},                                                                        \
        {"one buffer is enough (" #options ")", test_one_buffer_is_enough, NULL, NULL,             \
         &world_##options},                                                                        \
        {"too long is refused (" #options ")", test_too_long_is_refused, NULL, NULL,               \
         &world_##options},                                                                        \
        {"places are shared (" #options ")", test_places_are_shared, NULL, NULL,                   \
         &world_##options},                                                                        \
        {"short and yet too long (" #options ")", test_short_and_yet_too_long, NULL, NULL,         \
         &world_##options},                                                                        \
        {"memory of several (" #options ")", test_memory_of_several, NULL, NULL,                   \
         &world_##options},                                                                        \
        {"put and get (" #options ")", test_put_and_get, NULL, NULL, &world_##options},            \
        {"notices keep their place (" #options ")", test_notices_keep_their_place, NULL, NULL,     \
         &world_##options},                                                                        \
    {                                                                                              \
        "many puts with notice (" #options ")", test_many_puts_with_notice, NULL, NULL,            \
            &world_##options                                                                       \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        EACH(cm),
        EACH(cm_lanes),
        EACH(tcp),
        EACH(tcp_lanes),
        {"wait for data (cm)", test_wait_for_data_is_none_for_credit, NULL, NULL, &world_cm},
        {"wait for data (tcp_lanes)", test_wait_for_data_is_none_for_credit, NULL, NULL,
         &world_tcp_lanes},
        {"wrong words (cm)", test_wrong_words, NULL, NULL, &world_cm},
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
