/* rpoll and rselect, over rsockets and ordinary descriptors together.
 *
 * What an rsocket has to say stands in its state, not in its descriptors; those only say when to
 * look again. A thread that sleeps here is registered as a poller, and whoever takes an event away
 * from a descriptor, or changes a state without one, wakes all pollers. So an event that another
 * thread has taken is not slept through. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <unistd.h>

#include "rnic/rdmacm/rsocket_datagram.h"

#define ON_STACK 32
#define SPARES   8u

/* What a call looks at. */
struct watch {
    struct pollfd *descriptors; /* the application's */
    nfds_t count;
    struct rsocket **sockets; /* NULL: an ordinary descriptor */
    struct pollfd *under;     /* what the kernel is to poll, with room for one more */
};

struct poller {
    struct list_node node;
    int wake;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list pollers = {{&pollers.head, &pollers.head}};
static _Atomic unsigned poller_count;
static int spares[SPARES]; /* eventfds for pollers to come */
static unsigned spare_count;

/* Only with an eventfd that has been used before, or a new one. */
static int enter(struct poller *poller)
{
    pthread_mutex_lock(&lock);
    poller->wake = spare_count > 0 ? spares[--spare_count] : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (poller->wake >= 0) {
        list_append(&pollers, &poller->node);
        atomic_fetch_add(&poller_count, 1);
    }
    pthread_mutex_unlock(&lock);
    return poller->wake < 0 ? -1 : 0;
}

static void leave(struct poller *poller)
{
    if (poller->wake < 0) {
        return;
    }
    int error = errno;
    pthread_mutex_lock(&lock);
    list_remove(&poller->node);
    atomic_fetch_sub(&poller_count, 1);
    bool is_kept = spare_count < SPARES;
    if (is_kept) {
        spares[spare_count++] = poller->wake;
    }
    pthread_mutex_unlock(&lock);
    if (!is_kept) {
        raw_close(poller->wake);
    }
    errno = error;
}

void rsocket_forget_pollers(void)
{
    pthread_mutex_init(&lock, NULL);
    list_init(&pollers);
    atomic_store(&poller_count, 0);
    while (spare_count > 0) {
        close(spares[--spare_count]);
    }
}

void rsocket_wake_pollers(void)
{
    const uint64_t one = 1;
    if (atomic_load(&poller_count) == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    LIST_FOR_EACH(node, &pollers)
    {
        ssize_t written =
            raw_write(CONTAINER_OF(node, struct poller, node)->wake, &one, sizeof one);
        (void)written; /* full means that it is awake */
    }
    pthread_mutex_unlock(&lock);
}

static short connected_events(struct stream *stream, short wanted)
{
    short events = 0;
    if (stream_has_data_or_never(stream)) {
        events |= RSOCKET_READABLE & wanted;
    }
    if (stream_can_send_or_never(stream)) { /* or select would say that nothing can be done */
        events |= RSOCKET_WRITABLE & wanted;
    }
    /* Not while there is data: who is told of both may leave it behind. */
    if (!stream_is_connected(stream) && !stream_has_data(stream)) {
        events |= atomic_load(&stream->state) == STREAM_DISCONNECTED ? POLLHUP : POLLERR;
    }
    return events;
}

/* `arms`: the completion queue will say when there is more. */
static short stream_events(struct stream *stream, short wanted, bool arms)
{
    switch (atomic_load(&stream->state)) {
    case STREAM_CONNECTED:
    case STREAM_DISCONNECTED:
    case STREAM_BROKEN:
        if (stream->queue == NULL || stream->base.is_foreign) {
            return POLLERR;
        }
        (void)stream_process(stream, arms, arms ? stream_is_armed : stream_settled);
        return connected_events(stream, wanted);
    case STREAM_LISTENING: {
        struct pollfd accepted = {.fd = stream->accept_descriptor, .events = POLLIN};
        return poll(&accepted, 1, 0) > 0 ? RSOCKET_READABLE & wanted : 0;
    }
    case STREAM_REFUSED:
        return (short)((wanted & (RSOCKET_READABLE | RSOCKET_WRITABLE)) | POLLERR);
    default:
        return 0;
    }
}

static short events_of(struct rsocket *socket, short wanted, bool arms)
{
    if (atomic_load(&socket->is_closed)) {
        return POLLNVAL;
    }
    if (socket->type == SOCK_STREAM) {
        return stream_events(stream_of(socket), wanted, arms);
    }
    if (arms) {
        datagram_arm(socket);
    }
    return datagram_events(socket, wanted);
}

/* What becomes readable when the socket is to be looked at again; -1: its poller is woken. */
static int descriptor_of(const struct rsocket *socket)
{
    if (socket->type == SOCK_DGRAM) {
        return datagram_descriptor(socket);
    }
    const struct stream *stream = (const struct stream *)socket;
    if (atomic_load(&stream->state) == STREAM_LISTENING) {
        return stream->accept_descriptor;
    }
    return atomic_load(&stream->state) >= STREAM_CONNECTED && stream->channel != NULL
               ? stream->channel->fd
               : -1;
}

static void take_event(struct rsocket *socket)
{
    if (socket->type == SOCK_DGRAM) {
        datagram_take_event(socket);
    } else if (atomic_load(&stream_of(socket)->state) >= STREAM_CONNECTED) {
        stream_take_event(stream_of(socket));
    }
}

/* Fills `under`, looking at every rsocket on the way. Returns how many have something to say. */
static int look(struct watch *watch, bool arms)
{
    int found = 0;
    for (nfds_t i = 0; i < watch->count; i++) {
        struct pollfd *asked = &watch->descriptors[i];
        struct rsocket *socket = watch->sockets[i];
        if (socket == NULL) {
            watch->under[i] = (struct pollfd){asked->fd, asked->events, 0};
            asked->revents = 0;
            continue;
        }
        asked->revents = events_of(socket, asked->events, arms);
        found += asked->revents != 0;
        watch->under[i] = (struct pollfd){arms ? descriptor_of(socket) : -1, POLLIN, 0};
    }
    return found;
}

/* Adds what the kernel said about ordinary descriptors. */
static int add_ordinary(struct watch *watch)
{
    int found = 0;
    for (nfds_t i = 0; i < watch->count; i++) {
        if (watch->under[i].revents == 0) {
            continue;
        }
        if (watch->sockets[i] == NULL) {
            watch->descriptors[i].revents = watch->under[i].revents;
            found++;
        } else {
            take_event(watch->sockets[i]);
        }
    }
    return found;
}

static bool has_ordinary(const struct watch *watch)
{
    for (nfds_t i = 0; i < watch->count; i++) {
        if (watch->under[i].fd >= 0) {
            return true;
        }
    }
    return false;
}

/* The kernel is not asked about rsockets alone: this runs in the loop that spins. */
static int check(struct watch *watch)
{
    int found = look(watch, false);
    int ready = has_ordinary(watch) ? poll(watch->under, watch->count, 0) : 0;
    return ready < 0 ? -1 : found + (ready > 0 ? add_ordinary(watch) : 0);
}

/* Until `end_us`. */
static int sleep_and_look(struct watch *watch, struct poller *poller, uint64_t end_us)
{
    for (;;) {
        uint64_t tokens;
        ssize_t length = raw_read(poller->wake, &tokens, sizeof tokens);
        (void)length; /* what it told of is looked at now */
        int found = look(watch, true);
        uint64_t now_us = rsocket_now_us();
        if (found == 0 && now_us < end_us) {
            uint64_t rest_ms = end_us == UINT64_MAX ? INT_MAX : (end_us - now_us + 999) / 1000;
            int wait_ms = rsocket_config()->wake_up_interval_ms;
            wait_ms = rest_ms < (uint64_t)wait_ms ? (int)rest_ms : wait_ms;
            watch->under[watch->count] = (struct pollfd){poller->wake, POLLIN, 0};
            if (cma_device() != NULL) {
                engine_about_to_sleep(cma_device()->engine);
            }
            int ready = poll(watch->under, watch->count + 1, wait_ms);
            if (ready < 0) {
                return -1;
            }
            (void)add_ordinary(watch); /* events of rsockets are taken */
        }
        if (found != 0 || (found = check(watch)) != 0 || rsocket_now_us() >= end_us) {
            return found;
        }
    }
}

static int poll_watch(struct watch *watch, int timeout_ms)
{
    uint64_t start_us = rsocket_now_us();
    do {
        int found = check(watch);
        if (found != 0 || timeout_ms == 0) {
            return found;
        }
    } while (rsocket_now_us() - start_us <= rsocket_config()->polling_time_us);
    __attribute__((cleanup(leave))) struct poller poller = {.wake = -1};
    uint64_t end_us = timeout_ms < 0 ? UINT64_MAX : start_us + (uint64_t)timeout_ms * 1000;
    return enter(&poller) != 0 ? -1 : sleep_and_look(watch, &poller, end_us);
}

static void end_watch(struct watch *watch)
{
    int error = errno;
    for (nfds_t i = 0; watch->sockets != NULL && i < watch->count; i++) {
        rsocket_end_use(&watch->sockets[i]);
    }
    if (watch->count > ON_STACK) {
        free(watch->under);
        free(watch->sockets);
    }
    errno = error;
}

PUBLIC int rpoll(struct pollfd *descriptors, nfds_t count, int timeout_ms)
{
    struct pollfd few[ON_STACK + 1];
    struct rsocket *few_sockets[ON_STACK];
    __attribute__((cleanup(end_watch))) struct watch watch = {descriptors, count, few_sockets, few};
    if (count > ON_STACK) {
        watch.under = calloc(count + 1, sizeof *watch.under);
        watch.sockets = calloc(count, sizeof *watch.sockets);
    }
    if (watch.under == NULL || watch.sockets == NULL) {
        return cma_error(ENOMEM);
    }
    /* As a user: what is closed meanwhile stays there until the call ends. */
    for (nfds_t i = 0; i < count; i++) {
        watch.sockets[i] = rsocket_find(descriptors[i].fd);
    }
    return poll_watch(&watch, timeout_ms);
}

static bool is_in(int descriptor, fd_set *set)
{
    return set != NULL && FD_ISSET(descriptor, set);
}

static int add_to(int descriptor, fd_set *set)
{
    FD_SET(descriptor, set);
    return 1;
}

static nfds_t from_sets(int limit, fd_set *readable, fd_set *writable, fd_set *exceptional,
                        struct pollfd *ret_descriptors)
{
    nfds_t count = 0;
    for (int i = 0; i < limit; i++) {
        if (is_in(i, readable) || is_in(i, writable) || is_in(i, exceptional)) {
            short events =
                (short)((is_in(i, readable) ? POLLIN : 0) | (is_in(i, writable) ? POLLOUT : 0) |
                        (is_in(i, exceptional) ? POLLPRI : 0));
            ret_descriptors[count++] = (struct pollfd){i, events, 0};
        }
    }
    return count;
}

/* The sets hold what was asked for; they are narrowed to what was found. */
static int to_sets(const struct pollfd *descriptors, nfds_t count, fd_set *readable,
                   fd_set *writable, fd_set *exceptional)
{
    int found = 0;
    for (nfds_t i = 0; i < count; i++) {
        const short events = descriptors[i].revents;
        const short asked = descriptors[i].events;
        if ((asked & POLLIN) != 0 && (events & (POLLIN | POLLHUP | POLLERR)) != 0) {
            found += add_to(descriptors[i].fd, readable);
        }
        if ((asked & POLLOUT) != 0 && (events & (POLLOUT | POLLERR)) != 0) {
            found += add_to(descriptors[i].fd, writable);
        }
        if ((asked & POLLPRI) != 0 && (events & ~(POLLIN | POLLOUT)) != 0) {
            found += add_to(descriptors[i].fd, exceptional);
        }
    }
    return found;
}

/* For rpoll, which knows nothing beyond INT_MAX ms. */
static int to_ms(const struct timeval *timeout)
{
    const int64_t most = INT_MAX;
    if (timeout == NULL) {
        return -1;
    }
    int64_t ms = timeout->tv_sec > most / 1000 ? most : timeout->tv_sec * 1000;
    ms += timeout->tv_usec > most ? most : (timeout->tv_usec + 999) / 1000;
    return (int)(ms < most ? ms : most);
}

PUBLIC int rselect(int limit, fd_set *readable, fd_set *writable, fd_set *exceptional,
                   struct timeval *timeout)
{
    if (limit < 0 || limit > FD_SETSIZE ||
        (timeout != NULL && (timeout->tv_sec < 0 || timeout->tv_usec < 0))) {
        return cma_error(EINVAL);
    }
    struct pollfd descriptors[FD_SETSIZE];
    nfds_t count = from_sets(limit, readable, writable, exceptional, descriptors);
    int found = rpoll(descriptors, count, to_ms(timeout));
    if (found < 0) {
        return -1;
    }
    for (nfds_t i = 0; i < count; i++) {
        if ((descriptors[i].revents & POLLNVAL) != 0) {
            return cma_error(EBADF);
        }
    }
    fd_set *sets[] = {readable, writable, exceptional};
    for (size_t i = 0; i < 3; i++) {
        if (sets[i] != NULL) {
            FD_ZERO(sets[i]);
        }
    }
    return found == 0 ? 0 : to_sets(descriptors, count, readable, writable, exceptional);
}
