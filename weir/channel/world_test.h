/* Two ends of channels in one process, for the end-to-end tests: a fabric (WEIR_TEST_FABRIC: soft,
 * rdma), an address (WEIR_TEST_ADDRESS), ends that record what happens to them. */
#ifndef WEIR_CHANNEL_WORLD_TEST_H
#define WEIR_CHANNEL_WORLD_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <weir/channel.h>

#define PATIENCE_MS 150000 /* a test that hangs fails after so long */

/* One side of one connection. */
struct end {
    struct weir_connection *connection;
    bool is_open, is_closed;
    struct weir_error reason;
    uint64_t received, received_bytes;
    uint64_t noticed;
    uint32_t last_notice;
    size_t last_length;
    unsigned done, done_bad;
    enum weir_status last_status;
    /* What a test does with a message; NULL: it is counted. */
    void (*on_message)(struct end *end, const uint8_t *bytes, size_t length);
    void (*on_notice)(struct end *end, uint32_t notice, size_t length);
    void *test;
};

struct world {
    struct weir_fabric *fabric;
    struct weir_poller *server_poller, *client_poller; /* may be the same */
    struct weir_listener *listener;
    struct weir_channel_options options;
    struct end *servers; /* the accepted ones, in order */
    unsigned server_count, server_max;
    bool refuses;
};

/* The kinds of channels that tests run over. */
extern struct weir_channel_options world_cm, world_cm_lanes, world_tcp, world_tcp_lanes;

extern const struct weir_handler end_handler;
weir_done_callback end_done;         /* its argument is the end */
weir_accept_callback world_accepted; /* the listener's, whose user is the world */

struct weir_fabric *world_fabric(void);
const char *world_host(void);
void world_open(struct world *world, const struct weir_channel_options *options, unsigned servers,
                bool has_two_pollers);
void world_close(struct world *world);
/* One connection, open on both sides; and its end in order, begun by the client. */
void world_open_pair(struct world *world, const struct weir_channel_options *options,
                     struct end *client, bool has_two_pollers);
void world_close_pair(struct world *world, struct end *client);
void world_connect(struct world *world, struct end *client);
/* Polls both pollers until *flag, or fails the test. */
void world_run_until(struct world *world, const bool *flag);
/* Fails with the reason if it closes instead. */
void world_run_until_open(struct world *world, const struct end *end);
void world_run_until_count(struct world *world, const uint64_t *count, uint64_t wanted);
void world_run_until_done(struct world *world, const unsigned *count, unsigned wanted);
void world_poll(struct world *world);

#endif
