/* The engine with its thread, over real sockets of loopback: who drives, who is woken, what fork
 * and death leave. Shares UDP 4791 with whatever else of this user runs on the host. */
#include "rnic/io/loop/loop.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "rnic/base/heap.h"
#include "rnic/cm/cm.h"
#include "rnic/device/device.h"
#include "rnic/io/loop/loop_ends_test.h"
#include "rnic/io/loop/loop_private.h"
#include "rnic/io/registry/registry.h"
#include "rnic/io/system/notify.h"
#include "rnic/queue/completion_queue.h"
#include "rnic/wire/psn.h"

#ifdef __SANITIZE_THREAD__
/* Children of a process with threads make threads of their own here. */
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "die_after_fork=0";
}
#endif

static void one_engine_for_all_users(void **state)
{
    struct engine *one, *other;
    assert_int_equal(loop_acquire(&one), STATUS_OK);
    assert_int_equal(loop_acquire(&other), STATUS_OK);
    assert_ptr_equal(one, other);
    assert_true(loop_is_ours(one));
    assert_string_equal(loop_last_error(), "");
    uint32_t slot = registry_slot(loop_registry(one));
    assert_true(registry_slot_is_used(loop_registry(one), slot));
    loop_release(other);
    engine_drive(one);
    loop_release(one);

    assert_int_equal(loop_acquire(&one), STATUS_OK); /* the next life has another slot */
    assert_int_not_equal(registry_slot(loop_registry(one)), slot);
    loop_release(one);
}

static void polling_threads_drive(void **state)
{
    struct end *a = create_end(), *b = create_end();
    connect_both(a, b);
    for (uint32_t i = 0; i < 500; i++) {
        a->buffer[0] = (uint8_t)i;
        post_receive(b);
        post(a, WORK_SEND, 1 + i * 100, NULL);
        poll_one(a);
        poll_one(b);
        assert_int_equal(b->buffer[0], (uint8_t)i);
    }
    destroy_end(a);
    destroy_end(b);
}

static void sleeping_receiver_is_woken_every_time(void **state)
{
    struct end *a = create_end(), *b = create_end();
    connect_both(a, b);
    for (uint32_t i = 0; i < 2000; i++) {
        post_receive(b);
        post(a, WORK_SEND, 64, NULL);
        assert_int_equal(wait_one(b), COMPLETION_SUCCESS);
        assert_int_equal(wait_one(a), COMPLETION_SUCCESS);
        if (i % 50 == 0) { /* a burst of polling, so that the thread dozes when it is needed */
            for (uint32_t j = 0; j < 300; j++) {
                engine_drive(a->engine);
            }
        }
    }
    destroy_end(a);
    destroy_end(b);
}

#define COUNTED 7

static void count(void *context, const char *name, uint64_t value)
{
    uint64_t *sum = context;
    sum[0] += strcmp(name, "packets_sent") == 0 ? value : 0;
    sum[1] += strcmp(name, "udp_packets_received") == 0 ? value : 0;
    sum[2] += strcmp(name, "same_host_packets_received") == 0 ? value : 0;
    sum[3] += strcmp(name, "references_read") == 0 ? value : 0;
    sum[4] += strcmp(name, "peers_died") == 0 ? value : 0;
    sum[5] += strcmp(name, "direct_writes") == 0 ? value : 0;
    sum[6] += strcmp(name, "same_host_long_records") == 0 ? value : 0;
}

/* For engines made from now on. Returns what was in force. */
static const char *use_link(const char *link)
{
    static const char *const links[] = {"memory", "copy", "udp"};
    const char *found = getenv("WEIR_LINK"), *before = "memory";
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        before = found != NULL && strcmp(found, links[i]) == 0 ? links[i] : before;
    }
    setenv("WEIR_LINK", link, 1);
    return before;
}

/* Directly, by copies through memory, or by UDP; only where both are allowed to meet is a payload
 * read from where it lies, once they have. */
