/* The event loop. */
#include "weir/channel/poller.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "weir/channel/bootstrap_cm.h"
#include "weir/channel/connection.h"
#include "weir/channel/lane.h"
#include "weir/channel/listener.h"
#include "weir/channel/timer.h"
#include "weir/error_private.h"

#define SPIN_MIN_NS   ((uint64_t)1000)
#define SPIN_NS       ((uint64_t)30 * 1000)
#define LOOK_NS       ((uint64_t)100 * 1000) /* between looks at fds while completions keep coming */
#define DRAIN_BUDGET  256
#define EXTRA_ROUNDS  64 /* a peer that never stops shall not hold the caller */
#define QUEUE_ENTRIES 8192
#define STIRRED       ((uint64_t)0) /* armed for long ago, and not read since */
#define SLOTS_MAX     (1u << LANE_SLOT_BITS)

/* --- sources --- */

bool poller_watch(struct weir_poller *poller, struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    return epoll_ctl(poller->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) == 0;
}

void poller_rewatch(struct weir_poller *poller, struct source *source, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};
    epoll_ctl(poller->epoll_fd, EPOLL_CTL_MOD, source->fd, &event);
}

void poller_unwatch(struct weir_poller *poller, struct source *source)
{
    epoll_ctl(poller->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
}

static void timer_ready(struct source *source, uint32_t events)
{
    struct weir_poller *poller =
        (struct weir_poller *)((char *)source - offsetof(struct weir_poller, timer_source));
    uint64_t count;
    if (read(source->fd, &count, sizeof(count)) > 0) {
        poller->timer_armed_ns = TIMER_NEVER;
    }
}

static void wake_ready(struct source *source, uint32_t events)
{
    struct weir_poller *poller =
        (struct weir_poller *)((char *)source - offsetof(struct weir_poller, wake_source));
    eventfd_t count;
    if (eventfd_read(source->fd, &count) == 0) {
        poller->callbacks++;
    }
}

static void channel_ready(struct source *source, uint32_t events)
{
    struct weir_poller *poller =
        (struct weir_poller *)((char *)source - offsetof(struct weir_poller, channel_source));
    const struct verbs *verbs = &poller->fabric->library.verbs;
    struct ibv_cq *queue;
    void *context;
    while (verbs->get_cq_event(poller->channel, &queue, &context) == 0) {
        verbs->ack_cq_events(queue, 1);
        ((struct queue_share *)context)->is_armed = false;
    }
}

static void cm_ready(struct source *source, uint32_t events)
{
    struct weir_poller *poller =
        (struct weir_poller *)((char *)source - offsetof(struct weir_poller, cm_source));
    bootstrap_cm_events(poller);
}

static bool set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static enum weir_status open_sources(struct weir_poller *poller, struct weir_error *ret_error)
{
    const struct verbs *verbs = &poller->fabric->library.verbs;
    poller->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    poller->timer_source =
        (struct source){timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), timer_ready};
    poller->wake_source = (struct source){eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), wake_ready};
    if (poller->epoll_fd < 0 || poller->timer_source.fd < 0 || poller->wake_source.fd < 0 ||
        !poller_watch(poller, &poller->timer_source, EPOLLIN) ||
        !poller_watch(poller, &poller->wake_source, EPOLLIN)) {
        return error_set(ret_error, WEIR_SYSTEM, "poller: %m");
    }
    poller->channel = verbs->create_comp_channel(poller->fabric->context);
    if (poller->channel == NULL) {
        return error_set(ret_error, WEIR_SYSTEM, "%s: completion channel: %m",
                         poller->fabric->device);
    }
    poller->channel_source = (struct source){poller->channel->fd, channel_ready};
    if (!set_nonblocking(poller->channel->fd) ||
        !poller_watch(poller, &poller->channel_source, EPOLLIN)) {
        return error_set(ret_error, WEIR_SYSTEM, "completion channel: %m");
    }
    if (poller->fabric->cm_contexts == NULL) {
        return WEIR_OK;
    }
    poller->cm_channel = verbs->cm_create_event_channel();
    if (poller->cm_channel == NULL) {
        return error_set(ret_error, WEIR_SYSTEM, "rdma_cm event channel: %m");
    }
    poller->cm_source = (struct source){poller->cm_channel->fd, cm_ready};
    if (!set_nonblocking(poller->cm_channel->fd) ||
        !poller_watch(poller, &poller->cm_source, EPOLLIN)) {
        return error_set(ret_error, WEIR_SYSTEM, "rdma_cm event channel: %m");
    }
    return WEIR_OK;
}

