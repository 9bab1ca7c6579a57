/* Random loss, repetition and reordering, many seeds, in two kinds of run.
 *
 * Unfriendly, with random answers and ends. However it goes: every run ends; nothing leaks; each
 * connection's events come in an order that its life allows and it learns its end once; and who is
 * established on the passive side has a peer that was. Friendly, with little loss and many tries:
 * all are established, each once, and who disconnects learns the end of it.
 *
 * A seed that fails is printed and can be given as the argument. */
#include "rnic/cm/cm_world_test.h"

#define SEEDS       3000
#define CONNECTIONS 4
#define ENDS_MAX    256

/* One side of a connection, from its first event to its last. */
struct end {
    struct cm_connection *connection;
    int host;
    uint32_t qpn, peer_qpn;
    bool live;        /* not released yet */
    bool established; /* it has been */
    bool ended;       /* rejected, unreachable or disconnected */
};

struct swarm {
    struct world *world;
    bool friendly;
    struct end ends[ENDS_MAX];
    int end_count;
    uint32_t next_qpn;
};

static struct end *add_end(struct swarm *swarm, int host, struct cm_connection *connection)
{
    assert_true(swarm->end_count < ENDS_MAX);
    struct end *end = &swarm->ends[swarm->end_count++];
    *end = (struct end){.connection = connection, .host = host, .live = true};
    return end;
}

static struct end *find_end(struct swarm *swarm, const struct cm_connection *connection)
{
    for (int i = 0; i < swarm->end_count; i++) {
        if (swarm->ends[i].live && swarm->ends[i].connection == connection) {
            return &swarm->ends[i];
        }
    }
    fail_msg("an event of a connection that nobody knows");
    return NULL;
}

static bool chance(struct swarm *swarm, unsigned percent)
{
    return !swarm->friendly && random_below(&swarm->world->random, 100) < percent;
}

static void release(struct swarm *swarm, struct end *end)
{
    end->live = false;
    cm_release(end->connection, world_now(swarm->world));
}

static void take_request(struct swarm *swarm, struct host *host)
{
    struct end *end = add_end(swarm, host->device.index, host->connection);
    end->peer_qpn = host->event.parameters.qpn.value;
    struct instant now = world_now(swarm->world);
    if (chance(swarm, 10)) {
        assert_int_equal(cm_delay(end->connection, now, 20), STATUS_OK);
    }
    if (chance(swarm, 10)) {
        assert_int_equal(cm_reject(end->connection, now, 28, "x", 1), STATUS_OK);
        end->ended = true;
        return;
    }
    end->qpn = swarm->next_qpn++;
    struct cm_parameters parameters = {.qpn = {end->qpn}, .private_length = 10};
    assert_int_equal(cm_accept(end->connection, now, &parameters), STATUS_OK);
}

static void take_reply(struct swarm *swarm, struct end *end, const struct cm_event *event)
{
    assert_false(end->established || end->ended);
    struct instant now = world_now(swarm->world);
    end->peer_qpn = event->parameters.qpn.value;
    if (chance(swarm, 10)) {
        assert_int_equal(cm_reject(end->connection, now, 28, NULL, 0), STATUS_OK);
        end->ended = true;
    } else {
        assert_int_equal(cm_confirm(end->connection, now), STATUS_OK);
        end->established = true;
    }
}

/* Who is established has a peer that was when it said so. */
static void check_peer(struct swarm *swarm, const struct end *end)
{
    for (int i = 0; i < swarm->end_count; i++) {
        const struct end *peer = &swarm->ends[i];
        if (peer->host != end->host && peer->qpn == end->peer_qpn && peer->peer_qpn == end->qpn) {
            assert_true(peer->established);
            return;
        }
    }
    fail_msg("established with nobody");
}

static void on_event(struct world *world, struct host *host)
{
    struct swarm *swarm = world->context;
    if (host->event.kind == CM_EVENT_REQUEST) {
        take_request(swarm, host);
        return;
    }
    struct end *end = find_end(swarm, host->connection);
    switch (host->event.kind) {
    case CM_EVENT_REPLY:
        take_reply(swarm, end, &host->event);
        break;
    case CM_EVENT_ESTABLISHED:
        assert_false(end->established || end->ended);
        end->established = true;
        check_peer(swarm, end);
        break;
    case CM_EVENT_REJECTED:
    case CM_EVENT_UNREACHABLE:
        assert_false(end->established || end->ended);
        end->ended = true;
        break;
    case CM_EVENT_DISCONNECTED:
        assert_false(end->ended);
        end->ended = true;
        break;
    case CM_EVENT_TIME_WAIT_OVER:
        assert_true(end->ended);
        break;
    case CM_EVENT_REQUEST:
        break;
    case CM_EVENT_SERVICE_REQUEST:
    case CM_EVENT_SERVICE_REPLY:
        fail_msg("nobody asked for a service");
    }
    if (end->ended && chance(swarm, 50)) {
        release(swarm, end);
    }
}