static void statistics_tell_what_was_sent(void **state)
{
    bool direct = strcmp(*state, "direct") == 0;
    const char *link = direct ? "memory" : *state, *before = use_link(link);
    setenv("WEIR_DIRECT", direct ? "1" : "0", 1);
    struct end *a = create_end(), *b = create_end();
    struct introduction of_b = introduce(b);
    uint64_t counted[COUNTED] = {0};
    connect_both(a, b);
    post(a, WORK_WRITE, BUFFER_BYTES, &of_b);
    poll_one(a);
    loop_statistics(a->engine, count, counted);
    bool by_udp = strcmp(link, "udp") == 0, refers = strcmp(link, "memory") == 0;
    assert_int_equal(counted[5], direct);
    if (direct) {
        assert_int_equal(counted[0], 0);
    } else if (by_udp) {
        assert_true(counted[0] >= BUFFER_BYTES / 4096 + 1);
        assert_true(counted[1] >= BUFFER_BYTES / 4096); /* an ACK may be on its way */
        assert_int_equal(counted[3], 0);
    } else {
        uint64_t records = counted[6];
        assert_in_range(records, 2, BUFFER_BYTES / 4096 - 1);
        memset(counted, 0, sizeof counted);
        post(a, WORK_WRITE, BUFFER_BYTES, &of_b);
        poll_one(a);
        loop_statistics(a->engine, count, counted);
        assert_int_equal(counted[6], refers ? records : 2 * records);
        assert_int_equal(counted[3], records + (refers ? 1 : records));
    }
    assert_int_equal(counted[by_udp ? 2 : 1], 0);
    destroy_end(a);
    destroy_end(b);
    unsetenv("WEIR_DIRECT");
    (void)use_link(before);
}

static void wake(void *context)
{
    notify_post(context, &(struct notify_record){.value = 1});
}

static void connection_events_wake_a_sleeper(void **state)
{
    struct engine *engine;
    struct notify *notify;
    struct cm_connection *connection;
    struct cm_event event = {.kind = CM_EVENT_REQUEST};
    assert_int_equal(loop_acquire(&engine), STATUS_OK);
    assert_int_equal(notify_create(&notify), STATUS_OK);
    loop_set_cm_wake(engine, wake, notify);
    struct cm_connect_request request = {
        .path = {.local = loopback, .remote = loopback},
        .service_id = UINT64_C(0x10000000deadbeef), /* nobody listens there */
        .parameters = {.qpn = {SLOT_QPN_RESERVED}, .path_mtu = PATH_MTU_1024},
    };
    engine_lock(engine);
    assert_int_equal(cm_connect(engine->cm, engine_now(engine), &request, &connection), STATUS_OK);
    engine_unlock(engine);
    engine_about_to_sleep(engine);
    struct pollfd ready = {.fd = notify_descriptor(notify), .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    engine_lock(engine);
    assert_true(cm_next_event(engine->cm, &event));
    assert_int_equal(event.kind, CM_EVENT_REJECTED);
    assert_int_equal(event.reject_reason, CM_REJECT_INVALID_SERVICE_ID);
    cm_release(connection, engine_now(engine));
    engine_unlock(engine);
    loop_set_cm_wake(engine, NULL, NULL);
    loop_release(engine);
    notify_destroy(notify);
}

static void read_all(int descriptor, void *bytes, size_t length)
{
    struct pollfd ready = {.fd = descriptor, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1);
    assert_int_equal(read(descriptor, bytes, length), length);
}

/* As when a sender has begun to wake the thread, and the application takes both the wake-up and
 * what it was for: the thread sleeps on. */
static void take_wake_up(struct end *end)
{
    struct loop *loop = loop_of(end->engine);
    wait_until_thread_sleeps(loop);
    same_host_wake_up(loop->same_host);
    engine_drive(end->engine);
}

/* The target of one-sided operations: says who it is, then sleeps in a read of its own. */
static void run_target(int in, int out, bool takes_wake_up)
{
    struct end *end = create_end();
    struct introduction own = introduce(end), peer;
    strcpy((char *)end->buffer, "from the target");
    if (read(in, &peer, sizeof peer) != (ssize_t)sizeof peer) {
        _exit(1);
    }
    connect_end(end, &peer);
    if (takes_wake_up) {
        take_wake_up(end);
    }
    char done;
    ssize_t length = write(out, &own, sizeof own);
    length = length < 0 ? length : read(in, &done, 1); /* until the test has ended */
    engine_lock(end->engine);                          /* after the thread's last write */
    engine_unlock(end->engine);
    _exit(length == 1 && strcmp((char *)end->buffer, "to the target") == 0 ? 0 : 1);
}

struct target {
    pid_t pid;
    int to, from;
};

static struct target start_target(bool takes_wake_up)
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    pid_t child = fork();
    if (child == 0) {
        close(to[1]);
        close(from[0]);
        run_target(to[0], from[1], takes_wake_up);
    }
    close(to[0]);
    close(from[1]);
    return (struct target){child, to[1], from[0]};
}

