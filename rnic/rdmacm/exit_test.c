/* The end of a process that leaves nobody behind who would say its goodbyes: it says them itself,
 * and waits for the answer, but not for long. The peer is a bare cm in this process; who ends is a
 * child, on another address: so each is alone in a registry of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rnic/cm/cm.h"
#include "rnic/io/loop/loop.h"
#include "rnic/io/registry/registry.h"
#include "rnic/io/system/clock.h"

#define HERE        "127.0.0.2"
#define CHILD       "127.0.0.3"
#define PORT        7471
#define PATIENCE_MS 20000

enum manner {
    DISCONNECTS,
    JUST_ENDS
};

/* --- the child --- */

static void await(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(channel, &event) != 0 || event->event != type) {
        _exit(1);
    }
    rdma_ack_cm_event(event);
}

/* Until the other end is closed, here too. */
static void wait_for_close(const int ends[2])
{
    char none;
    close(ends[1]);
    if (read(ends[0], &none, 1) != 0) {
        _exit(6);
    }
}

/* `listens` is closed once there is somebody to connect to: else the request is refused. */
static void be_child(const int listens[2], const int words[2], enum manner manner)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct rdma_conn_param parameters = {0};
    struct rdma_cm_id *id;
    inet_pton(AF_INET, HERE, &address.sin_addr);
    setenv("WEIR_BIND", CHILD, 1);
    close(words[1]);
    wait_for_close(listens);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (channel == NULL || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0 ||
        rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000) != 0) {
        _exit(2);
    }
    await(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(id, 2000) != 0) {
        _exit(3);
    }
    await(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (rdma_create_qp(id, NULL, &init) != 0 || rdma_connect(id, &parameters) != 0) {
        _exit(4);
    }
    await(channel, RDMA_CM_EVENT_ESTABLISHED);
    char word;
    if (read(words[0], &word, 1) != 1) { /* the peer hears nothing from now on */
        _exit(5);
    }
    if (manner == DISCONNECTS) {
        rdma_disconnect(id);
        rdma_destroy_qp(id);
        rdma_destroy_id(id);
        rdma_destroy_event_channel(channel);
    }
    exit(0);
}

/* --- the peer --- */

struct peer {
    struct engine *engine;
    struct cm_listener *listener;
    pid_t child;
    int word; /* what the child waits for is written here */
};

/* True once the next event has come. A request is accepted. */
static bool next_event(struct peer *peer, enum cm_event_kind *ret_kind)
{
    const struct cm_parameters parameters = {.qpn = {0x1234}, .starting_psn = {1}};
    struct cm_event event;
    engine_lock(peer->engine);
    bool came = cm_next_event(peer->engine->cm, &event);
    if (came && event.kind == CM_EVENT_REQUEST) {
        assert_int_equal(cm_accept(event.connection, engine_now(peer->engine), &parameters),
                         STATUS_OK);
    }
    engine_unlock(peer->engine);
    *ret_kind = came ? event.kind : CM_EVENT_REQUEST;
    return came;
}

static bool event_has_come(struct peer *peer, enum cm_event_kind kind)
{
    enum cm_event_kind its;
    bool came = next_event(peer, &its);
    if (came) {
        assert_int_equal(its, kind);
    }
    return came;
}

/* So many of them, requests in between. */
static void expect_events(struct peer *peer, enum cm_event_kind kind, int count)
{
    for (int tries = 0; count > 0; tries++) {
        enum cm_event_kind its;
        if (tries == PATIENCE_MS) {
            fail_msg("event %d did not come", kind);
        }
        if (!next_event(peer, &its)) {
            poll(NULL, 0, 1);
        } else if (its != CM_EVENT_REQUEST) {
            assert_int_equal(its, kind);
            count--;
        }
    }
}

static void expect_event(struct peer *peer, enum cm_event_kind kind)
{
    for (int tries = 0; !event_has_come(peer, kind); tries++) {
        if (tries == PATIENCE_MS) {
            fail_msg("event %d did not come", kind);
        }
        poll(NULL, 0, 1);
    }
}

