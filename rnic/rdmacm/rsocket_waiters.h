/* Threads that wait with a lock given back, as for a condition, but that a signal reaches: a
 * handler that was not installed with SA_RESTART ends the wait, as it ends a call on a kernel's
 * socket. */
#ifndef WEIR_RDMACM_RSOCKET_WAITERS_H
#define WEIR_RDMACM_RSOCKET_WAITERS_H

#include <pthread.h>
#include <semaphore.h>

struct rsocket_waiters {
    sem_t turns;
    unsigned count; /* under the users' lock: who has no turn yet */
};

void rsocket_waiters_init(struct rsocket_waiters *waiters);
/* With `lock` held, but not while it waits; a cancellation point, after which the lock is held as
 * well. Returns too early now and then. -1 and EINTR. */
int rsocket_wait(struct rsocket_waiters *waiters, pthread_mutex_t *lock);
/* All of them, with the same lock held. */
void rsocket_wake(struct rsocket_waiters *waiters);

#endif