enum weir_status weir_poller_create(struct weir_fabric *fabric, struct weir_poller **ret_poller,
                                    struct weir_error *ret_error)
{
    struct weir_poller *poller = calloc(1, sizeof(*poller));
    if (poller == NULL) {
        return error_set(ret_error, WEIR_NO_MEMORY, "no memory");
    }
    poller->fabric = fabric;
    poller->epoll_fd = -1;
    poller->timer_source.fd = poller->wake_source.fd = -1;
    poller->timer_armed_ns = TIMER_NEVER;
    poller->now_ns = clock_now_ns();
    poller->spin_ns = SPIN_NS;
    enum weir_status status = open_sources(poller, ret_error);
    if (status != WEIR_OK) {
        weir_poller_destroy(poller);
        return status;
    }
    *ret_poller = poller;
    return WEIR_OK;
}

static void close_sources(struct weir_poller *poller)
{
    const struct verbs *verbs = &poller->fabric->library.verbs;
    while (poller->queues != NULL) {
        struct queue_share *share = poller->queues;
        poller->queues = share->next;
        verbs->destroy_cq(share->queue);
        free(share);
    }
    if (poller->channel != NULL) {
        verbs->destroy_comp_channel(poller->channel);
    }
    if (poller->cm_channel != NULL) {
        verbs->cm_destroy_event_channel(poller->cm_channel);
    }
    if (poller->timer_source.fd >= 0) {
        close(poller->timer_source.fd);
    }
    if (poller->wake_source.fd >= 0) {
        close(poller->wake_source.fd);
    }
    if (poller->epoll_fd >= 0) {
        close(poller->epoll_fd);
    }
}

void weir_poller_destroy(struct weir_poller *poller)
{
    if (poller == NULL) {
        return;
    }
    poller->is_destroyed = true;
    while (poller->connections != NULL) {
        connection_destroy(poller->connections);
    }
    while (poller->listeners != NULL) {
        listener_destroy(poller->listeners);
    }
    close_sources(poller);
    user_timers_fini(&poller->user_timers);
    timers_fini(&poller->timers);
    free(poller->slots);
    free(poller);
}

int weir_poller_fd(struct weir_poller *poller)
{
    if (!poller->is_slept_on) {
        poller->is_slept_on = true;
        weir_wake(poller); /* no queue is armed that nobody sleeps on */
    }
    return poller->epoll_fd;
}

/* Has whoever sleeps on the descriptor call weir_poll, for something that no event tells of. */
static void stir(struct weir_poller *poller)
{
    const struct itimerspec now = {.it_value.tv_nsec = 1};
    timerfd_settime(poller->timer_source.fd, TFD_TIMER_ABSTIME, &now, NULL);
    poller->timer_armed_ns = STIRRED;
}

void poller_note_end(struct weir_poller *poller)
{
    poller->has_ended = true;
    if (poller->is_slept_on && !poller->is_polling) {
        stir(poller);
    }
}

void weir_wake(struct weir_poller *poller)
{
    eventfd_write(poller->wake_source.fd, 1); /* where it would not fit, it has been said */
}

struct weir_fabric *weir_poller_fabric(struct weir_poller *poller)
{
    return poller->fabric;
}

/* --- completion queues --- */

static uint32_t entries_of_all(const struct weir_poller *poller)
{
    uint32_t sum = 0;
    for (const struct queue_share *share = poller->queues; share != NULL; share = share->next) {
        sum = share->capacity > UINT32_MAX - sum ? UINT32_MAX : sum + share->capacity;
    }
    return sum;
}

static bool make_queue(struct weir_poller *poller, struct queue_share *share, uint32_t entries,
                       uint32_t wished)
{
    uint32_t most = (uint32_t)poller->fabric->attributes.max_cqe;
    share->capacity = wished > most ? most : wished;
    if (share->capacity < entries) {
        errno = EINVAL;
        return false;
    }
    share->queue = poller->fabric->library.verbs.create_cq(
        poller->fabric->context, (int)share->capacity, share, poller->channel, 0);
    return share->queue != NULL;
}

/* Every round looks at each queue. So a new one is as large as all before it, if the device has it:
 * there are few, however many queue pairs there are. */
struct queue_share *poller_reserve(struct weir_poller *poller, uint32_t entries)
{
    for (struct queue_share *share = poller->queues; share != NULL; share = share->next) {
        if (share->capacity - share->used >= entries) {
            share->used += entries;
            return share;
        }
    }
    struct queue_share *share = calloc(1, sizeof(*share));
    if (share == NULL) {
        return NULL;
    }
    uint32_t least = entries > QUEUE_ENTRIES ? entries : QUEUE_ENTRIES;
    uint32_t wished = entries_of_all(poller) > least ? entries_of_all(poller) : least;
    if (!make_queue(poller, share, entries, wished) && !make_queue(poller, share, entries, least)) {
        free(share);
        return NULL;
    }
    share->used = entries;
    share->next = poller->queues;
    poller->queues = share;
    return share;
}

