/* What all examples do alike: open a fabric, listen and say where, run until the end. */
#ifndef WEIR_EXAMPLES_COMMON_H
#define WEIR_EXAMPLES_COMMON_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <weir/channel.h>

struct example {
    struct weir_fabric *fabric;
    struct weir_poller *poller;
    struct weir_listener *listener; /* a server's, until it has its client */
    bool is_over;
    struct weir_error reason; /* of the end */
};

static inline void example_fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* WEIR_DEVICE=NAME[:PORT[:GID_INDEX]] chooses the device. */
static inline void example_open(struct example *example)
{
    struct weir_fabric_options options = {.device = getenv("WEIR_DEVICE")};
    struct weir_error error;
    if (weir_fabric_open(&options, &example->fabric, &error) != WEIR_OK ||
        weir_poller_create(example->fabric, &example->poller, &error) != WEIR_OK) {
        example_fail("fabric", error.message);
    }
}

/* Memory for this side only. */
static inline struct weir_memory *example_memory(struct example *example, size_t length)
{
    struct weir_memory *memory;
    struct weir_error error;
    if (weir_memory_allocate(example->fabric, length, WEIR_LOCAL, &memory, &error) != WEIR_OK) {
        example_fail("memory", error.message);
    }
    return memory;
}

/* Memory that the connection's peer may reach. */
static inline struct weir_memory *example_memory_for(struct weir_connection *connection,
                                                     size_t length, unsigned rights)
{
    struct weir_memory *memory;
    struct weir_error error;
    if (weir_memory_allocate_for(connection, length, rights, &memory, &error) != WEIR_OK) {
        example_fail("memory", error.message);
    }
    return memory;
}

/* `address` NULL: any port of 127.0.0.1. Prints the address, for its client. */
static inline void example_listen(struct example *example, const char *address,
                                  const struct weir_channel_options *options,
                                  weir_accept_callback *accepted, void *user)
{
    struct weir_error error;
    if (weir_listen(example->poller, address != NULL ? address : "127.0.0.1:0", options, accepted,
                    user, &example->listener, &error) != WEIR_OK) {
        example_fail("listen", error.message);
    }
    printf("%s\n", weir_listener_address(example->listener));
    fflush(stdout);
}

/* In `accepted`: this client is the one; who comes later is refused. */
static inline void example_take(struct example *example)
{
    weir_listener_close(example->listener);
}

static inline void example_connect(struct example *example, const char *address,
                                   const struct weir_channel_options *options,
                                   const struct weir_handler *handler, void *user)
{
    struct weir_connection *connection;
    struct weir_error error;
    if (weir_connect(example->poller, address, options, handler, user, &connection, &error) !=
        WEIR_OK) {
        example_fail("connect", error.message);
    }
}

/* Until a `closed` callback has said that it is over. */
static inline void example_run(struct example *example)
{
    while (!example->is_over) {
        weir_poll(example->poller, -1);
    }
    weir_poller_destroy(example->poller);
}

static inline void example_over(struct example *example, const struct weir_error *reason)
{
    example->is_over = true;
    example->reason = *reason;
}

#endif