static int end_target(const struct target *target)
{
    int status;
    assert_int_equal(waitpid(target->pid, &status, 0), target->pid);
    close(target->to);
    close(target->from);
    return status;
}

/* Reads and writes the target's memory. `end` is made before the fork in one caller, after it in
 * the other. */
static void reach_target(struct end *end, const struct target *target)
{
    struct introduction own = introduce(end), peer;
    assert_int_equal(write(target->to, &own, sizeof own), sizeof own);
    read_all(target->from, &peer, sizeof peer);
    connect_end(end, &peer);
    post(end, WORK_READ, 64, &peer);
    assert_int_equal(wait_one(end), COMPLETION_SUCCESS);
    assert_string_equal((char *)end->buffer, "from the target");
    strcpy((char *)end->buffer, "to the target");
    post(end, WORK_WRITE, 64, &peer);
    poll_one(end);
}

static void busy_target_is_served_by_its_thread(void **state)
{
    struct target target = start_target(false);
    struct end *end = create_end();
    reach_target(end, &target);
    assert_int_equal(write(target.to, "", 1), 1);
    assert_int_equal(end_target(&target), 0);
    destroy_end(end);
}

static void thread_that_sleeps_on_is_woken(void **state)
{
    const char *link_before = use_link("memory");
    struct target target = start_target(true);
    struct end *end = create_end();
    reach_target(end, &target);
    assert_int_equal(write(target.to, "", 1), 1);
    assert_int_equal(end_target(&target), 0);
    destroy_end(end);
    (void)use_link(link_before);
}

