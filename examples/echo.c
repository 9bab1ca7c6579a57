/* Echo over rdma_cm: the client sends messages of growing length, the server sends each back.
 *
 *     echo server [ADDRESS]      prints the address it listens on
 *     echo client ADDRESS [COUNT]     COUNT is 100, or 1 at least
 *
 * The server ends when its first client has gone. */
#include <string.h>

#include "examples/common.h"

#define LENGTH_MAX ((size_t)200000)

struct state {
    struct example example;
    unsigned count, echoed;
    unsigned char *bytes;
};

static size_t length_of(unsigned index)
{
    return (size_t)index * index * 97 % LENGTH_MAX;
}

/* --- server --- */

static void server_received(struct weir_connection *connection, const void *bytes, size_t length,
                            void *user)
{
    /* Without a callback the bytes are copied before weir_send returns. */
    struct state *state = user;
    state->echoed++;
    if (weir_send(connection, bytes, length, NULL, NULL) != WEIR_OK) {
        weir_abort(connection, "cannot send");
    }
}

static void closed(struct weir_connection *connection, const struct weir_error *reason, void *user)
{
    struct state *state = user;
    example_over(&state->example, reason);
}

static bool accepted(struct weir_connection *connection, void *listener_user,
                     struct weir_handler *ret_handler, void **ret_user)
{
    struct state *state = listener_user;
    example_take(&state->example);
    *ret_handler = (struct weir_handler){.received = server_received, .closed = closed};
    *ret_user = state;
    return true;
}

/* --- client --- */

static void send_next(struct weir_connection *connection, struct state *state)
{
    size_t length = length_of(state->echoed);
    for (size_t i = 0; i < length; i++) {
        state->bytes[i] = (unsigned char)(i + state->echoed);
    }
    weir_send(connection, state->bytes, length, NULL, NULL);
}

static void client_opened(struct weir_connection *connection, void *user)
{
    send_next(connection, user);
}

static void client_received(struct weir_connection *connection, const void *bytes, size_t length,
                            void *user)
{
    struct state *state = user;
    if (length != length_of(state->echoed) || memcmp(bytes, state->bytes, length) != 0) {
        weir_abort(connection, "the echo differs");
        return;
    }
    state->echoed++;
    if (state->echoed < state->count) {
        send_next(connection, state);
    } else {
        weir_close(connection);
    }
}

int main(int argc, char **argv)
{
    int count = argc > 3 ? atoi(argv[3]) : 100;
    struct state state = {.count = (unsigned)count};
    bool is_server = argc > 1 && strcmp(argv[1], "server") == 0;
    if (!is_server && (argc < 3 || strcmp(argv[1], "client") != 0 || count < 1)) {
        fprintf(stderr, "usage: echo server [ADDRESS] | echo client ADDRESS [COUNT]\n");
        return 2;
    }
    example_open(&state.example);
    if (is_server) {
        example_listen(&state.example, argv[2], NULL, accepted, &state);
    } else {
        struct weir_handler handler = {client_opened, client_received, NULL, closed};
        state.bytes = malloc(LENGTH_MAX);
        example_connect(&state.example, argv[2], NULL, &handler, &state);
    }
    example_run(&state.example);
    weir_fabric_close(state.example.fabric);
    free(state.bytes);
    bool is_well = is_server ? state.example.reason.status == WEIR_DISCONNECTED
                             : state.example.reason.status == WEIR_OK;
    printf("%u messages echoed%s%s\n", state.echoed, is_well ? "" : ": ",
           is_well ? "" : state.example.reason.message);
    return is_well && (is_server || state.echoed == state.count) ? 0 : 1;
}
