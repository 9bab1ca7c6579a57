/* The world of group's tests. */
#include "weir/group/group_world_test.h"
#include "weir/channel/timer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/group/group.h"

static void handle_sum(struct weir_group_request *request, const void *bytes, size_t length,
                       void *user)
{
    struct group_member *member = user;
    uint64_t value;
    member->runs++;
    if (length != sizeof(value)) {
        weir_group_request_refuse(request, 1);
        return;
    }
    memcpy(&value, bytes, sizeof(value));
    value += member->rank;
    if (member->refuses) {
        weir_group_request_refuse(request, 100 + member->rank);
    } else {
        assert_int_equal(weir_group_request_reply(request, &value, sizeof(value)), WEIR_OK);
    }
}

static bool combine_sum(void *into, size_t *into_length, size_t length_max, const void *bytes,
                        size_t length, void *user)
{
    uint64_t sum = 0, more;
    if (length != sizeof(more)) {
        return false;
    }
    memcpy(&sum, into, *into_length); /* nothing, the first time */
    memcpy(&more, bytes, sizeof(more));
    sum += more;
    memcpy(into, &sum, sizeof(sum));
    *into_length = sizeof(sum);
    return true;
}

static void handle_list(struct weir_group_request *request, const void *bytes, size_t length,
                        void *user)
{
    struct group_member *member = user;
    member->runs++;
    assert_int_equal(weir_group_request_reply(request, &member->rank, sizeof(member->rank)),
                     WEIR_OK);
}

static bool combine_list(void *into, size_t *into_length, size_t length_max, const void *bytes,
                         size_t length, void *user)
{
    if (length > length_max - *into_length) {
        return false;
    }
    memcpy((uint8_t *)into + *into_length, bytes, length);
    *into_length += length;
    return true;
}

static void handle_count(struct weir_group_request *request, const void *bytes, size_t length,
                         void *user)
{
    struct group_member *member = user;
    member->runs++;
    assert_int_equal(weir_group_request_reply(request, "not heard", 9), WEIR_OK);
}

static void handle_keep(struct weir_group_request *request, const void *bytes, size_t length,
                        void *user)
{
    struct group_member *member = user;
    member->runs++;
    assert_null(member->kept);
    member->kept = request;
}

static void add_procedure(struct group_member *member, const char *name,
                          weir_group_handler *handler, weir_group_combine *combine,
                          struct weir_group_procedure **ret_procedure)
{
    struct weir_error error;
    assert_int_equal(
        weir_group_register(member->group, name, handler, combine, member, ret_procedure, &error),
        WEIR_OK);
}

void group_world_register(struct group_member *member)
{
    add_procedure(member, "sum", handle_sum, combine_sum, &member->sum);
    add_procedure(member, "list", handle_list, combine_list, &member->list);
    add_procedure(member, "count", handle_count, NULL, &member->count);
    add_procedure(member, "keep", handle_keep, combine_list, &member->keep);
}

static void open_rpc(struct group_member *member)
{
    struct group_world *world = member->world;
    struct weir_rpc_options options = {
        .channel = {.eager_buffers = 8, .eager_length = 1024, .silence_timeout_ms = 60000}};
    struct weir_error error;
    char address[96];
    snprintf(address, sizeof(address), "%s:0", world_host());
    assert_int_equal(weir_rpc_create(world->poller, &options, &member->rpc, &error), WEIR_OK);
    if (weir_rpc_listen(member->rpc, address, &error) != WEIR_OK) {
        fail_msg("listen: %s", error.message);
    }
    world->addresses[member->rank] = strdup(weir_rpc_address(member->rpc));
}

void group_world_open(struct group_world *world, uint32_t size,
                      const struct weir_group_options *options)
{
    struct weir_error error;
    *world = (struct group_world){.size = size};
    world->options = options != NULL ? *options : (struct weir_group_options){0};
    world->members = calloc(size, sizeof(*world->members));
    world->addresses = calloc(size, sizeof(char *));
    assert_int_equal(weir_poller_create(world_fabric(), &world->poller, &error), WEIR_OK);
    for (uint32_t rank = 0; rank < size; rank++) {
        world->members[rank].world = world;
        world->members[rank].rank = rank;
        open_rpc(&world->members[rank]);
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        struct group_member *member = &world->members[rank];
        if (weir_group_create(member->rpc, &world->options, (const char *const *)world->addresses,
                              size, rank, &member->group, &error) != WEIR_OK) {
            fail_msg("group: %s", error.message);
        }
        group_world_register(member);
    }
}

void group_world_kill(struct group_world *world, uint32_t rank)
{
    struct group_member *member = &world->members[rank];
    weir_group_destroy(member->group);
    weir_rpc_destroy(member->rpc);
    member->group = NULL;
    member->rpc = NULL;
    member->kept = NULL;
}

void group_world_close(struct group_world *world)
{
    for (uint32_t rank = 0; rank < world->size; rank++) {
        group_world_kill(world, rank);
        free(world->addresses[rank]);
    }
    weir_poller_destroy(world->poller);
    free(world->addresses);
    free(world->members);
}

void group_world_poll(struct group_world *world)
{
    assert_true(weir_poll(world->poller, 1) >= 0);
}

void group_world_run_until(struct group_world *world, const bool *flag)
{
    uint64_t started_ns = clock_now_ns();
    while (!*flag) {
        group_world_poll(world);
        if (clock_now_ns() - started_ns > (uint64_t)PATIENCE_MS * 1000000u) {
            fail_msg("nothing happened for %d ms", PATIENCE_MS);
        }
    }
}

void group_told(const struct weir_group_reply *reply, void *argument)
{
    struct group_outcome *outcome = argument;
    assert_false(outcome->is_told);
    outcome->is_told = true;
    outcome->reply = *reply;
    assert_true(reply->failure_count <= FAILURES_KEPT);
    assert_true(reply->length <= REPLY_KEPT);
    if (reply->failure_count > 0) {
        memcpy(outcome->failures, reply->failures, reply->failure_count * sizeof(*reply->failures));
    }
    if (reply->length > 0) {
        memcpy(outcome->bytes, reply->bytes, reply->length);
    }
    uint32_t failed = 0, least = 0;
    for (size_t i = 0; i < reply->failure_count; i++) {
        assert_true(reply->failures[i].first >= least);
        least = reply->failures[i].first + reply->failures[i].count;
        failed += reply->failures[i].count;
    }
    assert_int_equal(failed + reply->replied, reply->asked);
}

void group_call(struct weir_group *group, struct weir_group_procedure *procedure, uint64_t value,
                const struct weir_group_call_options *options, struct group_outcome *outcome)
{
    struct weir_piece piece = {&value, sizeof(value)};
    memset(outcome, 0, sizeof(*outcome));
    assert_int_equal(weir_group_call(group, procedure, &piece, 1, options, group_told, outcome),
                     WEIR_OK);
    assert_false(outcome->is_told);
}

uint64_t group_sum(const struct group_outcome *outcome)
{
    uint64_t sum;
    assert_int_equal(outcome->reply.length, sizeof(sum));
    memcpy(&sum, outcome->bytes, sizeof(sum));
    return sum;
}

enum weir_status group_failure(const struct group_outcome *outcome, uint32_t rank)
{
    for (size_t i = 0; i < outcome->reply.failure_count; i++) {
        const struct weir_group_failure *failure = &outcome->failures[i];
        if (rank >= failure->first && rank - failure->first < failure->count) {
            return failure->status;
        }
    }
    return WEIR_OK;
}
