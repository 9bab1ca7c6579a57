/* The background thread: drives when nobody else does, and sleeps otherwise.
 *
 * It watches the sockets unless application threads poll without a pause. Then it dozes: packets
 * would only wake it to find them handled. Where they come through memory it watches the silent
 * sockets in a doze, too, so that pollers need not ask them. It learns how well that goes: an
 * application may poll a while and then look at its memory only, for what a peer writes there,
 * which nobody can see. So a doze in which the polling stopped makes the next ones rarer and
 * shorter, unless who polled last says so before it sleeps (engine_promise): that one was kept away
 * by its work. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rnic/cm/cm.h"
#include "rnic/device/device.h"
#include "rnic/io/loop/loop_private.h"
#include "rnic/io/system/bell.h"
#include "rnic/io/system/heavy_fence.h"
#include "rnic/io/system/quiet.h"
#include "rnic/io/system/raw_file.h"
#include "rnic/io/udp/address_watch.h"

#define PATIENCE_MAX_NS 400000000u
#define DOZE_MIN_NS     100000u
#define DOZE_MAX_NS     4000000u /* a wake-up may cost who polls 25 us */
#define WAITED_NS       1000000u /* the longest, where posts have waited for more of their kind */
#define SLICE_NS        100000u
#define TIDY_NS         1000000000u
#define STACK_BYTES     (512u << 10)

enum {
    WATCH_WAKE,
    WATCH_ADDRESS,
    WATCH_DEATHS,
    WATCH_DOZING, /* those before are watched in a doze too */
    WATCH_HANDOFF = WATCH_DOZING,
    WATCH_IPV4,
    WATCH_IPV6,
    WATCH_SILENT, /* those before are watched in a doze while they are silent */
    WATCH_BELL = WATCH_SILENT,
    WATCH_ROOM,
    WATCH_COUNT
};

void loop_wake_thread(struct loop *loop)
{
    uint64_t one = 1;
    ssize_t written;
    do {
        written = raw_write(loop->wake_descriptor, &one, sizeof one);
    } while (written < 0 && errno == EINTR);
    atomic_fetch_add_explicit(&loop->counters.thread_signals, 1, memory_order_relaxed);
}

static uint64_t not_driven_for_ns(struct loop *loop, struct instant now)
{
    struct instant driven = {atomic_load(&loop->driven_ns)};
    return atomic_load(&loop->driving) ? 0 : instant_elapsed_ns(driven, now);
}

static bool is_polled(struct loop *loop)
{
    struct instant now = clock_now();
    struct instant since = {atomic_load(&loop->polling_since_ns)};
    return since.ns != 0 && instant_elapsed_ns(since, now) >= loop_patience_ns(loop) &&
           not_driven_for_ns(loop, now) <= LOOP_POLLING_GAP_NS;
}

static void choose_watched(const struct loop *loop, struct pollfd *ret_watched)
{
    const struct udp *udp = loop->steering.udp;
    const int descriptors[WATCH_COUNT] = {
        [WATCH_WAKE] = loop->wake_descriptor,
        [WATCH_ADDRESS] = loop->address_descriptor,
        [WATCH_DEATHS] = loop->burial.descriptor,
        [WATCH_HANDOFF] = handoff_descriptor(loop->handoff),
        [WATCH_IPV4] = udp_descriptor(udp, UDP_IPV4),
        [WATCH_IPV6] = udp_descriptor(udp, UDP_IPV6),
        [WATCH_BELL] = same_host_bell(loop->same_host),
        [WATCH_ROOM] = -1,
    };
    for (uint32_t i = 0; i < WATCH_COUNT; i++) {
        ret_watched[i] = (struct pollfd){.fd = descriptors[i], .events = POLLIN};
    }
    ret_watched[WATCH_ROOM].events = POLLOUT;
}

