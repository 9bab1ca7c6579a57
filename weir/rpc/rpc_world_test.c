/* The world of rpc's tests. */
#include "weir/rpc/rpc_world_test.h"
#include "weir/channel/timer.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weir/rpc/rpc.h"

void outcome_replied(const struct weir_reply *reply, void *argument)
{
    struct outcome *outcome = argument;
    assert_false(outcome->is_told);
    outcome->is_told = true;
    outcome->call = NULL;
    outcome->status = reply->status;
    outcome->code = reply->code;
    outcome->length = reply->length;
    outcome->told_ns = clock_now_ns();
    if (reply->length > 0) {
        memcpy(outcome->bytes, reply->bytes,
               reply->length < BYTES_KEPT ? reply->length : BYTES_KEPT);
    }
    snprintf(outcome->words, sizeof(outcome->words), "%s", reply->words);
    assert_int_equal(reply->status == WEIR_OK, reply->words[0] == '\0');
}

void handle_echo(struct weir_request *request, const void *bytes, size_t length, void *user)
{
    rpc_reply(request, bytes, length);
}

void rpc_reply(struct weir_request *request, const void *bytes, size_t length)
{
    struct weir_piece piece = {bytes, length};
    assert_int_equal(weir_request_reply(request, &piece, 1), WEIR_OK);
}

static const struct weir_channel_options *channel = &world_cm;

int rpc_world_over(void **state)
{
    channel = *state != NULL ? *state : &world_cm;
    return 0;
}

static struct weir_rpc_options over_channel(const struct weir_rpc_options *options)
{
    struct weir_rpc_options all = options != NULL ? *options : (struct weir_rpc_options){0};
    all.channel.bootstrap = channel->bootstrap;
    all.channel.lanes = channel->lanes;
    return all;
}

void rpc_world_open(struct rpc_world *world, const struct weir_rpc_options *server,
                    const struct weir_rpc_options *client)
{
    struct weir_rpc_options server_options = over_channel(server);
    struct weir_rpc_options client_options = over_channel(client);
    struct weir_error error;
    char address[96];
    struct weir_fabric *fabric = world_fabric();
    assert_int_equal(weir_poller_create(fabric, &world->server_poller, &error), WEIR_OK);
    assert_int_equal(weir_poller_create(fabric, &world->client_poller, &error), WEIR_OK);
    assert_int_equal(weir_rpc_create(world->server_poller, &server_options, &world->server, &error),
                     WEIR_OK);
    assert_int_equal(weir_rpc_create(world->client_poller, &client_options, &world->client, &error),
                     WEIR_OK);
    snprintf(address, sizeof(address), "%s:0", world_host());
    if (weir_rpc_listen(world->server, address, &error) != WEIR_OK) {
        fail_msg("listen: %s", error.message);
    }
    assert_int_equal(
        weir_target_create(world->client, weir_rpc_address(world->server), &world->target, &error),
        WEIR_OK);
}

void rpc_world_close(struct rpc_world *world)
{
    weir_rpc_destroy(world->client);
    weir_rpc_destroy(world->server);
    weir_poller_destroy(world->client_poller);
    weir_poller_destroy(world->server_poller);
}

void rpc_world_poll(struct rpc_world *world)
{
    int done = weir_poll(world->server_poller, 0);
    assert_true(done >= 0);
    assert_true(weir_poll(world->client_poller, done > 0 ? 0 : 1) >= 0);
}

static void check_patience(uint64_t started_ns)
{
    if (clock_now_ns() - started_ns > (uint64_t)PATIENCE_MS * 1000000u) {
        fail_msg("nothing happened for %d ms", PATIENCE_MS);
    }
}

void rpc_world_run_until(struct rpc_world *world, const bool *flag)
{
    uint64_t started_ns = clock_now_ns();
    while (!*flag) {
        rpc_world_poll(world);
        check_patience(started_ns);
    }
}

void rpc_world_run_until_count(struct rpc_world *world, const unsigned *count, unsigned wanted)
{
    uint64_t started_ns = clock_now_ns();
    while (*count < wanted) {
        rpc_world_poll(world);
        check_patience(started_ns);
    }
}

struct weir_procedure *rpc_register(struct weir_rpc *rpc, const char *name,
                                    weir_procedure_handler *handler, void *user)
{
    struct weir_procedure *procedure;
    struct weir_error error;
    assert_int_equal(weir_rpc_register(rpc, name, handler, user, &procedure, &error), WEIR_OK);
    return procedure;
}

void rpc_call(struct weir_target *target, struct weir_procedure *procedure, const void *bytes,
              size_t length, const struct weir_call_options *options, struct outcome *outcome)
{
    struct weir_piece piece = {bytes, length};
    memset(outcome, 0, sizeof(*outcome));
    assert_int_equal(weir_rpc_call(target, procedure, &piece, 1, options, outcome_replied, outcome,
                                   &outcome->call),
                     WEIR_OK);
}

void rpc_expect(const struct outcome *outcome, enum weir_status status, const char *words)
{
    if (!outcome->is_told || outcome->status != status || strstr(outcome->words, words) == NULL) {
        fail_msg("told %d, %s, not %s: \"%s\" lacks \"%s\"", outcome->is_told,
                 weir_status_name(outcome->status), weir_status_name(status), outcome->words,
                 words);
    }
}

void rpc_world_open_client(struct rpc_world *world, const struct weir_rpc_options *options,
                           const char *address)
{
    struct weir_error error;
    memset(world, 0, sizeof(*world));
    assert_int_equal(weir_poller_create(world_fabric(), &world->client_poller, &error), WEIR_OK);
    assert_int_equal(weir_rpc_create(world->client_poller, options, &world->client, &error),
                     WEIR_OK);
    assert_int_equal(weir_target_create(world->client, address, &world->target, &error), WEIR_OK);
}

void rpc_world_run_client_until(struct rpc_world *world, const bool *flag)
{
    uint64_t started_ns = clock_now_ns();
    while (!*flag) {
        assert_true(weir_poll(world->client_poller, 100) >= 0);
        check_patience(started_ns);
    }
}

/* --- servers in processes of their own --- */

void killable_start(struct killable *server, const char *address, const char *manner)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "server", "server", address, manner, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    assert_non_null(fgets(server->address, sizeof(server->address), from));
    server->address[strcspn(server->address, "\n")] = '\0';
    fclose(from);
}

void killable_stop(struct killable *server)
{
    kill(server->pid, SIGKILL);
    assert_int_equal(waitpid(server->pid, NULL, 0), server->pid);
}
