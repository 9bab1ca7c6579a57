/* The engine's table: who may drive, what a turn is. */
#include "rnic/io/loop/loop.h"

#include "rnic/base/container.h"
#include "rnic/cm/cm.h"
#include "rnic/device/device.h"
#include "rnic/io/loop/loop_private.h"
#include "rnic/io/system/complaints.h"

#define SEND_BUDGET      64u
#define SEND_ROUNDS      4u       /* in one turn, so that nobody is kept for long */
#define STALLED_NS       1000000u /* should the owner of a full lane not tell of room */
#define DELAYED_NS       200000u  /* when a fault's delayed packets are let go */
#define HANDOFF_RETRY_NS 50000u
#define HELD_NS          20000u /* so long acknowledgements wait at most while more comes, */
#define HELD_MAX         8u /* and for so many completions: whoever posts the next hundred waits */
#define GLANCES_MAX      32u
#define DENSE_NS         8000u /* in so long GLANCES_MAX polls pass of who does nothing else */
#define LOOK_NS          10000u
#define MUCH_BYTES       65536u   /* take longer to move than a look at the clock */
#define BLOCKED_RETRY_NS 1000000u /* should no event tell that the kernel takes packets again */

static struct instant timer_deadline(const struct loop *loop)
{
    return instant_earlier(device_next_deadline(loop->engine.device),
                           cm_next_deadline(loop->engine.cm));
}

static struct instant next_deadline(struct loop *loop, struct instant now)
{
    struct instant deadline = timer_deadline(loop);
    if (loop->blocked) {
        deadline = instant_earlier(deadline, instant_after(now, BLOCKED_RETRY_NS));
    } else if (loop->more) {
        deadline = loop->stalled ? instant_earlier(deadline, instant_after(now, STALLED_NS)) : now;
    } else if (udp_has_waiting(loop->steering.udp)) {
        deadline = instant_earlier(deadline, instant_after(now, DELAYED_NS));
    }
    deadline = instant_earlier(deadline, loop_complaints_deadline(loop));
    if (!handoff_flush(loop->handoff, now)) {
        deadline = instant_earlier(deadline, instant_after(now, HANDOFF_RETRY_NS));
    }
    return deadline;
}

/* A wake-up that was sent for the sleeping thread may have been taken by whoever drives, and what
 * it was for as well: then the thread sleeps on, and the next sender is to wake it. False:
 * something has come meanwhile. */
static bool let_thread_sleep_on(struct loop *loop)
{
    return atomic_load(&loop->thread_state) != THREAD_WATCHING ||
           same_host_is_asleep(loop->same_host) || same_host_fall_asleep(loop->same_host);
}

static uint64_t completions(const struct loop *loop)
{
    return device_counters(loop->engine.device)->values[COUNTER_COMPLETIONS];
}

static uint64_t bytes_received(const struct loop *loop)
{
    return device_counters(loop->engine.device)->values[COUNTER_BYTES_RECEIVED];
}

/* The thread dozes: when a doze ends, after some milliseconds at most (and when it gets a
 * processor), it looks for doorbells, and at everything unless somebody has polled meanwhile. */
static bool thread_looks_soon(const struct loop *loop)
{
    return atomic_load_explicit(&loop->thread_state, memory_order_relaxed) == THREAD_DOZING;
}

/* A poller that has got completions works on them at once; the acknowledgements that are owed leave
 * with what it posts in answer, or with a poll that finds no more, or else when the thread's doze
 * ends; before any control call, for that may end who owes them. While more comes they wait for
 * some more completions, and not for long; nor does what no post takes along (management, what is
 * to be handed on), however often somebody posts meanwhile. `before`: the completions that there
 * were before the first of those for which nothing has been sent. A peer who gives up sooner than
 * the doze ends hears at once. */
static bool may_hold(struct loop *loop, enum loop_turn kind, struct instant now, uint64_t before)
{
    if (kind != TURN_POLL || !thread_looks_soon(loop) || !device_may_hold(loop->engine.device)) {
        return false;
    }
    if (!loop->owes) {
        loop->owes = true;
        loop->held_since = now;
    }
    loop->held_from = before;
    return instant_elapsed_ns(loop->held_since, now) < HELD_NS &&
           completions(loop) - loop->held_from < HELD_MAX;
}

/* Whoever polls without a pause finds nothing, most times. Where packets come from this host only,
 * and the latest full turn has left nothing to do, its next polls may look at the lanes alone. */
