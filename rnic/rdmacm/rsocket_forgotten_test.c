/* A peer that has begun anew, and so forgot the connection that an rsocket still has with it: it
 * asks for another one with the same queue pair, and to the question that this raises it answers
 * that it knows of nothing. The peer is a bare cm in this process, and then a handler of messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <string.h>

#include "rnic/cm/cm.h"
#include "rnic/io/loop/loop.h"
#include "rnic/rdmacm/rsocket_codec.h"

#define PATIENCE_MS 10000
#define QPN         0x1234u
#define PSN         1u
#define MTU         PATH_MTU_1024
#define ACK_TIMEOUT 20u /* its queue pair does not answer: not to be noticed in this test */

static struct engine *peer;

static const struct path path = {
    .local = {{[10] = 0xff, 0xff, 127, 0, 0, 1}},
    .remote = {{[10] = 0xff, 0xff, 127, 0, 0, 1}},
};

static int listen_here(uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rbind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(rlisten(listener, 4), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&address, &length), 0);
    *ret_port = ntohs(address.sin_port);
    return listener;
}

static void greet(uint8_t *ret_data)
{
    const struct rdma_cm_header header = {
        .ip_version = 4, .port = 1, .source = path.local, .destination = path.remote};
    const struct rsocket_hello hello = {.credits = 8, .table = {.length = RSOCKET_TARGETS}};
    rdma_cm_header_build(&header, ret_data);
    rsocket_hello_build(&hello, ret_data + RDMA_CM_HEADER_LENGTH);
}

static void connect_peer(uint16_t port)
{
    struct cm_connect_request request = {
        .path = path,
        .service_id = rdma_cm_service_id(RDMA_PS_TCP, port),
        .parameters = {.qpn = {QPN},
                       .starting_psn = {PSN},
                       .path_mtu = MTU,
                       .retry_count = 7,
                       .ack_timeout = ACK_TIMEOUT,
                       .private_length = CM_REQ_PRIVATE_MAX},
    };
    struct cm_connection *connection;
    struct cm_event event;
    bool came = false;
    greet(request.parameters.private_data);
    assert_int_equal(loop_acquire(&peer), STATUS_OK);
    engine_lock(peer);
    assert_int_equal(cm_connect(peer->cm, engine_now(peer), &request, &connection), STATUS_OK);
    engine_unlock(peer);
    for (int tries = 0; !came; tries++) {
        assert_true(tries < PATIENCE_MS);
        poll(NULL, 0, 1);
        engine_lock(peer);
        came = cm_next_event(peer->cm, &event);
        engine_unlock(peer);
    }
    assert_int_equal(event.kind, CM_EVENT_REPLY);
    engine_lock(peer);
    assert_int_equal(cm_confirm(connection, engine_now(peer)), STATUS_OK);
    engine_unlock(peer);
}

static void send_message(const struct cm_message *message)
{
    uint8_t mad[MAD_LENGTH];
    cm_message_build(message, mad);
    assert_int_equal(device_send_management(peer->device, &path, mad, sizeof mad), STATUS_OK);
}

/* "I know of nothing." */
static void answer(struct management_handler *handler, struct instant now,
                   const struct arrival *arrival, struct qpn source, const uint8_t *mad,
                   uint32_t length)
{
    struct cm_message message;
    if (cm_message_parse(mad, length, &message) == STATUS_OK && message.kind == CM_MESSAGE_DREQ) {
        const struct cm_message reply = {
            .kind = CM_MESSAGE_DREP,
            .transaction = message.transaction,
            .local_id = message.remote_id,
            .remote_id = message.local_id,
        };
        send_message(&reply);
    }
}

static struct management_handler forgetful = {.receive = answer};

static void begin_anew(uint16_t port)
{
    struct cm_message request = {
        .kind = CM_MESSAGE_REQ,
        .transaction = 7,
        .local_id = 7,
        .service_id = rdma_cm_service_id(RDMA_PS_TCP, port),
        .local_qpn = {QPN},
        .starting_psn = {PSN},
        .path_mtu = MTU,
        .max_cm_retries = 15,
        .pkey = PKEY_DEFAULT,
        .path = path,
    };
    greet(request.private_data);
    engine_lock(peer);
    device_set_management(peer->device, &forgetful);
    send_message(&request);
    engine_unlock(peer);
}

static void a_forgotten_connection_ends(void **state)
{
    uint16_t port;
    int error;
    char byte;
    socklen_t length = sizeof error;
    int listener = listen_here(&port);
    connect_peer(port);
    struct pollfd wait = {.fd = raccept(listener, NULL, NULL), .events = POLLIN};
    assert_true(wait.fd >= 0);
    begin_anew(port);
    assert_int_equal(rpoll(&wait, 1, PATIENCE_MS), 1);
    assert_int_equal(rgetsockopt(wait.fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
    assert_int_equal(error, ECONNRESET);
    assert_int_equal(rrecv(wait.fd, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(rclose(wait.fd), 0);
    assert_int_equal(rclose(listener), 0);
    loop_release(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_forgotten_connection_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
