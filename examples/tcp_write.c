/* A one-sided write whose connection is made by TCP: the queue pairs' numbers, addresses and first
 * PSNs are exchanged over a socket, the region's address and key in a message, and then the client
 * writes straight into the server's memory and reads it back. The server's program does nothing
 * meanwhile; the last message tells it to look.
 *
 *     tcp_write server [ADDRESS]     prints the address it listens on
 *     tcp_write client ADDRESS
 *
 * WEIR_DEVICE=NAME[:PORT[:GID_INDEX]] chooses the device. */
#include <string.h>

#include "examples/common.h"

#define REGION ((size_t)1 << 20)

struct state {
    struct example example;
    struct weir_memory *memory;
    struct weir_remote remote; /* client: the server's region */
    bool is_right;
};

static unsigned char pattern(size_t position)
{
    return (unsigned char)(position * 31 + (position >> 8));
}

static bool is_pattern(const struct weir_memory *memory)
{
    const unsigned char *bytes = weir_memory_bytes(memory);
    for (size_t i = 0; i < REGION; i++) {
        if (bytes[i] != pattern(i)) {
            return false;
        }
    }
    return true;
}

static void closed(struct weir_connection *connection, const struct weir_error *reason, void *user)
{
    struct state *state = user;
    example_over(&state->example, reason);
}

/* --- server --- */

static void server_opened(struct weir_connection *connection, void *user)
{
    struct state *state = user;
    uint8_t bytes[WEIR_REMOTE_LENGTH];
    state->memory = example_memory_for(connection, REGION, WEIR_REMOTE_WRITE | WEIR_REMOTE_READ);
    struct weir_remote remote = weir_memory_remote(state->memory);
    weir_remote_pack(&remote, bytes);
    weir_send(connection, bytes, sizeof(bytes), NULL, NULL);
}

static void server_received(struct weir_connection *connection, const void *bytes, size_t length,
                            void *user)
{
    struct state *state = user;
    state->is_right = is_pattern(state->memory);
    weir_send(connection, state->is_right ? "right" : "wrong", 5, NULL, NULL);
}

static bool accepted(struct weir_connection *connection, void *listener_user,
                     struct weir_handler *ret_handler, void **ret_user)
{
    struct state *state = listener_user;
    example_take(&state->example);
    *ret_handler = (struct weir_handler){server_opened, server_received, NULL, closed};
    *ret_user = state;
    return true;
}

/* --- client: written, read back, told --- */

static void read_back(struct weir_connection *connection, enum weir_status status, void *argument)
{
    struct state *state = argument;
    if (status != WEIR_OK || !is_pattern(state->memory)) {
        weir_abort(connection, "what was read differs from what was written");
        return;
    }
    weir_send(connection, "look", 4, NULL, NULL);
}

static void written(struct weir_connection *connection, enum weir_status status, void *argument)
{
    struct state *state = argument;
    if (status != WEIR_OK) {
        return; /* the connection ends with the reason */
    }
    memset(weir_memory_bytes(state->memory), 0, REGION);
    struct weir_transfer transfer = {
        .memory = state->memory, .length = REGION, .remote = state->remote};
    weir_get(connection, &transfer, read_back, state);
}

static void client_received(struct weir_connection *connection, const void *bytes, size_t length,
                            void *user)
{
    struct state *state = user;
    if (length == 5) {
        state->is_right = memcmp(bytes, "right", 5) == 0;
        weir_close(connection);
        return;
    }
    if (length != WEIR_REMOTE_LENGTH) {
        weir_abort(connection, "that is no region");
        return;
    }
    state->remote = weir_remote_unpack(bytes);
    unsigned char *local = weir_memory_bytes(state->memory);
    for (size_t i = 0; i < REGION; i++) {
        local[i] = pattern(i);
    }
    struct weir_transfer transfer = {
        .memory = state->memory, .length = REGION, .remote = state->remote};
    enum weir_status status = weir_put(connection, &transfer, written, state);
    if (status != WEIR_OK) {
        weir_abort(connection, weir_status_name(status));
    }
}

int main(int argc, char **argv)
{
    struct state state = {0};
    struct weir_channel_options options = {.bootstrap = WEIR_BOOTSTRAP_TCP};
    bool is_server = argc > 1 && strcmp(argv[1], "server") == 0;
    if (!is_server && (argc < 3 || strcmp(argv[1], "client") != 0)) {
        fprintf(stderr, "usage: tcp_write server [ADDRESS] | tcp_write client ADDRESS\n");
        return 2;
    }
    example_open(&state.example);
    if (is_server) {
        example_listen(&state.example, argv[2], &options, accepted, &state);
    } else {
        struct weir_handler handler = {NULL, client_received, NULL, closed};
        state.memory = example_memory(&state.example, REGION);
        example_connect(&state.example, argv[2], &options, &handler, &state);
    }
    example_run(&state.example);
    bool is_well =
        state.is_right && state.example.reason.status == (is_server ? WEIR_DISCONNECTED : WEIR_OK);
    printf("%zu bytes %s%s%s\n", REGION, state.is_right ? "written and right" : "NOT written right",
           is_well ? "" : ": ", is_well ? "" : state.example.reason.message);
    weir_memory_deregister(state.memory);
    weir_fabric_close(state.example.fabric);
    return is_well ? 0 : 1;
}
