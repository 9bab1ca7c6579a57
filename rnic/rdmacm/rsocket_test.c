/* rsockets against each other within a process. */
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
#include <rdma/rsocket.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket_pair_test.h"

#define PATIENCE_MS 20000

static void half_close_loses_no_bytes(void **state)
{
    int client;
    int server;
    char bytes[16];
    connect_both(&client, &server);
    assert_int_equal(rsend(client, "question", 8, 0), 8);
    assert_int_equal(rshutdown(client, SHUT_WR), 0);
    assert_int_equal(rsend(client, "more", 4, 0), -1);
    assert_int_equal(rrecv(server, bytes, sizeof bytes, MSG_WAITALL), 8);
    assert_int_equal(rrecv(server, bytes, sizeof bytes, 0), 0);
    assert_int_equal(rsend(server, "answer", 6, 0), 6);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rrecv(client, bytes, 3, MSG_PEEK), 3);
    assert_int_equal(rrecv(client, bytes, sizeof bytes, MSG_WAITALL), 6);
    assert_memory_equal(bytes, "answer", 6);
    assert_int_equal(rrecv(client, bytes, sizeof bytes, 0), 0);
    assert_int_equal(rclose(client), 0);
}

static void polling_mixes_with_ordinary_descriptors(void **state)
{
    int client;
    int server;
    int ends[2];
    char byte;
    connect_both(&client, &server);
    assert_int_equal(pipe(ends), 0);
    struct pollfd both[] = {{server, POLLIN, 0}, {ends[0], POLLIN, 0}};
    assert_int_equal(rpoll(both, 2, 20), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(rpoll(both, 2, PATIENCE_MS), 1);
    assert_int_equal(both[1].revents, POLLIN);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(rsend(client, "y", 1, 0), 1);
    assert_int_equal(rpoll(both, 2, PATIENCE_MS), 1);
    assert_int_equal(both[0].revents, POLLIN);
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(server, &readable);
    FD_SET(ends[0], &readable);
    struct timeval timeout = {10, 0};
    int most = server > ends[0] ? server : ends[0];
    assert_int_equal(rselect(most + 1, &readable, NULL, NULL, &timeout), 1);
    assert_true(FD_ISSET(server, &readable));
    assert_int_equal(rfcntl(server, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rrecv(server, &byte, 1, 0), 1);
    assert_int_equal(rrecv(server, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
    rclose(server);
    rclose(client);
    close(ends[0]);
    close(ends[1]);
}

/* A peer that has gone is no reason to wait: what is sent now fails at once. */
static void who_waits_to_write_hears_that_the_peer_has_gone(void **state)
{
    int client;
    int server;
    char byte;
    fd_set writable;
    struct timeval timeout = {PATIENCE_MS / 1000, 0};
    connect_both(&client, &server);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rrecv(client, &byte, 1, 0), 0);
    FD_ZERO(&writable);
    FD_SET(client, &writable);
    assert_int_equal(rselect(client + 1, NULL, &writable, NULL, &timeout), 1);
    assert_true(FD_ISSET(client, &writable));
    struct pollfd ready = {client, POLLOUT, 0};
    assert_int_equal(rpoll(&ready, 1, PATIENCE_MS), 1);
    assert_int_equal(ready.revents, POLLOUT | POLLHUP);
    assert_int_equal(rsend(client, "x", 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    assert_int_equal(rclose(client), 0);
}

static void events_have_two_names(void **state)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    struct pollfd ready = {listener, POLLRDNORM, 0};
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(rpoll(&ready, 1, PATIENCE_MS), 1);
    assert_int_equal(ready.revents, POLLRDNORM);
    int server = raccept(listener, NULL, NULL);
    assert_int_equal(rsend(client, "x", 1, 0), 1);
    struct pollfd both[] = {{server, POLLRDNORM, 0}, {client, POLLWRNORM, 0}};
    assert_true(rpoll(both, 1, PATIENCE_MS) == 1 && rpoll(both, 2, PATIENCE_MS) == 2);
    assert_int_equal(both[0].revents, POLLRDNORM);
    assert_int_equal(both[1].revents, POLLWRNORM);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(listener), 0);
}

/* As accept(2) has it on Linux. */
static void what_is_accepted_has_no_flags(void **state)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    assert_int_equal(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(rfcntl(listener, F_SETFD, FD_CLOEXEC), 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(rpoll(&ready, 1, PATIENCE_MS), 1);
    int server = raccept(listener, NULL, NULL);
    assert_true(server >= 0);
    assert_int_equal(rfcntl(server, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(rfcntl(server, F_GETFD), 0);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(listener), 0);
}

static void nobody_listens(void **state)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    rclose(listener);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, sizeof address), -1);
    assert_int_equal(errno, ECONNREFUSED);
    socklen_t length = sizeof address;
    assert_int_equal(rgetpeername(client, (struct sockaddr *)&address, &length), -1);
    assert_int_equal(errno, ENOTCONN);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(client), -1);
    assert_int_equal(errno, EBADF);
}

/* The connection stays the parent's; the child has rsockets of its own. */
static void a_child_closes_what_it_inherits(void **state)
{
    int client;
    int server;
    int status;
    char byte;
    connect_both(&client, &server);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_MS / 1000);
        bool refuses = rsend(client, "x", 1, 0) == -1 && rrecv(server, &byte, 1, 0) == -1;
        bool closes = rclose(client) == 0 && rclose(server) == 0;
        connect_both(&client, &server);
        bool works = rsend(client, "x", 1, 0) == 1 && rrecv(server, &byte, 1, 0) == 1;
        _exit(refuses && closes && works ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rsend(client, "x", 1, 0), 1);
    assert_int_equal(rrecv(server, &byte, 1, 0), 1);
    rclose(client);
    rclose(server);
}