/* What the turn that comes next is to know. True: they have something. */
static bool hear_sockets(struct loop *loop, const struct pollfd *watched)
{
    short links =
        watched[WATCH_IPV4].revents | watched[WATCH_IPV6].revents | watched[WATCH_ROOM].revents;
    bool named = ((links | watched[WATCH_HANDOFF].revents) & POLLIN) != 0;
    bool has_errors = (links & POLLERR) != 0;
    if (has_errors) {
        atomic_store(&loop->has_errors, true);
    }
    if (named) {
        atomic_store_explicit(&loop->sockets_named, true, memory_order_relaxed);
    }
    return named || has_errors;
}

/* How many of them are ready. */
static int sleep_until(struct loop *loop, struct pollfd *watched, nfds_t count,
                       struct instant deadline)
{
    uint64_t left_ns = instant_elapsed_ns(clock_now(), deadline);
    struct timespec timeout = {
        .tv_sec = (time_t)(left_ns / 1000000000u),
        .tv_nsec = (long)(left_ns % 1000000000u),
    };
    int ready = ppoll(watched, count, instant_is_never(deadline) ? NULL : &timeout, NULL);
    atomic_store(&loop->thread_state, THREAD_AWAKE);
    atomic_fetch_add_explicit(&loop->counters.thread_wakeups, 1, memory_order_relaxed);
    if (ready > 0 && (watched[WATCH_WAKE].revents & POLLIN) != 0) {
        uint64_t signals;
        ssize_t length = read(loop->wake_descriptor, &signals, sizeof signals);
        (void)length;
    }
    if (ready > 0 && count > WATCH_BELL && watched[WATCH_BELL].revents != 0) {
        bell_hear(watched[WATCH_BELL].fd);
    }
    if (ready > 0 && watched[WATCH_ADDRESS].revents != 0 &&
        address_watch_take(loop->address_descriptor)) {
        void (*changed)(void) = atomic_load(&loop->addresses_changed);
        same_host_addresses_changed(loop->same_host);
        engine_lock(&loop->engine);
        udp_addresses_changed(loop->steering.udp);
        engine_unlock(&loop->engine);
        if (changed != NULL) {
            changed();
        }
    }
    if (ready > 0 && watched[WATCH_DEATHS].revents != 0) {
        burial_hear(&loop->burial);
    }
    return ready;
}

/* What a post waits for may never come, and then it leaves when the doze ends. */
static uint64_t choose_doze_ns(struct loop *loop)
{
    uint64_t waits = atomic_load_explicit(&loop->counters.waits, memory_order_relaxed);
    bool any = waits != loop->waits_seen;
    loop->waits_seen = waits;
    return any && loop->doze_ns > WAITED_NS ? WAITED_NS : loop->doze_ns;
}

/* A doze was right if they still poll, and no mistake if they said that they would sleep. One that
 * was cut short says nothing of longer ones. True: it was right, and was not cut short. */
static bool learn(struct loop *loop, uint64_t dozed_ns, bool is_full)
{
    uint64_t patience_ns = loop->patience_ns;
    if (atomic_load(&loop->polling_since_ns) == 0) {
        return false;
    }
    bool still_polled = not_driven_for_ns(loop, clock_now()) * 2 < dozed_ns;
    if (still_polled && is_full) {
        loop->doze_ns = loop->doze_ns * 2 < DOZE_MAX_NS ? loop->doze_ns * 2 : DOZE_MAX_NS;
        loop->patience_ns = patience_ns - (patience_ns - LOOP_PATIENCE_NS) / 64;
    } else if (!still_polled) {
        bool is_mistake = !engine_is_promised(&loop->engine);
        loop->doze_ns = DOZE_MIN_NS;
        loop->patience_ns =
            is_mistake && patience_ns * 4 < PATIENCE_MAX_NS ? patience_ns * 4 : patience_ns;
    }
    return still_polled && is_full;
}

/* They have polled for long, and will not let us sleep soon. */
static void relieve_senders(struct loop *loop)
{
    if (!same_host_fences_for_all(loop->same_host) && loop_try_lock(loop)) {
        same_host_fence_for_all(loop->same_host);
        lock_give_in_order(&loop->lock, LOCK_INNER);
        loop_after_unlock(loop, INSTANT_NEVER);
    }
}

