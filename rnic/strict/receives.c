/* A message that found no receive is remembered until a receive is posted: that post is the place
 * the warning is about. */
#include "rnic/strict/receives.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "rnic/io/system/clock.h"
#include "rnic/strict/strict.h"

#define HUNGRY_MAX 256u

struct hungry {
    const struct receive_queue *queue; /* NULL: free */
    struct qpn qpn;                    /* whose message came first */
    struct instant since;
    uint64_t messages; /* repetitions of one message count, too */
    bool may_be_lost;
};

static struct {
    pthread_mutex_t lock;
    _Atomic uint32_t count;
    struct hungry queues[HUNGRY_MAX];
} hungry = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In a child: a thread that held it is gone. */
static void after_fork(void)
{
    pthread_mutex_init(&hungry.lock, NULL);
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
    if (entry != NULL) {
        entry->messages++;
    }
    pthread_mutex_unlock(&hungry.lock);
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

void strict_receives_end(const struct receive_queue *queue)
{
    struct hungry was;
    if (take(queue, &was) && !was.may_be_lost) { /* who only sends need not receive */
        pitfall_warn(PITFALL_LATE_RECEIVE, NULL, "given up at",
                     "QP 0x%x: a message came, found no receive, and none was ever posted",
                     was.qpn.value);
    }
}
