/* Signals while a thread waits in a call of rsockets: the call goes on where the handler was
 * installed with SA_RESTART and fails with EINTR where not, as calls on a kernel's socket; and what
 * is closed loses nothing by either.
 *
 * A signal that comes before the thread is inside, or while it only spins, proves nothing: so each
 * comes several times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket_pair_test.h"

#define SIGNALS 5
#define APART   10000 /* us */

static _Atomic unsigned handled;

static void count(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void handle_signals(int flags)
{
    const struct sigaction action = {.sa_handler = count, .sa_flags = flags};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
}

/* Calls one thing in a thread, which has its signals while it is inside. */
struct caller {
    pthread_t thread;
    int descriptor;
    struct sockaddr_in address;
    atomic_bool is_done;
    ssize_t result;
    int error;
};

static void finish(struct caller *caller, ssize_t result)
{
    caller->error = errno;
    caller->result = result;
    atomic_store(&caller->is_done, true);
}

static void *receives(void *context)
{
    struct caller *caller = context;
    char byte;
    finish(caller, rrecv(caller->descriptor, &byte, 1, 0));
    return NULL;
}

/* Until it has to wait. */
static void *sends_much(void *context)
{
    static const char bytes[4096];
    struct caller *caller = context;
    ssize_t sent;
    do {
        sent = rsend(caller->descriptor, bytes, sizeof bytes, 0);
    } while (sent > 0);
    finish(caller, sent);
    return NULL;
}

static void *accepts(void *context)
{
    struct caller *caller = context;
    finish(caller, raccept(caller->descriptor, NULL, NULL));
    return NULL;
}

static void *connects(void *context)
{
    struct caller *caller = context;
    finish(caller, rconnect(caller->descriptor, (struct sockaddr *)&caller->address,
                            sizeof caller->address));
    return NULL;
}

static void *closes(void *context)
{
    struct caller *caller = context;
    finish(caller, rclose(caller->descriptor));
    return NULL;
}

static void *shuts_down(void *context)
{
    struct caller *caller = context;
    finish(caller, rshutdown(caller->descriptor, SHUT_WR));
    return NULL;
}

/* Sends signals until the call has ended, but no more than SIGNALS. */
static void disturb(struct caller *caller, void *(*run)(void *))
{
    atomic_store(&caller->is_done, false);
    assert_int_equal(pthread_create(&caller->thread, NULL, run, caller), 0);
    for (int i = 0; i < SIGNALS && !atomic_load(&caller->is_done); i++) {
        unsigned before = atomic_load(&handled);
        usleep(APART);
        assert_int_equal(pthread_kill(caller->thread, SIGUSR1), 0);
        while (atomic_load(&handled) == before && !atomic_load(&caller->is_done)) {
            usleep(100);
        }
    }
}

static void expect_result(struct caller *caller, ssize_t result)
{
    assert_int_equal(pthread_join(caller->thread, NULL), 0);
    assert_int_equal(caller->result, result);
}

static void expect_interrupted(struct caller *caller)
{
    expect_result(caller, -1);
    assert_int_equal(caller->error, EINTR);
}

static void a_reader_goes_on_or_not(void **state)
{
    struct caller caller;
    int client;
    connect_both(&client, &caller.descriptor);
    handle_signals(SA_RESTART);
    disturb(&caller, receives);
    assert_int_equal(rsend(client, "x", 1, 0), 1);
    expect_result(&caller, 1);
    handle_signals(0);
    disturb(&caller, receives);
    expect_interrupted(&caller);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(caller.descriptor), 0);
}

/* Two on one socket: one sleeps for the completion queue, the other one for him. */
static void who_waits_for_another_is_interrupted(void **state)
{
    struct caller one, other;
    int client;
    connect_both(&client, &one.descriptor);
    other.descriptor = one.descriptor;
    handle_signals(SA_RESTART);
    disturb(&one, receives);
    handle_signals(0);
    disturb(&other, sends_much);
    expect_interrupted(&other);
    assert_int_equal(rsend(client, "x", 1, 0), 1);
    expect_result(&one, 1);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(one.descriptor), 0);
}