/* Mutex held. Returns how many packets came by UDP. */
static uint64_t receive(struct loop *loop, struct instant *ret_deadline)
{
    const struct udp_counters *counters = udp_counters(loop->steering.udp);
    uint64_t before = counters->packets_received;
    *ret_deadline = loop_turn(loop, TURN_RECEIVE);
    return counters->packets_received - before;
}

static uint64_t serve(struct loop *loop)
{
    if (!loop_try_lock(loop)) {
        return 0;
    }
    struct instant deadline;
    uint64_t count = receive(loop, &deadline);
    lock_give_in_order(&loop->lock, LOCK_INNER);
    loop_after_unlock(loop, deadline);
    return count;
}

/* The state is told before is_polled is asked again: about_to_sleep does it the other way round, so
 * one of the two sees the other. */
static void doze(struct loop *loop)
{
    struct pollfd watched[WATCH_COUNT];
    choose_watched(loop, watched);
    bool with_sockets = atomic_load_explicit(&loop->sockets_can_wait, memory_order_relaxed);
    atomic_store(&loop->thread_state, THREAD_DOZING);
    if (!is_polled(loop)) {
        atomic_store(&loop->thread_state, THREAD_AWAKE);
        return;
    }
    atomic_store_explicit(&loop->sockets_watched, with_sockets, memory_order_relaxed);
    uint64_t length_ns = choose_doze_ns(loop);
    int ready = sleep_until(loop, watched, with_sockets ? WATCH_SILENT : WATCH_DOZING,
                            instant_after(clock_now(), length_ns));
    if (learn(loop, length_ns, ready == 0 && length_ns == loop->doze_ns)) {
        relieve_senders(loop);
    }
    bool named = hear_sockets(loop, watched);
    /* A doorbell may have been missed by who let go of the mutex when it was rung. */
    if (named || device_has_doorbell(loop->engine.device)) {
        (void)serve(loop);
    }
}

static void stay(struct loop *loop)
{
    uint64_t count;
    do {
        count = serve(loop);
    } while (stay_on(&loop->stay, clock_now(), count) && !is_polled(loop));
}

struct death {
    struct device_death device;
    struct same_host *same_host;
};

static bool is_of_dead(struct device_death *death, const struct path *path, struct qpn destination)
{
    struct same_host *same_host = ((struct death *)death)->same_host;
    return same_host_is_of_dead(same_host, path, destination);
}

/* Mutex held. What the dead had sent counts, so that is received before they are mourned. */
static void tidy(struct loop *loop, struct instant now)
{
    struct death death = {{is_of_dead}, loop->same_host};
    loop->tidied = now;
    if (same_host_tidy(loop->same_host)) {
        loop_receive(loop, now, SHARE_ALL);
        cm_await_goodbyes(loop->engine.cm);
        device_mourn(loop->engine.device, now, &death.device);
    }
}

/* Somebody may have died. */
static void mourn(struct loop *loop)
{
    engine_lock(&loop->engine);
    tidy(loop, clock_now());
    engine_unlock(&loop->engine);
}

/* Mutex not held: a move takes some ten microseconds. */
static void keep_apart(struct loop *loop, struct instant now, bool crowded)
{
    enum apart_step step = apart_next(&loop->apart, now, crowded);
    if (step == APART_LEAVE && processor_leave(&loop->absence)) {
        atomic_fetch_add_explicit(&loop->counters.thread_moves, 1, memory_order_relaxed);
    } else if (step == APART_RETURN) {
        processor_return(&loop->absence);
    }
}

