/* A storage operation as InfiniBand's texts tell it: the initiator SENDs a request that names its
 * buffer, the target READs the buffer (to store) or WRITEs it (to load), and SENDs the status. The
 * initiator's processor has no part in moving the data.
 *
 *     storage server [ADDRESS]       a disk of 64 MiB in memory; prints the address it listens on
 *     storage client ADDRESS         stores blocks, loads them, compares; a request beyond the disk
 *                                    must be answered with an error */
#include <arpa/inet.h>
#include <string.h>

#include "examples/common.h"

#define DISK_SIZE   ((size_t)64 << 20)
#define BUFFER_SIZE ((size_t)1 << 20)
#define ROUNDS      32u

enum operation {
    STORE = 1,
    LOAD = 2
};
enum status {
    GOOD = 0,
    OUT_OF_RANGE = 1,
    FAILED = 2
};

/* Numbers are big-endian. */
struct request {
    uint32_t tag, operation;
    uint32_t block; /* of BUFFER_SIZE */
    uint32_t length;
    uint8_t buffer[WEIR_REMOTE_LENGTH];
};
struct answer {
    uint32_t tag, status;
};

struct state {
    struct example example;
    struct weir_memory *memory; /* disk, or buffer */
    unsigned step;              /* client: 2 per round, then one beyond the disk */
    bool is_right;
};

static void closed(struct weir_connection *connection, const struct weir_error *reason, void *user)
{
    struct state *state = user;
    example_over(&state->example, reason);
}

/* --- target --- */

static void answer(struct weir_connection *connection, uint32_t tag, enum status status)
{
    struct answer message = {htonl(tag), htonl(status)};
    weir_send(connection, &message, sizeof(message), NULL, NULL);
}

static void moved(struct weir_connection *connection, enum weir_status status, void *argument)
{
    if (status == WEIR_OK) {
        answer(connection, (uint32_t)(uintptr_t)argument, GOOD);
    }
}

static void target_received(struct weir_connection *connection, const void *bytes, size_t length,
                            void *user)
{
    struct state *state = user;
    struct request request;
    if (length != sizeof(request)) {
        weir_abort(connection, "that is no request");
        return;
    }
    memcpy(&request, bytes, sizeof(request));
    uint32_t tag = ntohl(request.tag);
    size_t offset = (size_t)ntohl(request.block) * BUFFER_SIZE;
    struct weir_transfer transfer = {.memory = state->memory,
                                     .offset = offset,
                                     .length = ntohl(request.length),
                                     .remote = weir_remote_unpack(request.buffer)};
    void *argument = (void *)(uintptr_t)tag;
    if (offset > DISK_SIZE || transfer.length > DISK_SIZE - offset) {
        answer(connection, tag, OUT_OF_RANGE);
        return;
    }
    enum weir_status status = ntohl(request.operation) == STORE
                                  ? weir_get(connection, &transfer, moved, argument)
                                  : weir_put(connection, &transfer, moved, argument);
    if (status != WEIR_OK) {
        answer(connection, tag, FAILED);
    }
}

static bool accepted(struct weir_connection *connection, void *listener_user,
                     struct weir_handler *ret_handler, void **ret_user)
{
    struct state *state = listener_user;
    example_take(&state->example);
    *ret_handler = (struct weir_handler){NULL, target_received, NULL, closed};
    *ret_user = state;
    return true;
}

/* --- initiator: even steps store a pattern, odd ones load it into a cleared buffer --- */

static void fill(unsigned char *bytes, unsigned round)
{
    for (size_t i = 0; i < BUFFER_SIZE; i++) {
        bytes[i] = (unsigned char)(i * 13 + (i >> 9) + round);
    }
}

static bool is_filled(const unsigned char *bytes, unsigned round)
{
    for (size_t i = 0; i < BUFFER_SIZE; i++) {
        if (bytes[i] != (unsigned char)(i * 13 + (i >> 9) + round)) {
            return false;
        }
    }
    return true;
}

static void request_next(struct weir_connection *connection, struct state *state)
{
    unsigned round = state->step / 2;
    bool is_store = state->step % 2 == 0;
    if (is_store) {
        fill(weir_memory_bytes(state->memory), round);
    } else {
        memset(weir_memory_bytes(state->memory), 0, BUFFER_SIZE);
    }
    struct request request = {htonl(state->step),
                              htonl(is_store ? STORE : LOAD),
                              htonl(round < ROUNDS ? round * 2 : 1000),
                              htonl(BUFFER_SIZE),
                              {0}};
    struct weir_remote remote = weir_memory_remote(state->memory);
    weir_remote_pack(&remote, request.buffer);
    weir_send(connection, &request, sizeof(request), NULL, NULL);
}

static void initiator_opened(struct weir_connection *connection, void *user)
{
    struct state *state = user;
    state->memory =
        example_memory_for(connection, BUFFER_SIZE, WEIR_REMOTE_READ | WEIR_REMOTE_WRITE);
    request_next(connection, state);
}

static void initiator_received(struct weir_connection *connection, const void *bytes, size_t length,
                               void *user)
{
    struct state *state = user;
    struct answer message;
    if (length != sizeof(message)) {
        weir_abort(connection, "that is no answer");
        return;
    }
    memcpy(&message, bytes, sizeof(message));
    bool is_beyond = state->step == 2 * ROUNDS;
    bool is_load = state->step % 2 == 1;
    if (ntohl(message.tag) != state->step ||
        ntohl(message.status) != (is_beyond ? OUT_OF_RANGE : GOOD) ||
        (is_load && !is_filled(weir_memory_bytes(state->memory), state->step / 2))) {
        weir_abort(connection, "the answer is wrong");
        return;
    }
    if (is_beyond) {
        state->is_right = true;
        weir_close(connection);
        return;
    }
    state->step++;
    request_next(connection, state);
}

int main(int argc, char **argv)
{
    struct state state = {0};
    bool is_server = argc > 1 && strcmp(argv[1], "server") == 0;
    if (!is_server && (argc < 3 || strcmp(argv[1], "client") != 0)) {
        fprintf(stderr, "usage: storage server [ADDRESS] | storage client ADDRESS\n");
        return 2;
    }
    example_open(&state.example);
    if (is_server) {
        state.memory = example_memory(&state.example, DISK_SIZE);
        example_listen(&state.example, argv[2], NULL, accepted, &state);
    } else {
        struct weir_handler handler = {initiator_opened, initiator_received, NULL, closed};
        example_connect(&state.example, argv[2], NULL, &handler, &state);
    }
    example_run(&state.example);
    bool is_well = is_server ? state.example.reason.status == WEIR_DISCONNECTED : state.is_right;
    printf("%s\n", is_well ? "good" : state.example.reason.message);
    weir_memory_deregister(state.memory);
    weir_fabric_close(state.example.fabric);
    return is_well ? 0 : 1;
}
