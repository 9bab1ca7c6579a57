/* Calls on rsockets that a careful program would not make, or not then, and what they do all the
 * same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket_pair_test.h"

/* rclose waits for as many sends as the queue was made for. */
static void queues_of_datagrams_in_use_keep_their_length(void **state)
{
    const int names[] = {RDMA_SQSIZE, RDMA_RQSIZE};
    const int longer = 1000;
    struct sockaddr_in address = loopback();
    int socket = rsocket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(rsetsockopt(socket, SOL_RDMA, RDMA_SQSIZE, &longer, sizeof longer), 0);
    assert_int_equal(rbind(socket, (struct sockaddr *)&address, sizeof address), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(rsetsockopt(socket, SOL_RDMA, names[i], &longer, sizeof longer), -1);
        assert_int_equal(errno, EINVAL);
    }
    assert_int_equal(rclose(socket), 0);
}

static void *write_to_pipe(void *end)
{
    usleep(20000);
    assert_int_equal(write(*(int *)end, "x", 1), 1);
    return NULL;
}

/* In milliseconds this is 2^32. */
static void a_timeout_of_fifty_days(void **state)
{
    struct timeval timeout = {.tv_sec = 4294967, .tv_usec = 296000};
    struct timeval negative = {.tv_sec = -1};
    pthread_t thread;
    fd_set readable;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    FD_ZERO(&readable);
    FD_SET(ends[0], &readable);
    assert_int_equal(rselect(ends[0] + 1, &readable, NULL, NULL, &negative), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(pthread_create(&thread, NULL, write_to_pipe, &ends[1]), 0);
    assert_int_equal(rselect(ends[0] + 1, &readable, NULL, NULL, &timeout), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(ends[0]);
    close(ends[1]);
}

/* Both may bind the port; while both do, none may listen. */
static void listening_that_fails_leaves_nothing_open(void **state)
{
    struct sockaddr_in address = loopback();
    socklen_t length = sizeof address;
    const int on = 1;
    int sockets[2];
    int any = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rbind(any, (struct sockaddr *)&address, length), 0);
    assert_int_equal(rgetsockname(any, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(rclose(any), 0);
    for (int i = 0; i < 2; i++) {
        sockets[i] = rsocket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(rsetsockopt(sockets[i], SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
        assert_int_equal(rbind(sockets[i], (struct sockaddr *)&address, length), 0);
    }
    assert_int_equal(rlisten(sockets[1], 4), -1);
    int before = dup(sockets[0]);
    assert_int_equal(rlisten(sockets[1], 4), -1);
    int after = dup(sockets[0]); /* the lowest that is free */
    assert_int_equal(after, before + 1);
    close(before);
    close(after);
    assert_int_equal(rclose(sockets[0]), 0);
    assert_int_equal(rlisten(sockets[1], 4), 0);
    assert_int_equal(rclose(sockets[1]), 0);
}

static void *receives(void *descriptor)
{
    char byte;
    ssize_t length = rrecv(*(int *)descriptor, &byte, 1, 0);
    return length == 0 ? descriptor : NULL;
}

/* As shutdown(2) of a TCP socket. */
static void who_reads_hears_that_there_is_nothing_to_read(void **state)
{
    struct sockaddr_in address = loopback();
    socklen_t length = sizeof address;
    pthread_t thread;
    void *ended;
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rbind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(rlisten(listener, 4), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, length), 0);
    int server = raccept(listener, NULL, NULL);
    assert_int_equal(pthread_create(&thread, NULL, receives, &server), 0);
    usleep(20000);
    assert_int_equal(rshutdown(server, SHUT_RD), 0);
    assert_int_equal(pthread_join(thread, &ended), 0);
    assert_non_null(ended);
    assert_int_equal(rsend(server, "x", 1, 0), 1);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(listener), 0);
}

struct setter {
    int descriptor;
    atomic_bool ends;
};

static void *set_sizes(void *context)
{
    const int sizes[] = {1 << 11, 1 << 26};
    struct setter *setter = context;
    for (unsigned i = 0; !atomic_load(&setter->ends); i++) {
        (void)rsetsockopt(setter->descriptor, SOL_SOCKET, SO_RCVBUF, &sizes[i % 2],
                          sizeof sizes[0]);
    }
    return NULL;
}

/* The size of a buffer changes while it is made. */
static void buffers_change_while_connecting(void **state)
{
    struct sockaddr_in address = loopback();
    socklen_t length = sizeof address;
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rbind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(rlisten(listener, 4), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&address, &length), 0);
    for (int round = 0; round < 100; round++) {
        struct setter setter = {.descriptor = rsocket(AF_INET, SOCK_STREAM, 0)};
        pthread_t thread;
        static char bytes[1 << 16];
        assert_int_equal(pthread_create(&thread, NULL, set_sizes, &setter), 0);
        assert_int_equal(rconnect(setter.descriptor, (struct sockaddr *)&address, length), 0);
        atomic_store(&setter.ends, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        int server = raccept(listener, NULL, NULL);
        ssize_t sent = rsend(server, bytes, sizeof bytes, MSG_DONTWAIT);
        assert_true(sent > 0);
        assert_int_equal(rrecv(setter.descriptor, bytes, (size_t)sent, MSG_WAITALL), sent);
        assert_int_equal(rclose(server), 0);
        assert_int_equal(rclose(setter.descriptor), 0);
    }
    assert_int_equal(rclose(listener), 0);
}

static void *send_one(void *descriptor)
{
    assert_int_equal(rsend(*(int *)descriptor, "x", 1, 0), 1);
    return NULL;
}

/* A sender waits for room, to tell of the first mapping. */
static void mapping_does_not_wait_for_a_sender(void **state)
{
    static char bytes[4096], others[4096];
    size_t sent = 0;
    ssize_t part;
    pthread_t thread;
    int client, server, mappings = 8;
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int listener = rsocket(AF_INET, SOCK_STREAM, 0);
    address = loopback();
    assert_int_equal(rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &mappings, sizeof mappings),
                     0);
    assert_int_equal(rbind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(rlisten(listener, 4), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&address, &length), 0);
    client = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, length), 0);
    server = raccept(listener, NULL, NULL);
    while ((part = rsend(client, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
        sent += (size_t)part;
    }
    /* More than an entry of the peer's table can say. */
    const size_t all = (UINT64_C(1) << 32) + 4096;
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *much = mmap(NULL, all, PROT_READ | PROT_WRITE, kind, -1, 0);
    assert_ptr_not_equal(much, MAP_FAILED);
    assert_int_equal(riomap(client, much, all, PROT_WRITE, 0, 0), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(munmap(much, all), 0);
    assert_int_equal(riomap(client, bytes, sizeof bytes, PROT_WRITE, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, send_one, &client), 0);
    usleep(100000); /* it waits, most likely */
    assert_int_equal(riomap(client, others, sizeof others, PROT_WRITE, 0, 8192), 8192);
    assert_int_equal(riounmap(client, others, sizeof others), 0);
    for (sent++; sent > 0; sent -= (size_t)part) {
        part = rrecv(server, others, sizeof others, 0);
        assert_true(part > 0);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(riounmap(client, bytes, sizeof bytes), 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(listener), 0);
}

#define BACKLOG 64
#define CLIENTS (2 * BACKLOG)

/* Until so many have something to say, and a while longer. */
static int count_connected(struct pollfd *clients, int wanted)
{
    for (int tries = 0; tries < 2000 && rpoll(clients, CLIENTS, 0) < wanted; tries++) {
        usleep(10000);
    }
    usleep(200000);
    return rpoll(clients, CLIENTS, 0);
}

static bool is_among(int descriptor, const struct pollfd *clients, const int *servers)
{
    bool is = false;
    for (int i = 0; i < CLIENTS; i++) {
        is |= clients[i].fd == descriptor || servers[i] == descriptor;
    }
    return is;
}

/* The others wait, and come in as the first are accepted. One that the program closes before it has
 * accepted it is not accepted any more. */
static void who_does_not_accept_gets_no_more_than_the_backlog(void **state)
{
    struct sockaddr_in address = loopback();
    socklen_t length = sizeof address;
    struct pollfd clients[CLIENTS];
    int servers[CLIENTS];
    int listener = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(rbind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(rlisten(listener, BACKLOG), 0);
    assert_int_equal(rgetsockname(listener, (struct sockaddr *)&address, &length), 0);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (struct pollfd){rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), POLLOUT, 0};
        bool is_there = rconnect(clients[i].fd, (struct sockaddr *)&address, length) == 0;
        assert_true(is_there || errno == EINPROGRESS);
    }
    /* Those that were being answered when the last one filled it come in, too: one, as a rule. */
    assert_in_range(count_connected(clients, BACKLOG), BACKLOG, BACKLOG + 48);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(rpoll(&ready, 1, 20000), 1);
        servers[i] = raccept(listener, NULL, NULL);
        assert_true(servers[i] >= 0);
    }
    assert_int_equal(count_connected(clients, CLIENTS), CLIENTS);

    int late = rsocket(AF_INET, SOCK_STREAM, 0), other = 0;
    assert_int_equal(rconnect(late, (struct sockaddr *)&address, length), 0);
    assert_int_equal(rpoll(&ready, 1, 20000), 1);
    while (other == listener || other == late || is_among(other, clients, servers) ||
           rclose(other) != 0) {
        assert_true(++other < 10000);
    }
    assert_int_equal(raccept(listener, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(rclose(late), 0);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(rclose(clients[i].fd), 0);
        assert_int_equal(rclose(servers[i]), 0);
    }
    assert_int_equal(rclose(listener), 0);
}

int main(void)
{
    alarm(60); /* who waits for what never comes */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_of_datagrams_in_use_keep_their_length),
        cmocka_unit_test(a_timeout_of_fifty_days),
        cmocka_unit_test(listening_that_fails_leaves_nothing_open),
        cmocka_unit_test(who_reads_hears_that_there_is_nothing_to_read),
        cmocka_unit_test(buffers_change_while_connecting),
        cmocka_unit_test(mapping_does_not_wait_for_a_sender),
        cmocka_unit_test(who_does_not_accept_gets_no_more_than_the_backlog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
