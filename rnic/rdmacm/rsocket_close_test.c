/* rclose while other threads are inside calls on the same rsocket: each of them ends, with EBADF,
 * and the socket's memory lasts until the last has left (for AddressSanitizer to see).
 *
 * A thread that comes too late finds no socket, and says EBADF as well: no test waits for one to be
 * inside, they only make it likely. */
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
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket_pair_test.h"

#define INSIDE_US 20000

/* A thread that makes one kind of call until it fails. */
struct caller {
    pthread_t thread;
    sem_t begins;
    int descriptor;
    struct sockaddr_in address;
    int error;
};

static void begin(struct caller *caller, int descriptor, void *(*run)(void *))
{
    caller->descriptor = descriptor;
    assert_int_equal(sem_init(&caller->begins, 0, 0), 0);
    assert_int_equal(pthread_create(&caller->thread, NULL, run, caller), 0);
    sem_wait(&caller->begins);
}

static void expect_bad_descriptor(struct caller *caller)
{
    assert_int_equal(pthread_join(caller->thread, NULL), 0);
    assert_int_equal(caller->error, EBADF);
    sem_destroy(&caller->begins);
}

static void *receives(void *context)
{
    struct caller *caller = context;
    char bytes[64];
    sem_post(&caller->begins);
    /* rclose ends the stream before it takes the descriptor: who looks in between sees the end. */
    ssize_t length = rrecv(caller->descriptor, bytes, sizeof bytes, 0);
    caller->error = length < 0 ? errno : length == 0 ? EBADF : 0;
    return NULL;
}

static void *sends(void *context)
{
    static const char bytes[65536];
    struct caller *caller = context;
    sem_post(&caller->begins);
    while (rsend(caller->descriptor, bytes, sizeof bytes, 0) > 0) {
    }
    caller->error = errno;
    return NULL;
}

static void *accepts(void *context)
{
    struct caller *caller = context;
    sem_post(&caller->begins);
    caller->error = raccept(caller->descriptor, NULL, NULL) < 0 ? errno : 0;
    return NULL;
}

static void *connects(void *context)
{
    struct caller *caller = context;
    sem_post(&caller->begins);
    int result =
        rconnect(caller->descriptor, (struct sockaddr *)&caller->address, sizeof caller->address);
    caller->error = result < 0 ? errno : 0;
    return NULL;
}

/* POLLNVAL is poll's word for EBADF. */
static void *polls(void *context)
{
    struct caller *caller = context;
    struct pollfd one = {caller->descriptor, POLLIN, 0};
    sem_post(&caller->begins);
    while (rpoll(&one, 1, -1) == 1 && one.revents != POLLNVAL) {
        /* in between: the stream's end, as for who receives */
    }
    caller->error = one.revents == POLLNVAL ? EBADF : 0;
    return NULL;
}

static void *closes(void *context)
{
    struct caller *caller = context;
    sem_post(&caller->begins);
    caller->error = rclose(caller->descriptor) != 0 ? errno : 0;
    return NULL;
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

/* Those inside are the parent's threads. */
static void close_in_child(int descriptor)
{
#ifndef __SANITIZE_THREAD__ /* which follows no fork of a process with threads */
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(rclose(descriptor) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
#endif
}

/* Readers, writers and pollers of one stream, whose peer reads nothing. */
static void everybody_inside_a_stream_leaves(void **state)
{
    void *(*const kinds[])(void *) = {receives, receives, sends, sends, polls, polls};
    struct caller callers[sizeof kinds / sizeof *kinds] = {0};
    for (int round = 0; round < 5; round++) {
        int client;
        int server;
        connect_both(&client, &server);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            begin(&callers[i], client, kinds[i]);
        }
        usleep(INSIDE_US);
        close_in_child(client);
        assert_int_equal(rclose(client), 0);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            expect_bad_descriptor(&callers[i]);
        }
        assert_int_equal(rclose(server), 0);
    }
}

static void who_waits_for_connections_leaves(void **state)
{
    struct sockaddr_in address;
    struct caller first = {0};
    struct caller second = {0};
    struct caller poller = {0};
    int listener = listen_anywhere(&address);
    begin(&first, listener, accepts);
    begin(&second, listener, accepts);
    begin(&poller, listener, polls);
    usleep(INSIDE_US);
    assert_int_equal(rclose(listener), 0);
    expect_bad_descriptor(&first);
    expect_bad_descriptor(&second);
    expect_bad_descriptor(&poller);
}

/* To somebody who never answers. */
static void who_waits_for_a_connection_leaves(void **state)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *mute;
    struct caller caller = {.address = loopback()};
    assert_int_equal(rdma_create_id(channel, &mute, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(mute, (struct sockaddr *)&caller.address), 0);
    assert_int_equal(rdma_listen(mute, 4), 0);
    caller.address.sin_port = rdma_get_src_port(mute);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    begin(&caller, client, connects);
    usleep(INSIDE_US);
    close_in_child(client);
    assert_int_equal(rclose(client), 0);
    expect_bad_descriptor(&caller);
    rdma_destroy_id(mute);
    rdma_destroy_event_channel(channel);
}

static void everybody_inside_a_datagram_socket_leaves(void **state)
{
    struct sockaddr_in address = loopback();
    struct caller first = {0};
    struct caller second = {0};
    struct caller poller = {0};
    int socket = rsocket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(rbind(socket, (struct sockaddr *)&address, sizeof address), 0);
    begin(&first, socket, receives);
    begin(&second, socket, receives);
    begin(&poller, socket, polls);
    usleep(INSIDE_US);
    close_in_child(socket);
    assert_int_equal(rclose(socket), 0);
    expect_bad_descriptor(&first);
    expect_bad_descriptor(&second);
    expect_bad_descriptor(&poller);
}

static void of_two_who_close_one_succeeds(void **state)
{
    for (int round = 0; round < 20; round++) {
        struct caller callers[2] = {0};
        int socket = rsocket(AF_INET, SOCK_STREAM, 0);
        begin(&callers[0], socket, closes);
        begin(&callers[1], socket, closes);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
            sem_destroy(&callers[i].begins);
        }
        assert_int_equal(callers[0].error + callers[1].error, EBADF);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_inside_a_stream_leaves),
        cmocka_unit_test(who_waits_for_connections_leaves),
        cmocka_unit_test(who_waits_for_a_connection_leaves),
        cmocka_unit_test(everybody_inside_a_datagram_socket_leaves),
        cmocka_unit_test(of_two_who_close_one_succeeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