void poller_unreserve(struct queue_share *share, uint32_t entries)
{
    share->used -= entries;
}

bool poller_add_lane(struct weir_poller *poller, struct lane *lane)
{
    for (uint32_t i = 0; i < poller->slot_count; i++) {
        if (poller->slots[i].lane == NULL) {
            poller->slots[i].lane = lane;
            poller->slots[i].generation++;
            lane_set_slot(lane, i, poller->slots[i].generation);
            return true;
        }
    }
    uint32_t count = poller->slot_count == 0 ? 32 : poller->slot_count * 2;
    if (count > SLOTS_MAX) {
        return false;
    }
    struct lane_slot *slots = realloc(poller->slots, count * sizeof(*slots));
    if (slots == NULL) {
        return false;
    }
    memset(slots + poller->slot_count, 0, (count - poller->slot_count) * sizeof(*slots));
    poller->slots = slots;
    poller->slot_count = count;
    return poller_add_lane(poller, lane);
}

void poller_remove_lane(struct weir_poller *poller, struct lane *lane)
{
    poller->slots[lane_slot(lane)].lane = NULL;
}

static void dispatch(struct weir_poller *poller, const struct ibv_wc *completion)
{
    uint32_t slot = lane_slot_of(completion->wr_id);
    if (slot < poller->slot_count && poller->slots[slot].lane != NULL &&
        lane_owns(poller->slots[slot].lane, completion->wr_id)) {
        lane_complete(poller->slots[slot].lane, completion);
    }
}

unsigned poller_drain(struct weir_poller *poller, unsigned budget)
{
    unsigned done = 0;
    for (struct queue_share *share = poller->queues; share != NULL; share = share->next) {
        struct ibv_wc completions[16];
        uint32_t seen = 0; /* a queue's length of them: what has come since is for another time */
        int count;
        do {
            count = ibv_poll_cq(share->queue, 16, completions);
            for (int i = 0; i < count; i++) {
                dispatch(poller, &completions[i]);
            }
            seen += count > 0 ? (unsigned)count : 0;
            done += count > 0 ? (unsigned)count : 0;
        } while (count == 16 && done < budget && seen < share->capacity);
    }
    return done;
}

/* True if a queue had not been armed, so that it must be looked at once more. */
static bool arm(struct weir_poller *poller)
{
    bool is_new = false;
    for (struct queue_share *share = poller->queues; share != NULL; share = share->next) {
        if (!share->is_armed && ibv_req_notify_cq(share->queue, 0) == 0) {
            share->is_armed = true;
            is_new = true;
        }
    }
    return is_new;
}

/* --- timers --- */

static void arm_timer(struct weir_poller *poller)
{
    uint64_t next_ns = timers_next_ns(&poller->timers);
    if (next_ns == poller->timer_armed_ns) {
        return;
    }
    struct itimerspec when = {0};
    if (next_ns != TIMER_NEVER) {
        when.it_value.tv_sec = (time_t)(next_ns / 1000000000u);
        when.it_value.tv_nsec = (long)(next_ns % 1000000000u);
    }
    timerfd_settime(poller->timer_source.fd, TFD_TIMER_ABSTIME, &when, NULL);
    poller->timer_armed_ns = next_ns;
}

bool poller_set_timer(struct weir_poller *poller, struct timer *timer, uint64_t delay_ms)
{
    bool is_set = timers_set(&poller->timers, timer, clock_now_ns() + delay_ms * MILLISECOND_NS);
    /* It may be slept on before weir_poll is called again; who is stirred calls it. */
    if (is_set && poller->is_slept_on && !poller->is_polling && poller->timer_armed_ns != STIRRED) {
        arm_timer(poller);
    }
    return is_set;
}

static unsigned run_timers(struct weir_poller *poller)
{
    unsigned done = 0;
    struct timer *timer;
    while ((timer = timers_take(&poller->timers, poller->now_ns)) != NULL) {
        timer->fire(timer);
        done++;
    }
    return done;
}

/* --- the loop --- */

/* Handles what fds have to tell. Returns how many, or -1 on a signal. */
static int look(struct weir_poller *poller, int timeout_ms)
{
    struct epoll_event events[32];
    int count = epoll_wait(poller->epoll_fd, events, 32, timeout_ms);
    poller->now_ns = clock_now_ns();
    poller->looked_ns = poller->now_ns;
    if (count < 0) {
        return errno == EINTR ? -1 : 0;
    }
    for (int i = 0; i < count; i++) {
        struct source *source = events[i].data.ptr;
        source->ready(source, events[i].events);
    }
    return count;
}

