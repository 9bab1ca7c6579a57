/* The background thread: drives when nobody else does, and sleeps otherwise.
 *
 * It watches the sockets unless application threads have been driving lately. Then it dozes:
 * packets would only wake it to find them handled. An application that waits for events drives a
 * few times between two sleeps; only a run of drives without a sleep counts as polling. */
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "rnic/device/device.h"
#include "rnic/io/loop_private.h"

#define POLLING_NS     200000u  /* so long ago somebody drove: he will again */
#define POLLING_DRIVES 16u      /* since the last about_to_sleep */
#define DOZE_NS        1000000u /* then see whether they still drive */

enum {
    WATCH_WAKE,
    WATCH_HANDOFF,
    WATCH_IPV4,
    WATCH_IPV6,
    WATCH_COUNT
};

void loop_wake_thread(struct loop *loop)
{
    uint64_t one = 1;
    ssize_t written;
    do {
        written = write(loop->wake_descriptor, &one, sizeof one);
    } while (written < 0 && errno == EINTR);
    atomic_fetch_add_explicit(&loop->counters.thread_signals, 1, memory_order_relaxed);
}

static bool is_polled(struct loop *loop)
{
    struct instant driven = {atomic_load_explicit(&loop->driven_ns, memory_order_relaxed)};
    return atomic_load(&loop->drives) >= POLLING_DRIVES &&
           instant_elapsed_ns(driven, clock_now()) < POLLING_NS;
}

static void sleep_until(struct loop *loop, struct pollfd *watched, nfds_t count,
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
    if (ready > 0 && (watched[0].revents & POLLIN) != 0) {
        uint64_t signals;
        ssize_t length = read(loop->wake_descriptor, &signals, sizeof signals);
        (void)length;
    }
}

/* The state is told before is_polled is asked again: about_to_sleep does it the other way round, so
 * one of the two sees the other. */
static void doze(struct loop *loop)
{
    struct pollfd watched = {.fd = loop->wake_descriptor, .events = POLLIN};
    atomic_store(&loop->thread_state, THREAD_DOZING);
    if (!is_polled(loop)) {
        atomic_store(&loop->thread_state, THREAD_AWAKE);
        return;
    }
    sleep_until(loop, &watched, 1, instant_after(clock_now(), DOZE_NS));
}

static void watch(struct loop *loop)
{
    struct udp *udp = loop->steering.udp;
    pthread_mutex_lock(&loop->mutex);
    struct instant deadline = loop_turn(loop, true);
    short events[UDP_FAMILY_COUNT] = {POLLIN, POLLIN};
    if (loop->blocked) {
        events[udp_waiting_family(udp)] |= POLLOUT;
    }
    /* Told under the mutex: whoever finds an earlier deadline from now on wakes us. */
    atomic_store(&loop->sleeping_until_ns, deadline.ns);
    atomic_store(&loop->thread_state, THREAD_WATCHING);
    pthread_mutex_unlock(&loop->mutex);
    loop_after_unlock(loop, deadline);

    struct pollfd watched[WATCH_COUNT] = {
        [WATCH_WAKE] = {.fd = loop->wake_descriptor, .events = POLLIN},
        [WATCH_HANDOFF] = {.fd = handoff_descriptor(loop->handoff), .events = POLLIN},
        [WATCH_IPV4] = {.fd = udp_descriptor(udp, UDP_IPV4), .events = events[UDP_IPV4]},
        [WATCH_IPV6] = {.fd = udp_descriptor(udp, UDP_IPV6), .events = events[UDP_IPV6]},
    };
    sleep_until(loop, watched, WATCH_COUNT, deadline);
}

void *loop_thread_main(void *argument)
{
    struct loop *loop = argument;
    while (!atomic_load(&loop->stopping)) {
        if (is_polled(loop)) {
            doze(loop);
        } else {
            watch(loop);
        }
    }
    return NULL;
}
