/* Threads of our own, which take no signals: those are the application's. But what a thread brings
 * upon itself (a fault, or a call that the program has filtered, to be told by SIGSYS) is not held
 * back: blocked, it ends the process without asking anybody's handler. */
#ifndef WEIR_IO_QUIET_H
#define WEIR_IO_QUIET_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Before pthread_create, for the thread has its creator's mask. What quiet_end is to be given. */
static inline sigset_t quiet_begin(void)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        sigdelset(&all, own[i]);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    return before;
}

static inline void quiet_end(sigset_t before)
{
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

#endif