/* As servers do that fork: the child has no use for the listener, and the parent goes on with it.
 */
static void a_child_closes_the_listener(void **state)
{
    struct sockaddr_in address;
    int listener = listen_anywhere(&address);
    int status;
    assert_int_equal(rfcntl(listener, F_SETFL, O_NONBLOCK), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_MS / 1000);
        _exit(rclose(listener) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(raccept(listener, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(rfcntl(listener, F_SETFL, 0), 0);
    assert_int_equal(rconnect(client, (struct sockaddr *)&address, sizeof address), 0);
    int server = raccept(listener, NULL, NULL);
    assert_true(server >= 0);
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(listener), 0);
}

#define LONG_LENGTH (4u << 20)

/* As many as the buffer that was asked for has places, with nobody reading meanwhile. */
static void a_late_reader_finds_every_datagram(void **state)
{
    enum {
        COUNT = 384,
        LENGTH = 1000,
        BUFFER = 1 << 19
    };
    const int buffer = BUFFER;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    struct sockaddr *name = (struct sockaddr *)&address;
    uint8_t bytes[2048] = {0};
    bool seen[COUNT] = {false};
    int reader = rsocket(AF_INET, SOCK_DGRAM, 0);
    int writer = rsocket(AF_INET, SOCK_DGRAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(rsetsockopt(reader, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer), 0);
    assert_int_equal(rbind(reader, name, length), 0);
    assert_int_equal(rgetsockname(reader, name, &length), 0);
    assert_int_equal(rconnect(writer, name, length), 0);
    assert_int_equal(rsend(writer, bytes, 1, 0), 1);
    assert_int_equal(rrecvfrom(reader, bytes, sizeof bytes, 0, name, &length), 1);
    assert_int_equal(rsendto(reader, bytes, 1, 0, name, length), 1);
    assert_int_equal(rrecv(writer, bytes, sizeof bytes, 0), 1);
    for (uint32_t i = 0; i < COUNT; i++) {
        memcpy(bytes, &i, sizeof i);
        assert_int_equal(rsend(writer, bytes, LENGTH, 0), LENGTH);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        struct pollfd wait = {.fd = reader, .events = POLLIN};
        uint32_t number;
        assert_int_equal(rpoll(&wait, 1, PATIENCE_MS), 1);
        assert_int_equal(rrecv(reader, bytes, sizeof bytes, MSG_DONTWAIT), LENGTH);
        memcpy(&number, bytes, sizeof number);
        assert_true(number < COUNT && !seen[number]);
        seen[number] = true;
    }
    assert_int_equal(rclose(writer), 0);
    assert_int_equal(rclose(reader), 0);
}

static void *send_much(void *context)
{
    int socket = *(int *)context;
    static const char bytes[LONG_LENGTH]; /* two threads send it */
    return (void *)(uintptr_t)(rsend(socket, bytes, sizeof bytes, 0) == sizeof bytes);
}

/* Each end sends with one thread and receives with another: more than either's buffers hold. */
static void both_ways_at_once(void **state)
{
    int ends[2];
    pthread_t senders[2];
    static char bytes[LONG_LENGTH];
    connect_both(&ends[0], &ends[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&senders[i], NULL, send_much, &ends[i]), 0);
    }
    for (size_t taken[2] = {0}; taken[0] < sizeof bytes || taken[1] < sizeof bytes;) {
        for (int i = 0; i < 2; i++) {
            struct pollfd wait = {ends[i], POLLIN, 0};
            if (taken[i] < sizeof bytes && rpoll(&wait, 1, 1) == 1) {
                ssize_t part = rrecv(ends[i], bytes, sizeof bytes - taken[i], 0);
                assert_true(part > 0);
                taken[i] += (size_t)part;
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        void *done;
        pthread_join(senders[i], &done);
        assert_non_null(done);
    }
    rclose(ends[0]);
    rclose(ends[1]);
}

int main(void)
{
    alarm(60); /* who waits for what never comes */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_close_loses_no_bytes),
        cmocka_unit_test(polling_mixes_with_ordinary_descriptors),
        cmocka_unit_test(who_waits_to_write_hears_that_the_peer_has_gone),
        cmocka_unit_test(events_have_two_names),
        cmocka_unit_test(what_is_accepted_has_no_flags),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_child_closes_what_it_inherits),
        cmocka_unit_test(a_child_closes_the_listener),
        cmocka_unit_test(both_ways_at_once),
        cmocka_unit_test(a_late_reader_finds_every_datagram),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
