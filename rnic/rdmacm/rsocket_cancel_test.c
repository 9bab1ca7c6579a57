/* Threads that wait in calls of rsockets are cancelled: the others on the same socket go on, and
 * nothing stays behind (of a socket that was closed, its descriptor would).
 *
 * A thread that is not inside yet is cancelled there a moment later: no test waits for one to be
 * inside, they only make it likely. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket_codec.h"
#include "rnic/rdmacm/rsocket_pair_test.h"

#define INSIDE_US  20000
#define PATIENCE_S 60
#define LONG       (1u << 20) /* more than the buffers of both ends */

struct caller {
    pthread_t thread;
    sem_t begins;
    int descriptor;
    struct sockaddr_in address;
};

static void begin(struct caller *caller, int descriptor, void *(*run)(void *))
{
    caller->descriptor = descriptor;
    assert_int_equal(sem_init(&caller->begins, 0, 0), 0);
    assert_int_equal(pthread_create(&caller->thread, NULL, run, caller), 0);
    sem_wait(&caller->begins);
    usleep(INSIDE_US);
}

static void cancel(struct caller *caller)
{
    void *result;
    assert_int_equal(pthread_cancel(caller->thread), 0);
    assert_int_equal(pthread_join(caller->thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    sem_destroy(&caller->begins);
}

static void *receives(void *context)
{
    struct caller *caller = context;
    char byte;
    sem_post(&caller->begins);
    (void)rrecv(caller->descriptor, &byte, 1, 0);
    return NULL;
}

static void *sends(void *context)
{
    static const char bytes[LONG];
    struct caller *caller = context;
    sem_post(&caller->begins);
    return rsend(caller->descriptor, bytes, sizeof bytes, 0) == sizeof bytes ? context : NULL;
}

static void *polls(void *context)
{
    struct caller *caller = context;
    struct pollfd one = {caller->descriptor, POLLIN, 0};
    sem_post(&caller->begins);
    (void)rpoll(&one, 1, -1);
    return NULL;
}

static void *accepts(void *context)
{
    struct caller *caller = context;
    sem_post(&caller->begins);
    (void)raccept(caller->descriptor, NULL, NULL);
    return NULL;
}

static void *connects(void *context)
{
    struct caller *caller = context;
    sem_post(&caller->begins);
    (void)rconnect(caller->descriptor, (struct sockaddr *)&caller->address, sizeof caller->address);
    return NULL;
}

static void *closes(void *context)
{
    struct caller *caller = context;
    sem_post(&caller->begins);
    (void)rclose(caller->descriptor);
    return NULL;
}

static void expect_closed(int descriptor)
{
    assert_int_equal(fcntl(descriptor, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
}

/* The reader sleeps for both; then another one reads, and the writer ends. */
static void a_reader_and_a_writer(void **state)
{
    static char bytes[LONG];
    struct caller reader = {0};
    struct caller writer = {0};
    int client;
    int server;
    void *done;
    connect_both(&client, &server);
    begin(&reader, client, receives);
    begin(&writer, client, sends);
    cancel(&reader);
    assert_int_equal(rrecv(server, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    assert_int_equal(pthread_join(writer.thread, &done), 0);
    assert_non_null(done);
    assert_int_equal(rsend(server, "x", 1, 0), 1);
    assert_int_equal(rrecv(client, bytes, 1, 0), 1);

    begin(&writer, client, sends);
    cancel(&writer);
    for (int i = 0; i < 4; i++) { /* whatever it has sent; then there is room again */
        (void)rrecv(server, bytes, sizeof bytes, MSG_DONTWAIT);
    }
    assert_int_equal(rsend(client, "x", 1, 0), 1);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(server), 0);
    expect_closed(client);
    expect_closed(server);
}

static void *overwrite_the_stack(void *context)
{
    volatile char bytes[1 << 16];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = 0x55;
    }
    return context;
}

static void a_poller(void **state)
{
    struct caller first = {0};
    pthread_t other;
    int client;
    int server;
    char byte;
    connect_both(&client, &server);
    begin(&first, server, polls);
    cancel(&first);
    assert_int_equal(pthread_create(&other, NULL, overwrite_the_stack, NULL), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(rsend(client, "x", 1, 0), 1);
    struct pollfd one = {server, POLLIN, 0};
    assert_int_equal(rpoll(&one, 1, -1), 1);
    assert_int_equal(rrecv(server, &byte, 1, 0), 1);
    assert_int_equal(rclose(client), 0); /* wakes pollers */
    assert_int_equal(rclose(server), 0);
    expect_closed(server);
}

static void who_waits_for_connections(void **state)
{
    struct caller caller = {0};
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    begin(&caller, listener, accepts);
    cancel(&caller);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, sizeof address), 0);
    int server = raccept(listener, NULL, NULL);
    assert_true(server >= 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(listener), 0);
    expect_closed(listener);
}

static struct rdma_cm_id *listen_by_hand(struct sockaddr_in *ret_address)
{
    struct rdma_cm_id *listener;
    *ret_address = loopback();
    assert_int_equal(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)ret_address), 0);
    assert_int_equal(rdma_listen(listener, 4), 0);
    ret_address->sin_port = rdma_get_src_port(listener);
    return listener;
}

/* To somebody who does not answer. */
static void who_waits_for_a_connection(void **state)
{
    struct caller caller = {0};
    struct rdma_cm_id *mute = listen_by_hand(&caller.address);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    begin(&caller, client, connects);
    cancel(&caller);
    assert_int_equal(rclose(client), 0);
    expect_closed(client);
    assert_int_equal(rdma_destroy_id(mute), 0);
}

/* Accepts a stream that it has no receives for: who closes that waits, for its goodbye is not
 * taken. Returns the stream. */
static int connect_to_deaf(struct rdma_cm_id *listener, const struct sockaddr_in *address,
                           struct rdma_cm_id **ret_deaf)
{
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
    struct rsocket_hello hello = {.credits = 8, .table = {.length = RSOCKET_TARGETS}};
    uint8_t bytes[RSOCKET_HELLO_LENGTH];
    struct rdma_conn_param param = {
        .private_data = bytes, .private_data_len = sizeof bytes, .rnr_retry_count = 7};
    struct pollfd ready = {.events = POLLOUT};
    ready.fd = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rfcntl(ready.fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rconnect(ready.fd, (const struct sockaddr *)address, sizeof *address), -1);
    assert_int_equal(errno, EINPROGRESS);
    assert_int_equal(rdma_get_request(listener, ret_deaf), 0);
    assert_int_equal(rdma_create_qp(*ret_deaf, NULL, &init), 0);
    rsocket_hello_build(&hello, bytes);
    assert_int_equal(rdma_accept(*ret_deaf, &param), 0);
    while (rconnect(ready.fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
           errno == EALREADY) {
        usleep(1000);
    }
    assert_int_equal(errno, EISCONN);
    assert_int_equal(rfcntl(ready.fd, F_SETFL, 0), 0);
    return ready.fd;
}

static void who_closes(void **state)
{
    struct caller reader = {0};
    struct caller caller = {0};
    struct sockaddr_in address;
    struct rdma_cm_id *deaf;
    struct rdma_cm_id *listener = listen_by_hand(&address);
    int client = connect_to_deaf(listener, &address, &deaf);
    begin(&reader, client, receives);
    begin(&caller, client, closes);
    cancel(&caller);
    assert_int_equal(pthread_join(reader.thread, NULL), 0);
    sem_destroy(&reader.begins);
    expect_closed(client);
    rdma_destroy_ep(deaf);
    rdma_destroy_ep(listener);
}

static void a_reader_and_a_poller_of_datagrams(void **state)
{
    struct sockaddr_in address = loopback();
    socklen_t length = sizeof address;
    struct caller reader = {0};
    struct caller poller = {0};
    char byte;
    int server = rsocket(AF_INET, SOCK_DGRAM, 0);
    int client = rsocket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(rbind(server, (struct sockaddr *)&address, length), 0);
    assert_int_equal(rgetsockname(server, (struct sockaddr *)&address, &length), 0);
    begin(&reader, server, receives);
    begin(&poller, server, polls);
    cancel(&reader);
    cancel(&poller);
    assert_int_equal(rsendto(client, "x", 1, 0, (struct sockaddr *)&address, length), 1);
    assert_int_equal(rrecv(server, &byte, 1, 0), 1);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(server), 0);
    expect_closed(client);
    expect_closed(server);
}

int main(void)
{
    alarm(PATIENCE_S); /* who waits for a lock that is lost */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_and_a_writer),
        cmocka_unit_test(a_poller),
        cmocka_unit_test(who_waits_for_connections),
        cmocka_unit_test(who_waits_for_a_connection),
        cmocka_unit_test(who_closes),
        cmocka_unit_test(a_reader_and_a_poller_of_datagrams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
