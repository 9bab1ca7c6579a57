/* Where objects came from, and the warnings that only need that. */
#include <pthread.h>
#include <stdlib.h>

#include "rnic/strict/strict.h"

struct birth {
    struct birth *next;
    const void *object;
    struct trace where;
};

#define BUCKETS 1024u

static struct {
    pthread_mutex_t lock;
    struct birth *buckets[BUCKETS];
} births = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* In a child: a thread that held it is gone. */
static void after_fork(void)
{
    pthread_mutex_init(&births.lock, NULL);
}

__attribute__((constructor)) static void watch_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static struct birth **find(const void *object)
{
    struct birth **link = &births.buckets[(uintptr_t)object / 64 % BUCKETS];
    while (*link != NULL && (*link)->object != object) {
        link = &(*link)->next;
    }
    return link;
}

void strict_born(const void *object)
{
    struct birth *birth = calloc(1, sizeof *birth);
    if (birth == NULL) {
        return;
    }
    birth->object = object;
    trace_take(&birth->where);
    pthread_mutex_lock(&births.lock);
    struct birth **link = find(object);
    birth->next = *link;
    *link = birth;
    pthread_mutex_unlock(&births.lock);
}

void strict_gone(const void *object)
{
    pthread_mutex_lock(&births.lock);
    struct birth **link = find(object);
    struct birth *birth = *link;
    if (birth != NULL) {
        *link = birth->next;
    }
    pthread_mutex_unlock(&births.lock);
    free(birth);
}

static struct trace birth_of(const void *object)
{
    struct trace where = {0};
    pthread_mutex_lock(&births.lock);
    const struct birth *birth = *find(object);
    if (birth != NULL) {
        where = birth->where;
    }
    pthread_mutex_unlock(&births.lock);
    return where;
}

void strict_cq_overran(const void *cq, uint32_t capacity)
{
    struct trace where = birth_of(cq);
    pitfall_warn(PITFALL_CQ_OVERRUN, &where, "the completion queue was created at",
                 "a completion queue of %u entries has overrun: its queue pairs go to error and "
                 "completions are lost",
                 capacity);
}

void strict_unacknowledged(uint32_t events)
{
    pitfall_warn(PITFALL_UNACKED_EVENT, NULL, "destroyed at",
                 "an object is destroyed while %u of its events %s not acknowledged", events,
                 events == 1 ? "is" : "are");
}