static void connect_all(struct swarm *swarm)
{
    struct world *world = swarm->world;
    for (int i = 0; i < CONNECTIONS; i++) {
        struct cm_connect_request request = world_request(swarm->next_qpn);
        request.max_retries = swarm->friendly ? 15 : (uint8_t)(1 + random_below(&world->random, 5));
        struct cm_connection *connection;
        if (cm_connect(world->hosts[0].cm, world_now(world), &request, &connection) == STATUS_OK) {
            add_end(swarm, 0, connection)->qpn = swarm->next_qpn++;
        }
        world_run(world, world->now_ns / MILLISECOND + random_below(&world->random, 1000));
    }
}

/* Disconnects or releases some, at random moments, in whatever state. */
static void disturb(struct swarm *swarm)
{
    struct world *world = swarm->world;
    for (int i = 0; i < 20; i++) {
        world_run(world, world->now_ns / MILLISECOND + random_below(&world->random, 1500));
        struct end *end = &swarm->ends[random_below(&world->random, (uint64_t)swarm->end_count)];
        if (!end->live) {
            continue;
        }
        if (chance(swarm, 20)) {
            release(swarm, end);
        } else if (end->established) {
            enum status status = cm_disconnect(end->connection, world_now(world));
            assert_true(status == STATUS_OK || status == STATUS_STATE);
        }
    }
}

static void release_all(struct swarm *swarm)
{
    for (int i = 0; i < swarm->end_count; i++) {
        if (swarm->ends[i].live) {
            release(swarm, &swarm->ends[i]);
        }
    }
    world_run(swarm->world, FOREVER);
}

static void run_unfriendly(struct swarm *swarm)
{
    struct world *world = swarm->world;
    world->lose_percent = (unsigned)random_below(&world->random, 60);
    connect_all(swarm);
    disturb(swarm);
    world_run(world, FOREVER);
    for (int i = 0; i < swarm->end_count; i++) {
        const struct end *end = &swarm->ends[i];
        assert_true(!end->live || end->established || end->ended);
    }
    release_all(swarm);
    release_all(swarm); /* late duplicates of requests may have come up meanwhile */
}

static void run_friendly(struct swarm *swarm)
{
    struct world *world = swarm->world;
    world->lose_percent = (unsigned)random_below(&world->random, 20);
    connect_all(swarm);
    world_run(world, FOREVER);
    assert_int_equal(swarm->end_count, 2 * CONNECTIONS);
    for (int i = 0; i < swarm->end_count; i++) {
        assert_true(swarm->ends[i].established && !swarm->ends[i].ended);
    }
    for (int i = 0; i < swarm->end_count; i += 2) {
        struct end *end = &swarm->ends[i];
        assert_int_equal(cm_disconnect(end->connection, world_now(world)), STATUS_OK);
    }
    world_run(world, FOREVER);
    for (int i = 0; i < swarm->end_count; i += 2) {
        assert_true(swarm->ends[i].ended);
    }
    release_all(swarm);
}

static void run(uint64_t seed)
{
    struct swarm swarm = {
        .world = world_create(seed, 12), .next_qpn = 100, .friendly = seed % 2 == 0};
    struct world *world = swarm.world;
    world->on_event = on_event;
    world->context = &swarm;
    world->repeat_percent = (unsigned)random_below(&world->random, 40);
    world->jitter_ns = random_below(&world->random, 2) == 0 ? 0 : 3000 * MILLISECOND;
    world_listen(world, swarm.friendly ? 0 : 3);
    if (swarm.friendly) {
        run_friendly(&swarm);
    } else {
        run_unfriendly(&swarm);
    }
    assert_int_equal(cm_connection_count(world->hosts[0].cm), 0);
    assert_int_equal(cm_connection_count(world->hosts[1].cm), 0);
    world_destroy(world);
}

static uint64_t current_seed;

static void every_run_ends_well(void **state)
{
    const uint64_t *only = *state;
    uint64_t first = only == NULL ? 0 : *only;
    uint64_t last = only == NULL ? SEEDS : *only + 1;
    for (current_seed = first; current_seed < last; current_seed++) {
        run(current_seed);
    }
}

int main(int count, char **arguments)
{
    uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_run_ends_well, count > 1 ? &seed : NULL),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed != 0) {
        fprintf(stderr, "seed=%llu\n", (unsigned long long)current_seed);
    }
    return failed;
}