static void allow_glances(struct loop *loop, struct instant now)
{
    bool rests = !loop->more && !loop->blocked && !loop->stalled && !loop->held &&
                 !udp_has_waiting(loop->steering.udp);
    loop->looked = now;
    loop->rests = loop_is_local(loop, now) && rests;
}

/* Under no lock. */
static void let_stream_go_on(const struct loop *loop)
{
    if (stream_flows(&loop->stream)) {
        clock_rest(STREAM_RELIEF_NS);
    }
}

/* Under no lock. */
static bool finds_nothing(struct loop *loop)
{
    uint32_t left = atomic_load_explicit(&loop->glances_left, memory_order_relaxed);
    if (left == 0 || engine_wants_drive(&loop->engine) || !same_host_is_quiet(loop->same_host)) {
        return false;
    }
    stream_pauses(&loop->stream);
    /* Two who do this at once count one, or some glances that a turn has taken back: so many. */
    atomic_store_explicit(&loop->glances_left, left - 1, memory_order_relaxed);
    return true;
}

/* Mutex held. Who polls so often may glance some more times before somebody looks at a clock. */
static void note_pace(struct loop *loop, struct instant now)
{
    bool is_dense = instant_elapsed_ns(loop->polled, now) < DENSE_NS;
    loop->polled = now;
    atomic_store_explicit(&loop->glances_left, is_dense && loop->rests ? GLANCES_MAX : 0,
                          memory_order_relaxed);
}

/* Whose requests have waited has a turn now, as `poster` has anyway. False: nobody else's have. */
static bool end_wait(struct loop *loop, struct instant now, bool polls, const struct qp *poster)
{
    uint32_t count = tarry_end(&loop->tarry, now, polls);
    bool others = false;
    for (uint32_t i = 0; i < count; i++) {
        struct qp *qp = loop->tarry.qps[i];
        if (qp != poster) {
            device_look(loop->engine.device, qp);
            others = true;
        }
    }
    if (count > 0) {
        engine_want_drive(&loop->engine, false);
    }
    return others;
}

struct instant loop_turn(struct loop *loop, enum loop_turn kind)
{
    struct instant now = quick_clock_now(&loop->clock);
    uint64_t calls = udp_counters(loop->steering.udp)->send_calls;
    bool held_before = loop->held;
    loop->held = false;
    loop->rests = false;
    atomic_store_explicit(&loop->glances_left, 0, memory_order_relaxed);
    bool waited = tarry_has_any(&loop->tarry) && end_wait(loop, now, kind == TURN_POLL, NULL);
    loop->turn_began = loop->turn_ended = now;
    loop_count(&loop->counters.turns);
    if (atomic_load_explicit(&loop->has_errors, memory_order_relaxed)) {
        atomic_store(&loop->has_errors, false);
        udp_take_errors(loop->steering.udp, UDP_IPV4);
        udp_take_errors(loop->steering.udp, UDP_IPV6);
    }
    for (uint32_t round = 0; round < SEND_ROUNDS; round++) {
        /* No timer expires while its answer may lie in a socket: we may have been off the CPU. */
        bool due = !instant_before(now, timer_deadline(loop));
        if (due || (kind != TURN_SEND && round == 0)) {
            uint64_t before = completions(loop), bytes = bytes_received(loop);
            loop_receive(loop, now, due ? SHARE_ALL : kind == TURN_POLL ? SHARE_NEXT : SHARE_SOME);
            if (bytes_received(loop) - bytes >= MUCH_BYTES) {
                loop->turn_ended = quick_clock_now(&loop->clock);
            }
            loop->held = !due && !waited && completions(loop) != before &&
                         may_hold(loop, kind, now, held_before ? loop->held_from : before);
            if (loop->held) {
                return INSTANT_NEVER; /* the thread dozes, and looks by itself */
            }
        }
        loop->owes = false;
        cm_advance(loop->engine.cm, now);
        loop->more = device_advance(loop->engine.device, now, SEND_BUDGET);
        loop->stalled = !same_host_flush(loop->same_host);
        if (!loop->more || loop->stalled) {
            break;
        }
        now = quick_clock_now(&loop->clock);
    }
    loop->blocked = !udp_flush(loop->steering.udp);
    if (udp_counters(loop->steering.udp)->send_calls != calls) {
        loop->turn_ended = quick_clock_now(&loop->clock); /* calls of the kernel take long, too */
    }
    loop_hear_complaints(loop, now);
    if (kind != TURN_SEND) {
        allow_glances(loop, now);
    }
    struct instant deadline = next_deadline(loop, now);
    return let_thread_sleep_on(loop) ? deadline : now;
}

