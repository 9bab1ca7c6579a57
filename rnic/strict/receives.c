/* A message that found no receive is remembered until a receive is posted: that post is the place
 * the warning is about. */
#include "rnic/strict/receives.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "rnic/io/system/clock.h"
#include "rnic/strict/strict.h"

#define HUNGRY_MAX  256u
#define PATIENCE_NS 1000000000u /* then it is said before a receive is posted: one may never be */

struct hungry {
    const struct receive_queue *queue; /* NULL: free */
    struct qpn qpn;                    /* whose message came first */
    struct instant since;
    uint64_t messages; /* repetitions of one message count, too */
    bool may_be_lost;
    bool is_said;
};

static struct {
    pthread_mutex_t lock;
    _Atomic uint32_t count;
    struct hungry queues[HUNGRY_MAX];
} hungry = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In a child: a thread that held it is gone, and the queues are its parent's. */
static void after_fork(void)
{
    pthread_mutex_init(&hungry.lock, NULL);
    memset(hungry.queues, 0, sizeof hungry.queues);
    atomic_store(&hungry.count, 0);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static struct hungry *find(const struct receive_queue *queue)
{
    for (uint32_t i = 0; i < HUNGRY_MAX; i++) {
        if (hungry.queues[i].queue == queue) {
            return &hungry.queues[i];
        }
    }
    return NULL;
}

void receives_missing(const struct receive_queue *queue, struct qpn qpn, bool may_be_lost)
{
    if (queue == NULL) {
        return; /* a shared one that the peer names and nobody has */
    }
    pthread_mutex_lock(&hungry.lock);
    struct hungry *entry = find(queue);
    if (entry == NULL) {
        entry = find(NULL);
        if (entry != NULL) {
            *entry = (struct hungry){
                .queue = queue, .qpn = qpn, .since = clock_now(), .may_be_lost = may_be_lost};
            atomic_fetch_add(&hungry.count, 1);
        }
    }
    struct hungry was = {0};
    if (entry != NULL) {
        entry->messages++;
        if (!may_be_lost && !entry->is_said &&
            instant_elapsed_ns(entry->since, clock_now()) > PATIENCE_NS) {
            entry->is_said = true;
            was = *entry;
        }
    }
    pthread_mutex_unlock(&hungry.lock);
    if (was.is_said) {
        pitfall_warn(PITFALL_LATE_RECEIVE, NULL, "met at",
                     "QP 0x%x: a message has found no receive for a second (%" PRIu64 " times)",
                     was.qpn.value, was.messages);
    }
}

/* Takes the queue off the list. False: it is not on it. */
static bool take(const struct receive_queue *queue, struct hungry *ret_entry)
{
    if (queue == NULL || atomic_load(&hungry.count) == 0) {
        return false;
    }
    pthread_mutex_lock(&hungry.lock);
    struct hungry *entry = find(queue);
    if (entry != NULL) {
        *ret_entry = *entry;
        *entry = (struct hungry){0};
        atomic_fetch_sub(&hungry.count, 1);
    }
    pthread_mutex_unlock(&hungry.lock);
    return entry != NULL;
}

void strict_receive_posted(const struct receive_queue *queue)
{
    struct hungry was;
    if (take(queue, &was)) {
        pitfall_warn(PITFALL_LATE_RECEIVE, NULL, "posted at",
                     "QP 0x%x: a receive was posted %" PRIu64 " us after a message had come and "
                     "found none (%" PRIu64 " time%s)",
                     was.qpn.value, instant_elapsed_ns(was.since, clock_now()) / 1000, was.messages,
                     was.messages == 1 ? "" : "s");
    }
}

/* Who only sends need not receive. */
static void warn_of_hunger(const struct hungry *was, const char *label)
{
    if (!was->may_be_lost) {
        pitfall_warn(PITFALL_LATE_RECEIVE, NULL, label,
                     "QP 0x%x: a message came, found no receive, and none was posted after it",
                     was->qpn.value);
    }
}

void strict_receives_end(const struct receive_queue *queue)
{
    struct hungry was;
    if (take(queue, &was)) {
        warn_of_hunger(&was, "given up at");
    }
}

/* Of programs that end without destroying their queue pairs, as most do that met an error. */
__attribute__((destructor)) static void end_all(void)
{
    for (uint32_t i = 0; i < HUNGRY_MAX && atomic_load(&hungry.count) != 0; i++) {
        pthread_mutex_lock(&hungry.lock);
        struct hungry was = hungry.queues[i];
        pthread_mutex_unlock(&hungry.lock);
        if (was.queue != NULL && take(was.queue, &was)) {
            warn_of_hunger(&was, "as the process ended");
        }
    }
}