static void fork_leaves_the_parent_alone(void **state)
{
    struct end *a = create_end(), *b = create_end(), *end = create_end();
    connect_both(a, b);
    pid_t child = fork();
    if (child == 0) { /* inherits an engine; it is dead, and says so */
        struct registry_name name = {.service_id = 1, .scope = REGISTRY_ANY};
        uint32_t claim;
        bool dead = !loop_is_ours(a->engine) &&
                    registry_claim(loop_registry(a->engine), &name, false, &claim) == STATUS_STATE;
        registry_release(loop_registry(a->engine), 0);
        engine_drive(a->engine);
        engine_lock(a->engine);
        engine_unlock(a->engine);
        loop_release(a->engine);
        _exit(dead ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);

    struct target target = start_target(false); /* a child that makes an engine of its own */
    reach_target(end, &target);
    kill(target.pid, SIGKILL);
    end_target(&target);
    for (uint32_t i = 0; i < 50; i++) { /* and the parent's goes on, whoever dies */
        post_receive(b);
        post(a, WORK_SEND, 64, NULL);
        assert_int_equal(wait_one(b), COMPLETION_SUCCESS);
        poll_one(a);
    }
    destroy_end(a);
    destroy_end(b);
    destroy_end(end);
}

static void peer_that_is_killed_is_noticed_in_time(void **state)
{
    struct target target = start_target(false);
    struct end *end = create_end();
    reach_target(end, &target);
    kill(target.pid, SIGKILL);
    end_target(&target);
    struct introduction nobody = {.address = 4096};
    post(end, WORK_WRITE, 64, &nobody);
    /* Timers run without any application thread. */
    assert_int_equal(wait_one(end), COMPLETION_RETRY_EXCEEDED);
    destroy_end(end);
}

/* Whose packets went through memory is known to be gone; no timer is waited for. */
static void peer_of_the_memory_link_is_known_to_be_gone(void **state)
{
    const char *link_before = use_link("memory");
    struct target target = start_target(false);
    struct end *end = create_end();
    uint64_t counted[COUNTED] = {0};
    reach_target(end, &target);
    kill(target.pid, SIGSTOP);
    assert_int_equal(waitpid(target.pid, NULL, WUNTRACED), target.pid);
    struct qp_attributes patient = {.state = QP_SQD}, again = {.state = QP_RTS};
    patient.timeout = 0; /* for ever */
    modify(end, &patient, 0);
    modify(end, &patient, QP_SET_TIMEOUT);
    modify(end, &again, 0);
    struct introduction nobody = {.address = 4096};
    post(end, WORK_WRITE, 64, &nobody);
    kill(target.pid, SIGKILL);
    end_target(&target);
    assert_int_equal(wait_one(end), COMPLETION_RETRY_EXCEEDED);
    loop_statistics(end->engine, count, counted);
    assert_int_equal(counted[4], 1);
    destroy_end(end);
    (void)use_link(link_before);
}

static bool holds(const struct end *end)
{
    struct loop *loop = loop_of(end->engine);
    lock_take(&loop->lock, LOCK_INNER);
    bool held = loop->held;
    lock_give(&loop->lock, LOCK_INNER);
    return held;
}

/* A packet for `b` whose acknowledgement is held back. For that the thread must doze: on a busy
 * machine it finds pauses in our polling and loses its trust, so we say that there were none. */
static void send_until_held(struct end *a, struct end *b)
{
    struct loop *loop = loop_of(a->engine);
    for (int i = 0; i < 100000; i++) {
        atomic_store(&loop->polling_since_ns, 1);
        post_receive(b);
        post(a, WORK_SEND, 64, NULL);
        poll_one(b);
        if (holds(a)) {
            return;
        }
        poll_one(a);
    }
    fail_msg("nothing was held back");
}

static void who_polls_goes_on_before_the_acknowledgement(void **state)
{
    const char *link_before = use_link("udp");
    struct end *a = create_end(), *b = create_end();
    connect_both(a, b);
    send_until_held(a, b);
    for (int ms = 0; ms < PATIENCE_MS && completion_queue_is_empty(a->completions); ms++) {
        usleep(1000); /* nobody polls on: it leaves without us */
    }
    assert_false(completion_queue_is_empty(a->completions));
    poll_one(a);
    destroy_end(a);
    destroy_end(b);
    (void)use_link(link_before);
}

static void what_is_owed_leaves_before_who_owes_it_ends(void **state)
{
    const char *link_before = use_link("udp");
    struct end *a = create_end(), *b = create_end();
    connect_both(a, b);
    send_until_held(a, b);
    destroy_end(b);
    poll_one(a);
    destroy_end(a);
    (void)use_link(link_before);
}

/* What no post takes along, management for one, does not wait until somebody posts no more. */
static void posts_do_not_prolong_what_is_held(void **state)
{
    const char *link_before = use_link("udp");
    struct end *a = create_end(), *b = create_end();
    struct loop *loop = loop_of(a->engine);
    int judged = 0;
    connect_both(a, b);
    for (int i = 0; i < 1000 && judged < 10; i++) {
        send_until_held(a, b);
        struct instant until = instant_after(clock_now(), 50000);
        post_receive(a);
        post(b, WORK_SEND, 64, NULL); /* its acknowledgement leaves with it */
        while (instant_before(clock_now(), until)) {
        }
        lock_take(&loop->lock, LOCK_INNER);
        bool owed = loop->owes; /* or the thread has had a turn */
        (void)loop_turn(loop, TURN_POLL);
        bool held = loop->held;
        lock_give(&loop->lock, LOCK_INNER);
        assert_false(owed && held);
        judged += owed;
        poll_one(a);
        poll_one(a);
        poll_one(b);
    }
    assert_true(judged > 0);
    destroy_end(a);
    destroy_end(b);
    (void)use_link(link_before);
}

/* As if an application polled, so that the thread dozes again and again. A turn that still goes on
 * for what was before may end that: then once more. */
static void lock_take_while_it_dozes(struct loop *loop, struct instant until)
{
    bool dozes = false;
    while (!dozes && instant_before(clock_now(), until)) {
        atomic_store(&loop->polling_since_ns, 1);
        atomic_store(&loop->driving, true);
        loop_wake_thread(loop);
        while (atomic_load(&loop->thread_state) != THREAD_DOZING &&
               instant_before(clock_now(), until) && atomic_load(&loop->driving)) {
        }
        lock_take(&loop->lock, LOCK_INNER);
        dozes = atomic_load(&loop->driving) && atomic_load(&loop->thread_state) == THREAD_DOZING;
        if (!dozes) {
            lock_give(&loop->lock, LOCK_INNER);
        }
    }
    assert_true(dozes);
}

/* Of two who post at once one may find the mutex taken, and its holder not see its doorbell. Here
 * the holder does not look at all, and nobody comes after it. */
static void a_doorbell_that_was_missed_is_heard_after_the_doze(void **state)
{
    enum {
        ROUNDS = 16
    };
    const char *link_before = use_link("udp");
    struct end *a = create_end(), *b = create_end();
    struct introduction of_b = introduce(b);
    struct loop *loop = loop_of(a->engine);
    struct device *device = a->engine->device;
    connect_both(a, b);
    for (int i = 0; i < ROUNDS; i++) {
        struct instant until = instant_after(clock_now(), PATIENCE_MS * UINT64_C(1000000));
        lock_take_while_it_dozes(loop, until);
        post(a, WORK_WRITE, 64, &of_b);
        bool rung = device_has_doorbell(device);
        lock_give(&loop->lock, LOCK_INNER);
        assert_true(rung);
        while (device_has_doorbell(device) && instant_before(clock_now(), until)) {
        }
        assert_false(device_has_doorbell(device));
    }
    assert_true(atomic_load(&loop->posters_meet));
    atomic_store(&loop->driving, false);
    for (int i = 0; i < ROUNDS; i++) {
        poll_one(a);
    }
    destroy_end(a);
    destroy_end(b);
    (void)use_link(link_before);
}

/* A process that was off the CPU comes back with a post: what it waits for lies in the socket. */
static void timers_expire_after_reading_only(void **state)
{
    const char *link_before = use_link("udp"); /* what arrives is seen in its socket */
    struct target target = start_target(false);
    struct end *end = create_end();
    reach_target(end, &target);
    struct loop *loop = loop_of(end->engine);
    struct device *device = end->engine->device;
    struct send_request nothing = {.id = 1, .kind = WORK_WRITE, .signaled = true};
    struct pollfd answered = {.fd = udp_descriptor(loop->steering.udp, UDP_IPV4), .events = POLLIN};
    assert_int_equal(qp_post_send(end->qp, &nothing), STATUS_OK);
    lock_take(&loop->lock, LOCK_INNER);
    uint64_t before = device_counters(device)->values[COUNTER_TIMEOUTS];
    device_ring(device, end->qp);
    loop_turn(loop, TURN_SEND);
    bool came = poll(&answered, 1, PATIENCE_MS) == 1;
    while (instant_before(engine_now(end->engine), device_next_deadline(device))) {
    }
    loop_turn(loop, TURN_SEND);
    uint64_t after = device_counters(device)->values[COUNTER_TIMEOUTS];
    lock_give(&loop->lock, LOCK_INNER);
    assert_true(came);
    assert_int_equal(after, before);
    poll_one(end);
    assert_int_equal(write(target.to, "", 1), 1);
    assert_int_equal(end_target(&target), 0);
    destroy_end(end);
    (void)use_link(link_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_polls_goes_on_before_the_acknowledgement),
        cmocka_unit_test(what_is_owed_leaves_before_who_owes_it_ends),
        cmocka_unit_test(posts_do_not_prolong_what_is_held),
        cmocka_unit_test(a_doorbell_that_was_missed_is_heard_after_the_doze),
        cmocka_unit_test(one_engine_for_all_users),
        cmocka_unit_test(polling_threads_drive),
        cmocka_unit_test(sleeping_receiver_is_woken_every_time),
        cmocka_unit_test_prestate(statistics_tell_what_was_sent, "direct"),
        cmocka_unit_test_prestate(statistics_tell_what_was_sent, "memory"),
        cmocka_unit_test_prestate(statistics_tell_what_was_sent, "copy"),
        cmocka_unit_test_prestate(statistics_tell_what_was_sent, "udp"),
        cmocka_unit_test(connection_events_wake_a_sleeper),
        cmocka_unit_test(busy_target_is_served_by_its_thread),
        cmocka_unit_test(thread_that_sleeps_on_is_woken),
        cmocka_unit_test(fork_leaves_the_parent_alone),
        cmocka_unit_test(peer_that_is_killed_is_noticed_in_time),
        cmocka_unit_test(peer_of_the_memory_link_is_known_to_be_gone),
        cmocka_unit_test(timers_expire_after_reading_only),
    };
    unsetenv("WEIR_FAULT");
    unsetenv("WEIR_ADDRESS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
