/* A server and a client of rpc in one process, for the end-to-end tests, each with a poller of its
 * own, over the fabric of weir/channel/world_test.h. */
#ifndef WEIR_RPC_WORLD_TEST_H
#define WEIR_RPC_WORLD_TEST_H

#include "weir/channel/world_test.h"

#include <sys/types.h>

#include <weir/rpc.h>

#define BYTES_KEPT 4096

/* What became of a call: the argument of outcome_replied. */
struct outcome {
    struct weir_call *call;
    bool is_told;
    enum weir_status status;
    uint32_t code;
    size_t length;
    uint8_t bytes[BYTES_KEPT]; /* the first of them */
    char words[400];
    uint64_t told_ns;
};

struct rpc_world {
    struct weir_poller *server_poller, *client_poller;
    struct weir_rpc *server, *client;
    struct weir_target *target; /* the client's, of the server */
};

/* How both sides' channels are made, besides what their options say. The state of a group's
 * set-up; NULL: world_cm. */
int rpc_world_over(void **state);

weir_replied_callback outcome_replied;
weir_procedure_handler handle_echo; /* replies what it got */

/* Options may be NULL. The server listens; nothing is registered. */
void rpc_world_open(struct rpc_world *world, const struct weir_rpc_options *server,
                    const struct weir_rpc_options *client);
void rpc_world_close(struct rpc_world *world);
void rpc_world_poll(struct rpc_world *world);
/* Polls both until *flag, or fails the test. */
void rpc_world_run_until(struct rpc_world *world, const bool *flag);
void rpc_world_run_until_count(struct rpc_world *world, const unsigned *count, unsigned wanted);

/* Only a client, of a server elsewhere; closed by rpc_world_close. */
void rpc_world_open_client(struct rpc_world *world, const struct weir_rpc_options *options,
                           const char *address);
void rpc_world_run_client_until(struct rpc_world *world, const bool *flag);

/* A server that may be killed: this program run again with the arguments "server", `address` and
 * `manner`, which prints the address that it listens on. */
struct killable {
    pid_t pid;
    char address[96];
};
void killable_start(struct killable *server, const char *address, const char *manner);
void killable_stop(struct killable *server);

struct weir_procedure *rpc_register(struct weir_rpc *rpc, const char *name,
                                    weir_procedure_handler *handler, void *user);
/* Makes a call, which must be taken. */
void rpc_call(struct weir_target *target, struct weir_procedure *procedure, const void *bytes,
              size_t length, const struct weir_call_options *options, struct outcome *outcome);
void rpc_expect(const struct outcome *outcome, enum weir_status status, const char *words);
/* Replies with bytes, which must be taken. */
void rpc_reply(struct weir_request *request, const void *bytes, size_t length);

#endif
