#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/choice/walk.h"
#include "tools/transfer/copy/session_world.h"
#include "tools/transfer/wire/digest.h"

static void note_problem(void *user, const struct problem *problem)
{
    char *problems = user;
    size_t length = strlen(problems);
    snprintf(problems + length, 2048 - length, "%s %s %s\n", problem->remote ? "there" : "here",
             problem->at_source ? "source" : "target", problem_code_name(problem->code));
}

int world_setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    world->scratch = scratch_create();
    scratch_directory(world->scratch, "here");
    scratch_directory(world->scratch, "root");
    world->root = openat(world->scratch->fd, "root", O_RDONLY | O_DIRECTORY);
    world->target.directory = -1;
    for (int i = 0; i < 2; i++) {
        world->reports[i] = (struct report){.problem = note_problem, .user = world->problems[i]};
    }
    *state = world;
    return 0;
}

static void world_end(struct world *world)
{
    session_destroy(world->client);
    session_destroy(world->server);
    target_close(&world->target);
    if (world->pair != NULL) {
        memory_pair_destroy(world->pair);
    }
    world->client = world->server = NULL;
    world->pair = NULL;
    memset(world->problems, 0, sizeof(world->problems));
}

int world_teardown(void **state)
{
    struct world *world = *state;
    world_end(world);
    close(world->root);
    scratch_destroy(world->scratch);
    free(world);
    return 0;
}

void world_connect(struct world *world, bool read_only)
{
    const struct session_service service = {
        .root = world->root, .read_only = read_only, .device = "test0"};
    world_end(world);
    world->pair = memory_pair_create();
    world->server =
        session_create_server(memory_pair_link(world->pair, 1), &service, &world->reports[1]);
    world->client = session_create_client(memory_pair_link(world->pair, 0), &world->request,
                                          &world->reports[0]);
    for (unsigned i = 0; i < 2; i++) {
        memory_pair_link(world->pair, i)->is_private = world->sealed;
    }
    if (world->goes_on_pumping) {
        memory_pair_go_on_pumping(world->pair);
    }
    memory_pair_open(world->pair);
}

bool world_step(struct world *world)
{
    bool more = session_pump(world->client);
    more |= session_pump(world->server);
    for (unsigned i = 0; i < world->crowd && memory_pair_step(world->pair); i++) {
        more = true;
    }
    return memory_pair_step(world->pair) || more;
}

static bool is_at_work(const struct world *world)
{
    bool closed = session_is_closed(world->client) && session_is_closed(world->server);
    return world->goes_on_pumping && !closed;
}

void world_run(struct world *world)
{
    for (unsigned i = 0; world_step(world) || is_at_work(world); i++) {
        if (world->between != NULL) {
            world->between(world, i);
        }
    }
}

void world_begin_push(struct world *world, const char *source, const char *target)
{
    snprintf(world->target_path, sizeof(world->target_path), "%s/here/%s", world->scratch->path,
             source);
    world->source = world->target_path;
    world->request.direction = DIRECTION_PUSH;
    world->request.sources = &world->source;
    world->request.source_count = 1;
    world->request.target_path = target;
    world_connect(world, false);
}

enum session_outcome world_push(struct world *world, const char *source, const char *target)
{
    world_begin_push(world, source, target);
    world_run(world);
    assert_true(session_is_closed(world->client) && session_is_closed(world->server));
    return session_outcome(world->client);
}

void world_begin_pull(struct world *world, const char *source, const char *target)
{
    char text[TEXT_LENGTH_MAX];
    world_end(world);
    snprintf(world->target_path, sizeof(world->target_path), "%s/here/%s", world->scratch->path,
             target);
    char named[256];
    assert_true(walk_base_name(source, named));
    const struct target_request where = {.root = AT_FDCWD,
                                         .path = world->target_path,
                                         .source_count = 1,
                                         .named = named,
                                         .wishes = world->request.wishes.bits};
    world->source = source;
    world->request.direction = DIRECTION_PULL;
    world->request.sources = &world->source;
    world->request.source_count = 1;
    world->request.target = &world->target;
    world_connect(world, false);
    assert_int_equal(target_open(&where, &world->target, text), PROBLEM_NONE);
}

enum session_outcome world_pull(struct world *world, const char *source, const char *target)
{
    world_begin_pull(world, source, target);
    world_run(world);
    assert_true(session_is_closed(world->client) && session_is_closed(world->server));
    return session_outcome(world->client);
}

void world_inject(struct world *world, const struct message *message)
{
    uint8_t bytes[MESSAGE_LENGTH_MAX];
    size_t length = protocol_pack(message, bytes);
    struct span data = protocol_data(message);
    if (data.length > 0) {
        memcpy(bytes + length, data.bytes, data.length);
        length += data.length;
    }
    memory_pair_inject(world->pair, 1, bytes, length);
}

void world_begin_lies(struct world *world, bool recursive)
{
    world->request.wishes.bits = recursive ? WISH_RECURSIVE : 0;
    world_begin_pull(world, "/x", "");
    while (memory_pair_step(world->pair)) { /* without a pump, so the server sends no entry */
    }
    assert_true(session_is_running(world->client));
}

struct message world_entry(uint32_t id, enum entry_kind kind, const char *name, const char *data)
{
    struct message message = {.type = MESSAGE_ENTRY};
    message.entry.id = id;
    message.entry.kind = kind;
    message.entry.of = ENTRY_FILE;
    message.entry.content = kind == ENTRY_FILE ? CONTENT_EAGER : CONTENT_CHUNKS;
    message.entry.mode = 0755;
    message.entry.size = strlen(data);
    message.entry.name = (struct span){name, strlen(name)};
    message.entry.data = (struct span){data, strlen(data)};
    digest_of(data, strlen(data), message.entry.digest);
    return message;
}

void world_expect_broken(struct world *world)
{
    while (memory_pair_step(world->pair)) {
    }
    assert_int_equal(session_outcome(world->client), SESSION_BROKEN);
    assert_true(session_is_closed(world->client));
}

void world_inject_entry(struct world *world, uint32_t id, enum entry_kind kind, const char *name,
                        const char *data)
{
    const struct message message = world_entry(id, kind, name, data);
    world_inject(world, &message);
}

void world_chunked_entry(struct world *world, uint64_t size)
{
    struct message message = world_entry(1, ENTRY_FILE, "x", "");
    message.entry.content = CONTENT_CHUNKS;
    message.entry.size = size;
    world_inject(world, &message);
}