static void watch(struct loop *loop)
{
    struct udp *udp = loop->steering.udp;
    struct instant deadline;
    atomic_store_explicit(&loop->sockets_watched, false, memory_order_relaxed);
    lock_take(&loop->lock, LOCK_INNER);
    udp_expect_many(udp);
    uint64_t count = receive(loop, &deadline);
    bool crowded = same_host_is_crowded(loop->same_host);
    if (stay_begin(&loop->stay, clock_now(), count)) {
        lock_give_in_order(&loop->lock, LOCK_INNER);
        loop_after_unlock(loop, deadline);
        stay(loop);
        lock_take(&loop->lock, LOCK_INNER);
        (void)receive(loop, &deadline);
    }
    deadline = instant_earlier(deadline, burial_next_deadline(&loop->burial));
    struct instant now = clock_now();
    deadline = instant_earlier(deadline, tarry_look(&loop->tarry, now));
    if (instant_elapsed_ns(loop->tidied, now) >= TIDY_NS) {
        tidy(loop, now);
    }
    udp_tidy(udp, now);
    deadline = instant_earlier(deadline, udp_next_tidy(udp));
    int full = loop->blocked ? udp_waiting_descriptor(udp) : -1;
    /* Told under the mutex: whoever finds an earlier deadline from now on wakes us. */
    if (!same_host_fall_asleep(loop->same_host)) {
        deadline.ns = 0;
    }
    deadline = instant_earlier(deadline, same_host_next_grant(loop->same_host));
    atomic_store(&loop->sleeping_until_ns, deadline.ns);
    atomic_store(&loop->thread_state, THREAD_WATCHING);
    lock_give_in_order(&loop->lock, LOCK_INNER);
    loop_after_unlock(loop, deadline);
    keep_apart(loop, now, crowded);

    struct pollfd watched[WATCH_COUNT];
    choose_watched(loop, watched);
    watched[WATCH_ROOM].fd = full;
    bool signaled =
        sleep_until(loop, watched, WATCH_COUNT, deadline) == 1 && watched[WATCH_WAKE].revents != 0;
    (void)hear_sockets(loop, watched);
    same_host_wake_up(loop->same_host);
    if (!signaled && is_polled(loop)) {
        (void)serve(
            loop); /* before a doze: who polled may have gone to sleep without polling again */
    }
}

/* Asks for short slices (heard by kernels from 6.12 on): then the thread, which needs little, is
 * not kept waiting by an application that spins on its memory for just what the thread would bring.
 */
static void ask_for_short_slices(void)
{
    if (sched_getscheduler(0) != SCHED_OTHER) {
        return; /* what the program has chosen, by chrt(1) for one, holds for us, too */
    }
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime_ns, deadline_ns, period_ns;
    } attributes = {.size = sizeof attributes, .policy = SCHED_OTHER, .runtime_ns = SLICE_NS};
    errno = 0;
    attributes.nice = getpriority(PRIO_PROCESS, 0);
    if (errno == 0) {
        long result = syscall(SYS_sched_setattr, 0, &attributes, 0);
        (void)result;
    }
}

static void *run(void *argument)
{
    struct loop *loop = argument;
    ask_for_short_slices();
    same_host_live(loop->same_host);
    sem_post(&loop->is_alive);
    loop->patience_ns = LOOP_PATIENCE_NS;
    loop->doze_ns = DOZE_MIN_NS;
    stay_init(&loop->stay);
    while (!atomic_load(&loop->stopping)) {
        if (burial_advance(&loop->burial)) {
            mourn(loop);
        }
        loop_grant_wishes(loop);
        if (is_polled(loop)) {
            doze(loop);
        } else {
            watch(loop);
        }
    }
    return NULL;
}

int loop_start_thread(struct loop *loop)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)heavy_fence_prepare(); /* while there may be no other thread */
    sem_init(&loop->is_alive, 0, 0);
    sigset_t before = quiet_begin();
    int error = pthread_create(&loop->thread, &attributes, run, loop);
    quiet_end(before);
    pthread_attr_destroy(&attributes);
    if (error == 0) {
        pthread_setname_np(loop->thread, "weir");
        while (sem_wait(&loop->is_alive) != 0) { /* by a signal */
        }
    }
    return error;
}