void loop_send_held(struct loop *loop)
{
    if (loop->held || tarry_has_any(&loop->tarry)) {
        (void)loop_turn(loop, TURN_SEND);
    }
}

/* Either the poster, who rings and then tries to take the lock, does take it, or we, who have given
 * it and then look, see its doorbell: all four are sequentially consistent. */
void loop_serve_after_unlock(struct loop *loop, struct instant deadline)
{
    while (device_has_doorbell(loop->engine.device) && loop_try_lock(loop)) {
        deadline = loop_turn(loop, TURN_SEND);
        lock_give_in_order(&loop->lock, LOCK_INNER);
    }
    uint64_t until = atomic_load(&loop->sleeping_until_ns);
    if (deadline.ns < until && atomic_load(&loop->thread_state) == THREAD_WATCHING &&
        atomic_compare_exchange_strong(&loop->sleeping_until_ns, &until, deadline.ns)) {
        loop_wake_thread(loop);
    }
}

/* The thread watches the sockets though somebody has polled for long enough: each packet would wake
 * it, inside the kernel, to find that the poller has it. It is to look again whether to doze. */
static void relieve_thread(struct loop *loop, uint64_t polled_ns)
{
    int watching = THREAD_WATCHING;
    if (atomic_load_explicit(&loop->thread_state, memory_order_relaxed) == watching &&
        polled_ns >= loop_patience_ns(loop) &&
        atomic_compare_exchange_strong(&loop->thread_state, &watching, THREAD_AWAKE)) {
        loop_wake_thread(loop);
    }
}

/* Mutex held. After a poller's turn. */
static void note_driven(struct loop *loop)
{
    struct instant before = {atomic_load_explicit(&loop->driven_ns, memory_order_relaxed)};
    struct instant since = {atomic_load(&loop->polling_since_ns)};
    bool gap = instant_elapsed_ns(before, loop->turn_began) > LOOP_POLLING_GAP_NS;
    if (gap || since.ns == 0) {
        atomic_store(&loop->polling_since_ns, loop->turn_began.ns);
    } else {
        relieve_thread(loop, instant_elapsed_ns(since, loop->turn_began));
    }
    atomic_store_explicit(&loop->driven_ns, loop->turn_ended.ns, memory_order_relaxed);
}

/* Mutex held. After a poster's turn: what it sent has kept it from polling. */
static void note_posted(struct loop *loop)
{
    uint64_t before = atomic_load_explicit(&loop->driven_ns, memory_order_relaxed);
    uint64_t took_ns = instant_elapsed_ns(loop->turn_began, loop->turn_ended);
    atomic_store_explicit(&loop->driven_ns, before + took_ns, memory_order_relaxed);
}

/* Mutex held. A turn of an application's thread. */
static struct instant application_turn(struct loop *loop, enum loop_turn kind)
{
    atomic_store_explicit(&loop->driving, true, memory_order_relaxed);
    struct instant deadline = loop_turn(loop, kind);
    if (kind == TURN_POLL) {
        note_driven(loop);
    } else {
        note_posted(loop);
    }
    atomic_store_explicit(&loop->driving, false, memory_order_relaxed);
    return deadline;
}

/* Sends what is ready. By itself: who drives for single messages is slower with a turn within. */
static __attribute__((noinline)) void turn_and_unlock(struct loop *loop)
{
    struct instant deadline = application_turn(loop, TURN_SEND);
    lock_give_in_order(&loop->lock, LOCK_INNER);
    loop_after_unlock(loop, deadline);
}

static void engine_lock_operation(struct engine *engine)
{
    struct loop *loop = loop_of(engine);
    int cancel = cancel_hold();
    atomic_fetch_add(&loop->waiting, 1);
    lock_take(&loop->lock, LOCK_INNER);
    loop->cancel = cancel;
    atomic_fetch_sub(&loop->waiting, 1);
    loop_send_held(loop);
}

static void engine_unlock_operation(struct engine *engine)
{
    struct loop *loop = loop_of(engine);
    int cancel = loop->cancel;
    turn_and_unlock(loop);
    cancel_restore(cancel);
}

/* Where the thread looks soon a doorbell that is rung at this instant may be missed, until posters
 * are known to meet: whoever posts next sees it, or polls, or the thread when its doze ends. */