static bool child_has_ended(struct peer *peer)
{
    int status;
    pid_t ended = waitpid(peer->child, &status, WNOHANG);
    if (ended == peer->child) {
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    return ended == peer->child;
}

static void listen_here(struct peer *peer)
{
    setenv("WEIR_BIND", HERE, 1);
    assert_int_equal(loop_acquire(&peer->engine), STATUS_OK);
    engine_lock(peer->engine);
    assert_int_equal(cm_listen(peer->engine->cm, rdma_cm_service_id(RDMA_PS_TCP, PORT), NULL, 0,
                               NULL, &peer->listener),
                     STATUS_OK);
    engine_unlock(peer->engine);
}

/* The children, then the peer, for nothing of an engine may be there when a process forks. */
static void start_all(struct peer *peer, pid_t *children, int count, enum manner manner)
{
    int listens[2], words[2];
    assert_int_equal(pipe(listens), 0);
    assert_int_equal(pipe(words), 0);
    fflush(NULL);
    for (int i = 0; i < count; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            be_child(listens, words, manner);
        }
    }
    close(words[0]);
    peer->word = words[1];
    listen_here(peer);
    close(listens[0]);
    close(listens[1]);
}

static void start(struct peer *peer, enum manner manner)
{
    start_all(peer, &peer->child, 1, manner);
    expect_event(peer, CM_EVENT_REQUEST);
    expect_event(peer, CM_EVENT_ESTABLISHED);
}

static void finish(struct peer *peer)
{
    close(peer->word);
    loop_release(peer->engine);
}

/* While we hold our engine nothing is heard, so the child's goodbye is not answered. */
static void end_unheard(struct peer *peer, unsigned for_ms, bool ends)
{
    engine_lock(peer->engine);
    assert_int_equal(write(peer->word, "x", 1), 1);
    struct instant began = clock_now();
    while (instant_elapsed_ns(began, clock_now()) < for_ms * UINT64_C(1000000)) {
        if (child_has_ended(peer)) {
            engine_unlock(peer->engine);
            assert_true(ends);
            return;
        }
        poll(NULL, 0, 1);
    }
    engine_unlock(peer->engine);
    assert_false(ends);
    while (!child_has_ended(peer)) {
        poll(NULL, 0, 1);
    }
}

static void waits_for_the_answer(void **state)
{
    struct peer peer;
    start(&peer, DISCONNECTS);
    end_unheard(&peer, 300, false);
    expect_event(&peer, CM_EVENT_DISCONNECTED);
    finish(&peer);
}

static void says_goodbye_for_who_does_not(void **state)
{
    struct peer peer;
    start(&peer, JUST_ENDS);
    end_unheard(&peer, 300, false);
    expect_event(&peer, CM_EVENT_DISCONNECTED);
    finish(&peer);
}

static void does_not_wait_for_ever(void **state)
{
    struct peer peer;
    start(&peer, DISCONNECTS);
    end_unheard(&peer, PATIENCE_MS, true);
    finish(&peer);
}

/* Each of them sees the other live, and no third is left who would say their goodbyes. */
static void two_that_end_at_once_are_both_told_of(void **state)
{
    struct peer peer;
    pid_t children[2];
    start_all(&peer, children, 2, JUST_ENDS);
    expect_events(&peer, CM_EVENT_ESTABLISHED, 2);
    assert_int_equal(write(peer.word, "xx", 2), 2);
    expect_events(&peer, CM_EVENT_DISCONNECTED, 2);
    close(peer.word);
    for (int i = 0; i < 2; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    loop_release(peer.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_the_answer),
        cmocka_unit_test(says_goodbye_for_who_does_not),
        cmocka_unit_test(does_not_wait_for_ever),
        cmocka_unit_test(two_that_end_at_once_are_both_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
