/* A file over a flow-controlled channel: the server announces a region of a few slots, and grants
 * each slot by a message; the client writes a piece of the file into a granted slot, and the
 * notice that comes with the write names the slot. A piece of zero bytes ends the file. Neither
 * side holds more than the slots, however long the file is.
 *
 *     file server DIRECTORY [ADDRESS]    prints the address it listens on; takes one file
 *     file client ADDRESS FILE
 *
 * Only the file's basename travels, nothing is overwritten, and what has not come whole is removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <unistd.h>

#include "examples/common.h"

#define SLOTS           8u
#define SLOT_SIZE       ((size_t)256 << 10)
#define NAME_LENGTH_MAX 255

struct state {
    struct example example;
    struct weir_memory *slots;
    struct weir_remote remote; /* client: the server's slots */
    char name[NAME_LENGTH_MAX + 1];
    int fd, directory;
    bool is_begun; /* server: the file is there */
    bool has_ended, is_complete;
    unsigned long long total;
};

static void closed(struct weir_connection *connection, const struct weir_error *reason, void *user)
{
    struct state *state = user;
    example_over(&state->example, reason);
}

/* --- server --- */

static void grant(struct weir_connection *connection, uint32_t slot)
{
    uint8_t byte = (uint8_t)slot;
    weir_send(connection, &byte, 1, NULL, NULL);
}

/* The name: then the region and all its slots are the client's. */
static void server_received(struct weir_connection *connection, const void *bytes, size_t length,
                            void *user)
{
    struct state *state = user;
    if (state->slots != NULL || length == 0 || length > NAME_LENGTH_MAX ||
        memchr(bytes, '/', length) != NULL || memchr(bytes, '\0', length) != NULL) {
        weir_abort(connection, "that is no file name");
        return;
    }
    memcpy(state->name, bytes, length);
    state->fd =
        openat(state->directory, state->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (state->fd < 0) {
        weir_abort(connection, strerror(errno));
        return;
    }
    state->is_begun = true;
    state->slots = example_memory_for(connection, SLOTS * SLOT_SIZE, WEIR_REMOTE_WRITE);
    uint8_t region[WEIR_REMOTE_LENGTH];
    struct weir_remote remote = weir_memory_remote(state->slots);
    weir_remote_pack(&remote, region);
    weir_send(connection, region, sizeof(region), NULL, NULL);
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        grant(connection, slot);
    }
}

static void server_noticed(struct weir_connection *connection, uint32_t slot, size_t length,
                           void *user)
{
    struct state *state = user;
    if (slot >= SLOTS || length > SLOT_SIZE || state->fd < 0) {
        weir_abort(connection, "that slot was not granted");
        return;
    }
    const uint8_t *bytes = (uint8_t *)weir_memory_bytes(state->slots) + slot * SLOT_SIZE;
    if (length == 0) {
        state->is_complete = close(state->fd) == 0;
        state->fd = -1;
        if (!state->is_complete) {
            weir_abort(connection, strerror(errno));
            return;
        }
        weir_send(connection, "complete", 8, NULL, NULL);
        return;
    }
    for (size_t done = 0; done < length;) {
        ssize_t count = write(state->fd, bytes + done, length - done);
        if (count < 0) {
            weir_abort(connection, strerror(errno));
            return;
        }
        done += (size_t)count;
    }
    state->total += length;
    grant(connection, slot);
}

static bool accepted(struct weir_connection *connection, void *listener_user,
                     struct weir_handler *ret_handler, void **ret_user)
{
    struct state *state = listener_user;
    example_take(&state->example);
    *ret_handler = (struct weir_handler){NULL, server_received, server_noticed, closed};
    *ret_user = state;
    return true;
}

/* --- client --- */

static void fill_slot(struct weir_connection *connection, struct state *state, uint32_t slot)
{
    uint8_t *bytes = (uint8_t *)weir_memory_bytes(state->slots) + slot * SLOT_SIZE;
    if (state->has_ended) {
        return; /* the grants that are left over */
    }
    ssize_t count = read(state->fd, bytes, SLOT_SIZE);
    if (count < 0) {
        weir_abort(connection, strerror(errno));
        return;
    }
    state->has_ended = count == 0;
    state->total += (unsigned long long)count;
    struct weir_transfer transfer = {.memory = state->slots,
                                     .offset = slot * SLOT_SIZE,
                                     .length = (size_t)count,
                                     .remote = state->remote,
                                     .remote_offset = slot * SLOT_SIZE,
                                     .has_notice = true,
                                     .notice = slot};
    enum weir_status status = weir_put(connection, &transfer, NULL, NULL);
    if (status != WEIR_OK) {
        weir_abort(connection, weir_status_name(status));
    }
}

static void client_received(struct weir_connection *connection, const void *bytes, size_t length,
                            void *user)
{
    struct state *state = user;
    if (length == WEIR_REMOTE_LENGTH) {
        state->remote = weir_remote_unpack(bytes);
    } else if (length == 1 && *(const uint8_t *)bytes < SLOTS) {
        fill_slot(connection, state, *(const uint8_t *)bytes);
    } else if (length == 8 && state->has_ended) {
        state->is_complete = true;
        weir_close(connection);
    } else {
        weir_abort(connection, "that message makes no sense");
    }
}

static void client_opened(struct weir_connection *connection, void *user)
{
    struct state *state = user;
    weir_send(connection, state->name, strlen(state->name), NULL, NULL);
}

int main(int argc, char **argv)
{
    bool is_server = argc > 2 && strcmp(argv[1], "server") == 0;
    if (!is_server && (argc < 4 || strcmp(argv[1], "client") != 0)) {
        fprintf(stderr, "usage: file server DIRECTORY [ADDRESS] | file client ADDRESS FILE\n");
        return 2;
    }
    struct state state = {.fd = -1};
    example_open(&state.example);
    if (is_server) {
        state.directory = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (state.directory < 0) {
            example_fail(argv[2], strerror(errno));
        }
        example_listen(&state.example, argv[3], NULL, accepted, &state);
    } else {
        struct weir_handler handler = {client_opened, client_received, NULL, closed};
        state.fd = open(argv[3], O_RDONLY | O_CLOEXEC);
        if (state.fd < 0) {
            example_fail(argv[3], strerror(errno));
        }
        snprintf(state.name, sizeof(state.name), "%s", basename(argv[3]));
        state.slots = example_memory(&state.example, SLOTS * SLOT_SIZE);
        example_connect(&state.example, argv[2], NULL, &handler, &state);
    }
    example_run(&state.example);
    if (state.is_begun && !state.is_complete) {
        unlinkat(state.directory, state.name, 0);
    }
    printf("%s: %llu bytes%s%s\n", state.name, state.total, state.is_complete ? "" : ": ",
           state.is_complete ? "" : state.example.reason.message);
    weir_memory_deregister(state.slots);
    weir_fabric_close(state.example.fabric);
    return state.is_complete ? 0 : 1;
}