static void who_accepts_goes_on_or_not(void **state)
{
    struct caller caller;
    caller.descriptor = listen_anywhere(&caller.address);
    int client = rsocket(AF_INET, SOCK_STREAM, 0);
    handle_signals(SA_RESTART);
    disturb(&caller, accepts);
    assert_false(atomic_load(&caller.is_done));
    assert_int_equal(rconnect(client, (struct sockaddr *)&caller.address, sizeof caller.address),
                     0);
    assert_int_equal(pthread_join(caller.thread, NULL), 0);
    assert_true(caller.result >= 0);
    assert_int_equal(rclose((int)caller.result), 0);
    handle_signals(0);
    disturb(&caller, accepts);
    expect_interrupted(&caller);
    assert_int_equal(rclose(client), 0);
    assert_int_equal(rclose(caller.descriptor), 0);
}

/* Who listens by rdma_cm does not answer. */
static void who_connects_is_interrupted(void **state)
{
    struct rdma_cm_id *listener;
    struct caller caller = {.address = loopback()};
    assert_int_equal(rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&caller.address), 0);
    assert_int_equal(rdma_listen(listener, 1), 0);
    caller.address.sin_port = rdma_get_src_port(listener);
    caller.descriptor = rsocket(AF_INET, SOCK_STREAM, 0);
    handle_signals(0);
    disturb(&caller, connects);
    expect_interrupted(&caller);
    disturb(&caller, connects);
    expect_result(&caller, -1);
    assert_int_equal(caller.error, EALREADY);
    assert_int_equal(rclose(caller.descriptor), 0);
    assert_int_equal(rdma_destroy_id(listener), 0);
}

/* With as many messages under way as the peer has places for, none of which it takes: the goodbye
 * has to wait. */
static void nothing_is_lost_by_a_signal(void *(*ends)(void *), int flags)
{
    enum {
        MESSAGES = 16,
        LENGTH = 100
    };
    static const char message[LENGTH];
    const int least = 1;
    char bytes[MESSAGES * LENGTH];
    struct caller caller;
    int listener = listen_anywhere(&caller.address);
    assert_int_equal(rsetsockopt(listener, SOL_RDMA, RDMA_RQSIZE, &least, sizeof least), 0);
    caller.descriptor = rsocket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(
        rconnect(caller.descriptor, (struct sockaddr *)&caller.address, sizeof caller.address), 0);
    int server = raccept(listener, NULL, NULL);
    for (int i = 0; i < MESSAGES; i++) {
        assert_int_equal(rsend(caller.descriptor, message, LENGTH, 0), LENGTH);
    }
    handle_signals(flags);
    disturb(&caller, ends);
    assert_int_equal(rrecv(server, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    assert_int_equal(rrecv(server, bytes, 1, 0), 0);
    expect_result(&caller, 0);
    if (ends != closes) {
        assert_int_equal(rclose(caller.descriptor), 0);
    }
    assert_int_equal(rclose(server), 0);
    assert_int_equal(rclose(listener), 0);
}

static void who_closes_loses_nothing(void **state)
{
    nothing_is_lost_by_a_signal(closes, 0);
    nothing_is_lost_by_a_signal(closes, SA_RESTART);
}

static void the_end_is_told_in_spite_of_signals(void **state)
{
    nothing_is_lost_by_a_signal(shuts_down, 0);
    nothing_is_lost_by_a_signal(shuts_down, SA_RESTART);
}

int main(void)
{
    alarm(60); /* who waits for what never comes */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_goes_on_or_not),
        cmocka_unit_test(who_waits_for_another_is_interrupted),
        cmocka_unit_test(who_accepts_goes_on_or_not),
        cmocka_unit_test(who_connects_is_interrupted),
        cmocka_unit_test(who_closes_loses_nothing),
        cmocka_unit_test(the_end_is_told_in_spite_of_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