static void reap(struct weir_poller *poller)
{
    while (poller->has_ended) {
        poller->has_ended = false;
        listeners_reap(poller);
        connections_reap(poller);
    }
}

/* One round without sleeping. True if anything happened. Whoever waits for something to come has
 * time to look at the clock, who works on it has not, unless that is all that ever happens. */
static bool run_round(struct weir_poller *poller, bool must_look)
{
    unsigned done = poller_drain(poller, DRAIN_BUDGET);
    poller->is_late = done > 0 && !poller->is_late;
    if (!poller->is_late) {
        poller->now_ns = clock_now_ns();
    }
    if (must_look || poller->now_ns - poller->looked_ns >= LOOK_NS) {
        int seen = look(poller, 0);
        done += seen > 0 ? (unsigned)seen : 0;
    }
    done += run_timers(poller);
    if (poller->has_ended) {
        reap(poller);
        done++;
    }
    return done > 0;
}

static int milliseconds_until(uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns == TIMER_NEVER) {
        return -1;
    }
    if (deadline_ns <= now_ns) {
        return 0;
    }
    uint64_t wait_ms = (deadline_ns - now_ns + MILLISECOND_NS - 1) / MILLISECOND_NS;
    return wait_ms > INT32_MAX ? INT32_MAX : (int)wait_ms;
}

/* For who comes again soon and is not to be woken: so nothing is armed, which would have each
 * completion announced to nobody, and no fd looked at but now and then. */
static int glance(struct weir_poller *poller)
{
    unsigned extra = 0;
    while (extra++ < EXTRA_ROUNDS && run_round(poller, false) && poller->callbacks == 0) {
    }
    return poller->callbacks;
}

/* Whoever slept for less than spinning takes had better have spun; else the next spin is shorter.
 */
static void learn(struct weir_poller *poller, uint64_t fell_asleep_ns)
{
    bool short_sleep = poller->now_ns - fell_asleep_ns < SPIN_NS;
    uint64_t less = poller->spin_ns / 2 > SPIN_MIN_NS ? poller->spin_ns / 2 : SPIN_MIN_NS;
    poller->spin_ns = short_sleep ? SPIN_NS : less;
}

static int wait_for_some(struct weir_poller *poller, int timeout_ms)
{
    uint64_t started_ns = clock_now_ns();
    uint64_t deadline_ns =
        timeout_ms < 0 ? TIMER_NEVER : started_ns + (uint64_t)timeout_ms * MILLISECOND_NS;
    uint64_t spin_until_ns = timeout_ms == 0 ? 0 : started_ns + poller->spin_ns;
    unsigned extra = 0; /* rounds past the deadline */
    for (;;) {
        bool has_moved = run_round(poller, false);
        if (poller->callbacks > 0) {
            return poller->callbacks;
        }
        if (has_moved && (poller->now_ns < deadline_ns || extra++ < EXTRA_ROUNDS)) {
            spin_until_ns = timeout_ms == 0 ? 0 : poller->now_ns + poller->spin_ns;
            continue;
        }
        if (poller->now_ns < spin_until_ns) {
            continue;
        }
        if (arm(poller)) {
            continue;
        }
        arm_timer(poller);
        uint64_t fell_asleep_ns = poller->now_ns;
        int seen = look(poller, milliseconds_until(deadline_ns, fell_asleep_ns));
        if (timeout_ms != 0) {
            learn(poller, fell_asleep_ns);
        }
        if (seen < 0) {
            return -1;
        }
        if (seen == 0 && poller->now_ns >= deadline_ns) {
            return 0;
        }
        if (timeout_ms == 0 ? extra++ >= EXTRA_ROUNDS : poller->now_ns >= deadline_ns) {
            run_round(poller, true);
            if (poller->is_slept_on && arm(poller)) {
                stir(poller); /* something may have come in between */
            }
            return poller->callbacks;
        }
    }
}

static int poll_once(struct weir_poller *poller, int timeout_ms)
{
    poller->callbacks = 0;
    if (timeout_ms == 0 && !poller->is_slept_on) {
        return glance(poller);
    }
    run_round(poller, false);
    return poller->callbacks > 0 ? poller->callbacks : wait_for_some(poller, timeout_ms);
}

int weir_poll(struct weir_poller *poller, int timeout_ms)
{
    poller->is_polling = true;
    int count = poll_once(poller, timeout_ms);
    poller->is_polling = false;
    return count;
}
