#include "rnic/rdmacm/rsocket_waiters.h"

#include <errno.h>

struct wait {
    struct rsocket_waiters *waiters;
    pthread_mutex_t *lock;
    int result; /* not 0: it has no turn, or leaves it to another one, who then wakes in vain */
};

void rsocket_waiters_init(struct rsocket_waiters *waiters)
{
    sem_init(&waiters->turns, 0, 0);
    waiters->count = 0;
}

static void end_wait(struct wait *wait)
{
    int error = errno;
    pthread_mutex_lock(wait->lock);
    if (wait->result != 0 && wait->waiters->count > 0) {
        wait->waiters->count--;
    }
    errno = error;
}

int rsocket_wait(struct rsocket_waiters *waiters, pthread_mutex_t *lock)
{
    __attribute__((cleanup(end_wait))) struct wait wait = {waiters, lock, -1};
    waiters->count++;
    pthread_mutex_unlock(lock);
    wait.result = sem_wait(&waiters->turns);
    return wait.result;
}

void rsocket_wake(struct rsocket_waiters *waiters)
{
    for (; waiters->count > 0; waiters->count--) {
        sem_post(&waiters->turns);
    }
}