static void give(struct loop *loop)
{
    if (thread_looks_soon(loop) &&
        !atomic_load_explicit(&loop->posters_meet, memory_order_relaxed)) {
        lock_give(&loop->lock, LOCK_INNER);
    } else {
        lock_give_in_order(&loop->lock, LOCK_INNER);
    }
}

/* What is new since a turn that left nothing to do is a packet in a lane, or some, and they bring
 * completions: what a turn would receive then, without a look at the clock. Returns how many; 0:
 * this is to be a whole turn. */
static uint64_t take_packets(struct loop *loop)
{
    struct device *device = loop->engine.device;
    if (!thread_looks_soon(loop) || atomic_load_explicit(&loop->has_errors, memory_order_relaxed) ||
        !device_may_hold(device) || !device_begin_vague(device)) {
        return 0;
    }
    uint64_t before = completions(loop), bytes = bytes_received(loop);
    loop->ingress.now = loop->clock.given;
    atomic_store_explicit(&loop->driving, true, memory_order_relaxed);
    if (same_host_receive_next(loop->same_host, &loop->local, LOOP_LOCAL_BUDGET) > 0) {
        loop->local_received = loop->clock.given;
    }
    device_end_vague(device);
    if (bytes_received(loop) - bytes >= MUCH_BYTES) {
        struct instant now = quick_clock_now(&loop->clock);
        atomic_store_explicit(&loop->driven_ns, now.ns, memory_order_relaxed);
    }
    atomic_store_explicit(&loop->driving, false, memory_order_relaxed);
    return completions(loop) - before;
}

/* What those completions owe waits as may_hold says, so the next turn is a whole one. */
static void hold(struct loop *loop, uint64_t count)
{
    loop_count(&loop->counters.turns);
    atomic_store_explicit(&loop->glances_left, 0, memory_order_relaxed);
    loop->rests = false;
    loop->held = true;
    loop->owes = true;
    loop->held_since = loop->clock.given;
    loop->held_from = completions(loop) - count;
}

static void engine_drive_operation(struct engine *engine)
{
    struct loop *loop = loop_of(engine);
    let_stream_go_on(loop);
    if (finds_nothing(loop) || !loop_try_lock(loop)) {
        return;
    }
    bool rests = loop->rests && !tarry_has_any(&loop->tarry);
    bool is_quiet = rests && same_host_is_quiet(loop->same_host);
    struct instant deadline = INSTANT_NEVER;
    uint64_t came = rests && !is_quiet ? take_packets(loop) : 0;
    if (came > 0) {
        if (came >= HELD_MAX) {
            turn_and_unlock(loop);
            return;
        }
        hold(loop, came);
        give(loop);
        loop_after_unlock(loop, deadline);
        return;
    }
    struct instant now = is_quiet ? quick_clock_now(&loop->clock) : INSTANT_NEVER;
    if (!is_quiet || instant_elapsed_ns(loop->looked, now) >= LOOK_NS) {
        deadline = application_turn(loop, TURN_POLL);
        now = loop->turn_began;
    }
    note_pace(loop, now);
    lock_give_in_order(&loop->lock, LOCK_INNER);
    loop_after_unlock(loop, deadline);
}

/* Whether what was posted waits for more of its kind; `waiting` requests do, or could. */
static bool is_to_wait(struct loop *loop, struct instant now, struct qp *qp, uint32_t waiting)
{
    struct tarry *tarry = &loop->tarry;
    bool waited = tarry_has_any(tarry);
    if (waiting == 0 || loop->held || (waited && !direct_is_for_same(tarry->qps[0], qp)) ||
        !tarry_post(tarry, now, qp, waiting)) {
        return false;
    }
    if (!waited) {
        loop_count(&loop->counters.waits);
        engine_want_drive(&loop->engine, true);
    }
    return true;
}

/* Mutex held. What was posted at `began` to a link whose calls take long counts as polling. NEVER:
 * nobody knows when. False: some of it is left, or there is something to be heard of it. */
static bool send_by_udp(struct loop *loop, struct instant began)
{
    struct udp *udp = loop->steering.udp;
    if (!udp_has_waiting(udp)) {
        return true;
    }
    atomic_store_explicit(&loop->driving, true, memory_order_relaxed);
    loop->turn_began = instant_is_never(began) ? quick_clock_now(&loop->clock) : began;
    bool sent = udp_flush(udp) && !udp_has_waiting(udp);
    loop->turn_ended = quick_clock_now(&loop->clock);
    note_posted(loop);
    atomic_store_explicit(&loop->driving, false, memory_order_relaxed);
    return sent && !complaints_wait(udp_complaints(udp));
}

