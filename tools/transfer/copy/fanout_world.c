#include "tools/transfer/copy/fanout_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fanout_world *the_world; /* for the numbers that are not random */

static bool make_numbers(void *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        the_world->random = the_world->random * 1103515245u + 12345;
        ((uint8_t *)bytes)[i] = (uint8_t)(the_world->random >> 16);
    }
    return true;
}

static void note_problem(void *user, const struct problem *problem)
{
    char *problems = user;
    size_t length = strlen(problems);
    snprintf(problems + length, 1024 - length, "%s %s %s\n", problem->remote ? "there" : "here",
             problem->at_source ? "source" : "target", problem_code_name(problem->code));
}

static struct link *add_wire(struct fanout_world *world, struct node *client, struct node *server,
                             const struct session_service *service)
{
    if (world->wire_count == WIRES_MAX) {
        abort();
    }
    struct wire *wire = &world->wires[world->wire_count++];
    *wire = (struct wire){.pair = memory_pair_create(), .client = client, .server = server};
    wire->session = session_create_server(memory_pair_link(wire->pair, 1), service, &server->own);
    return memory_pair_link(wire->pair, 0);
}

static struct session_service service_of(struct node *node)
{
    return (struct session_service){.root = node->root, .device = "test0", .relays = &node->host};
}

/* One who connects to be let feed proves the secret of that name first. */
static struct link *dial(struct fanout_world *world, struct node *client,
                         const struct hop_target *target, unsigned address,
                         char ret_why[HOP_WHY_LENGTH])
{
    struct node *server = &world->nodes[target->addresses[address][0] - '0'];
    struct session_service service = service_of(server);
    hop_name(target->token.id, service.hop_name);
    const struct secret *secret =
        server->dead ? NULL : relay_secret(&server->host, service.hop_name);
    if (secret == NULL || server->deaf ||
        memcmp(secret, &target->token.secret, SECRET_LENGTH) != 0) {
        snprintf(ret_why, HOP_WHY_LENGTH, "no way");
        return NULL;
    }
    struct link *link = add_wire(world, client, server, &service);
    world->wires[world->wire_count - 1].to_feed = true;
    return link;
}

static struct link *dial_by_node(void *user, const struct hop_target *target, unsigned address,
                                 char ret_why[HOP_WHY_LENGTH])
{
    struct node *node = user;
    return dial(node->world, node, target, address, ret_why);
}

static struct link *dial_by_source(void *user, const struct hop_target *target, unsigned address,
                                   char ret_why[HOP_WHY_LENGTH])
{
    return dial(user, NULL, target, address, ret_why);
}

static void drop(void *user, struct link *link)
{
    link->events = &link_unheard;
    link->operations->abort(link, "not needed");
}

static struct link *connect_member(void *user, unsigned member, char ret_why[HOP_WHY_LENGTH])
{
    struct fanout_world *world = user;
    struct node *node = &world->nodes[member];
    struct session_service service = service_of(node);
    if (node->dead || node->unreachable) {
        snprintf(ret_why, HOP_WHY_LENGTH, "unreachable");
        return NULL;
    }
    service.refusal = node->refuses ? "not here" : NULL;
    return add_wire(world, NULL, node, &service);
}

static void locate(void *user, unsigned member, struct hop_target *target)
{
    target->address_count = 2; /* of which the first leads to the same */
    snprintf(target->addresses[0], HOP_ADDRESS_LENGTH, "%u", member);
    snprintf(target->addresses[1], HOP_ADDRESS_LENGTH, "%u", member);
}

static time_t clock_s(void *user)
{
    const struct fanout_world *world = user;
    return world->now_s;
}

int fanout_world_setup(void **state)
{
    struct fanout_world *world = calloc(1, sizeof(*world));
    world->scratch = scratch_create();
    scratch_directory(world->scratch, "here");
    for (unsigned i = 0; i < NODES_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), "root%u", i);
        scratch_directory(world->scratch, name);
        world->nodes[i].root = openat(world->scratch->fd, name, O_RDONLY | O_DIRECTORY);
    }
    world->report = (struct report){.problem = note_problem, .user = world->problems};
    the_world = world;
    *state = world;
    return 0;
}

static void end_node(struct fanout_world *world, struct node *node)
{
    for (unsigned i = 0; i < world->wire_count; i++) {
        struct wire *wire = &world->wires[i];
        if (wire->client == node) {
            memory_pair_link(wire->pair, 0)->events = &link_unheard;
            memory_pair_cut(wire->pair);
        } else if (wire->server == node && wire->session != NULL) {
            memory_pair_link(wire->pair, 1)->events = &link_unheard;
            memory_pair_cut(wire->pair);
        }
    }
    for (unsigned i = 0; i < world->wire_count; i++) {
        struct wire *wire = &world->wires[i];
        if (wire->server == node) {
            session_destroy(wire->session);
            wire->session = NULL;
        }
    }
}

static void end(struct fanout_world *world)
{
    for (unsigned i = 0; i < NODES_MAX; i++) {
        end_node(world, &world->nodes[i]);
    }
    session_destroy(world->client);
    fanout_destroy(world->fanout);
    for (unsigned i = 0; i < world->wire_count; i++) {
        memory_pair_destroy(world->wires[i].pair);
    }
    world->client = NULL;
    world->fanout = NULL;
    world->wire_count = 0;
    world->problems[0] = 0;
}

