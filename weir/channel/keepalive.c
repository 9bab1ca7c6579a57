/* The watch over silent peers. */
#include "weir/channel/keepalive.h"

#include "weir/channel/connection.h"
#include "weir/channel/timer.h"

#define TICKS 8 /* of a silence timeout */

static void answered(struct weir_connection *connection, void *argument, enum weir_status status)
{
    connection->keepalive.is_asking = false;
}

static void ask(struct weir_connection *connection)
{
    struct keepalive *keepalive = &connection->keepalive;
    struct posted posted = {answered, NULL, "a question whether the peer is there"};
    /* Of no bytes, so no key is needed. On iWARP a WRITE completes when it has left; a READ waits
     * for an answer everywhere [RFC 5040 5.4]. */
    struct ibv_send_wr request = {
        .opcode = connection->poller->fabric->is_iwarp ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE};
    keepalive->is_asking = true;
    keepalive->asked_ns = connection->poller->now_ns;
    lane_post(&connection->lanes[0], &request, true, &posted);
}

static uint64_t silence_ns(const struct weir_connection *connection)
{
    return (uint64_t)connection->options.silence_timeout_ms * 1000000u;
}

/* Nothing has been heard for too long since it was asked. */
static bool is_overdue(const struct weir_connection *connection)
{
    const struct keepalive *keepalive = &connection->keepalive;
    uint64_t heard_ns = keepalive->heard_ns;
    uint64_t since_ns = heard_ns > keepalive->asked_ns ? heard_ns : keepalive->asked_ns;
    return keepalive->is_asking &&
           connection->poller->now_ns - since_ns >= silence_ns(connection) * 3 / TICKS;
}

static void tick(struct timer *timer)
{
    struct weir_connection *connection =
        (struct weir_connection *)((char *)timer -
                                   offsetof(struct weir_connection, keepalive.timer));
    struct keepalive *keepalive = &connection->keepalive;
    uint64_t now_ns = connection->poller->now_ns;
    if (is_overdue(connection) && !keepalive->has_heard) {
        /* The answer may be among what the program has been too busy to read. */
        poller_drain(connection->poller, UINT32_MAX);
    }
    if (connection->state != CONNECTION_OPEN && connection->state != CONNECTION_CLOSING) {
        return;
    }
    if (keepalive->has_heard) {
        keepalive->has_heard = false;
        keepalive->heard_ns = now_ns;
    }
    uint64_t heard_ns = keepalive->heard_ns;
    if (is_overdue(connection)) {
        connection_fail(connection, WEIR_PEER_LOST, "no sign of the peer for %.1f s",
                        (double)(now_ns - heard_ns) / 1e9);
        return;
    }
    if (!keepalive->is_asking && now_ns - heard_ns >= silence_ns(connection) / 2) {
        ask(connection);
    }
    poller_set_timer(connection->poller, timer, connection->options.silence_timeout_ms / TICKS);
}

void keepalive_start(struct weir_connection *connection)
{
    connection->keepalive.heard_ns = clock_now_ns();
    connection->keepalive.timer.fire = tick;
    poller_set_timer(connection->poller, &connection->keepalive.timer,
                     connection->options.silence_timeout_ms / TICKS);
}

void keepalive_stop(struct weir_connection *connection)
{
    timers_cancel(&connection->poller->timers, &connection->keepalive.timer);
}