/* What was posted did not wait, though `waiting` requests could have. */
static void note_together(struct loop *loop, const struct qp *qp, uint32_t waiting)
{
    if (waiting > 0) {
        tarry_done(&loop->tarry, quick_clock_now(&loop->clock), direct_has_done_all(qp));
    }
}

/* Of what a post may have changed. A thread that dozes looks by itself when its doze ends. */
static struct instant next_of_device(const struct loop *loop)
{
    return thread_looks_soon(loop) ? INSTANT_NEVER : device_next_deadline(loop->engine.device);
}

/* Nothing but a post to this queue pair has happened since a turn that left nothing to do, or held
 * back what may travel with it. */
static struct instant send_posted(struct loop *loop, struct qp *qp)
{
    struct device *device = loop->engine.device;
    stream_is_answered(&loop->stream);
    bool alone = !loop->more && !loop->blocked && !loop->stalled;
    if (alone && !loop->held && !tarry_has_any(&loop->tarry) && device_advance_alone(device, qp)) {
        loop_count(&loop->counters.turns);
        return next_of_device(loop);
    }
    if (alone && thread_looks_soon(loop) && !tarry_has_any(&loop->tarry) &&
        device_post_short(device, loop->clock.given, qp)) {
        loop->held = false;
        loop_count(&loop->counters.turns);
        return INSTANT_NEVER; /* who dozes looks by itself */
    }
    uint32_t waiting = direct_may_wait(qp);
    enum device_time wanted = device_wants_time(qp);
    bool exact = wanted == DEVICE_TIME_EXACT || waiting > 0 ||
                 (wanted == DEVICE_TIME_VAGUE && !thread_looks_soon(loop));
    struct instant now = exact ? quick_clock_now(&loop->clock) : loop->clock.given;
    if (waiting > 0) {
        device_put_off(qp);
    }
    if (alone && is_to_wait(loop, now, qp, waiting)) {
        return instant_after(now, TARRY_NS);
    }
    if (tarry_has_any(&loop->tarry) && end_wait(loop, now, false, qp)) {
        device_look(device, qp);
        struct instant deadline = application_turn(loop, TURN_SEND);
        note_together(loop, qp, waiting);
        return deadline;
    }
    if (!alone || device_advance_one(device, now, !exact, qp)) {
        device_look(device, qp);
        (void)same_host_flush(loop->same_host); /* what has gone is not to wait for the others */
        return application_turn(loop, TURN_SEND);
    }
    loop->held = false;
    loop->stalled = !same_host_flush(loop->same_host);
    if (loop->stalled || !send_by_udp(loop, exact ? now : INSTANT_NEVER)) {
        return application_turn(loop, TURN_SEND);
    }
    loop_count(&loop->counters.turns);
    note_together(loop, qp, waiting);
    return next_of_device(loop);
}

/* Who finds the engine free needs no doorbell. */
static void engine_kick_operation(struct engine *engine, struct qp *qp)
{
    struct loop *loop = loop_of(engine);
    if (loop_try_lock(loop)) {
        struct instant deadline = send_posted(loop, qp);
        give(loop);
        loop_after_unlock(loop, deadline);
        return;
    }
    if (thread_looks_soon(loop)) { /* it is not the thread that has the mutex */
        atomic_store_explicit(&loop->posters_meet, true, memory_order_relaxed);
    }
    (void)device_ring(engine->device, qp);
    if (loop_try_lock(loop)) { /* it may have been let go before we rang */
        turn_and_unlock(loop);
    }
}

static void engine_about_to_sleep_operation(struct engine *engine)
{
    struct loop *loop = loop_of(engine);
    if (engine_wants_drive(engine)) {
        engine_drive_operation(engine);
    }
    atomic_store(&loop->polling_since_ns, 0);
    if (atomic_load(&loop->thread_state) == THREAD_DOZING) {
        loop_wake_thread(loop);
    }
}

static struct instant engine_now_operation(struct engine *engine)
{
    return clock_now();
}

const struct engine_operations loop_operations = {
    .lock = engine_lock_operation,
    .unlock = engine_unlock_operation,
    .drive = engine_drive_operation,
    .kick = engine_kick_operation,
    .about_to_sleep = engine_about_to_sleep_operation,
    .now = engine_now_operation,
};