int fanout_world_teardown(void **state)
{
    struct fanout_world *world = *state;
    end(world);
    for (unsigned i = 0; i < NODES_MAX; i++) {
        close(world->nodes[i].root);
    }
    scratch_destroy(world->scratch);
    free(world);
    return 0;
}

static void begin_node(struct fanout_world *world, unsigned number)
{
    static const char *const names[NODES_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    struct node *node = &world->nodes[number];
    node->world = world;
    node->number = number;
    node->dead = node->frozen = false;
    node->problems[0] = 0;
    node->host = (struct relay_host){
        .dialer = {.dial = dial_by_node, .drop = drop, .user = node},
        .random = make_numbers,
        .guarded = true,
    };
    node->report = (struct report){.problem = note_problem, .user = node->problems};
    node->own = (struct report){.problem = note_problem, .user = world->problems};
    world->members[number] =
        (struct fanout_member){.name = names[number], .path = "/", .report = &node->report};
}

void fanout_world_begin(struct fanout_world *world, const char *source, unsigned count)
{
    end(world);
    world->count = count;
    world->next = 0;
    for (unsigned i = 0; i < NODES_MAX; i++) {
        begin_node(world, i);
    }
    const struct fanout_options options = {
        .members = world->members,
        .count = count,
        .connect = connect_member,
        .locate = locate,
        .clock_s = clock_s,
        .dialer = {.dial = dial_by_source, .drop = drop, .user = world},
    };
    snprintf(world->source, sizeof(world->source), "%s/here/%s", world->scratch->path, source);
    world->sources[0] = world->source;
    world->request.direction = DIRECTION_PUSH;
    world->request.sources = world->sources;
    world->request.source_count = 1;
    world->request.target_path = "/";
    world->fanout = fanout_create(&options);
    world->client =
        session_create_client(fanout_link(world->fanout), &world->request, &world->report);
}

/* One event of the wires in turn. */
static bool deliver(struct fanout_world *world)
{
    for (unsigned i = 0; i < world->wire_count; i++) {
        struct wire *wire = &world->wires[world->next++ % world->wire_count];
        bool mute = !wire->to_feed && wire->server->mute && wire->opened;
        if ((wire->to_feed && wire->server->lags) ||
            (mute && memory_pair_last_abort(wire->pair)[0] == 0)) {
            continue;
        }
        if (!wire->opened) {
            wire->opened = true;
            memory_pair_open(wire->pair);
            return true;
        }
        if (memory_pair_step(wire->pair)) {
            return true;
        }
    }
    return false;
}

bool fanout_world_step(struct fanout_world *world)
{
    bool more = false;
    fanout_pump(world->fanout);
    if (!session_is_closed(world->client)) {
        more = session_pump(world->client);
    }
    for (unsigned i = 0; i < world->wire_count; i++) {
        struct wire *wire = &world->wires[i];
        if (wire->server->frozen) {
            continue;
        }
        if (wire->session != NULL && session_is_closed(wire->session)) {
            session_destroy(wire->session);
            wire->session = NULL;
        } else if (wire->session != NULL) {
            more |= session_pump(wire->session);
        }
    }
    return deliver(world) || more;
}

unsigned fanout_world_run(struct fanout_world *world)
{
    unsigned steps = 0;
    for (unsigned idle = 0; idle < 3; steps++) { /* what a pump leaves is seen by the next */
        if (world->between != NULL) {
            world->between(world, steps);
        }
        idle = fanout_world_step(world) ? 0 : idle + 1;
    }
    return steps;
}

void fanout_world_wait(struct fanout_world *world, unsigned seconds)
{
    for (unsigned i = 0; i < seconds; i++) {
        world->now_s++;
        fanout_world_run(world);
    }
}

void fanout_world_kill(struct fanout_world *world, unsigned node)
{
    world->nodes[node].dead = true;
    end_node(world, &world->nodes[node]);
}

void fanout_world_freeze(struct fanout_world *world, unsigned node)
{
    world->nodes[node].frozen = true;
    for (unsigned i = 0; i < world->wire_count; i++) {
        const struct wire *wire = &world->wires[i];
        if (wire->client == &world->nodes[node] || wire->server == &world->nodes[node]) {
            bool serves = wire->server == &world->nodes[node];
            memory_pair_link(wire->pair, serves)->events = &link_unheard;
        }
    }
}

static struct wire *inlet_of(struct fanout_world *world, unsigned node)
{
    for (unsigned i = world->wire_count; i > 0; i--) {
        struct wire *wire = &world->wires[i - 1];
        if (wire->to_feed && wire->server == &world->nodes[node] && wire->session != NULL) {
            return wire;
        }
    }
    return NULL;
}

bool fanout_world_cut(struct fanout_world *world, unsigned node)
{
    struct wire *wire = inlet_of(world, node);
    if (wire != NULL) {
        memory_pair_cut(wire->pair);
    }
    return wire != NULL;
}

uint8_t *fanout_world_memory(struct fanout_world *world, unsigned node)
{
    struct wire *wire = inlet_of(world, node);
    return wire != NULL ? memory_pair_memory(wire->pair, 1) : NULL;
}

struct node *fanout_world_feeder(const struct fanout_world *world, unsigned node)
{
    for (unsigned i = world->wire_count; i > 0; i--) {
        const struct wire *wire = &world->wires[i - 1];
        if (wire->to_feed && wire->server == &world->nodes[node]) {
            return wire->client;
        }
    }
    abort();
}
